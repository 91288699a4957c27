package repository

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// snapshot is an immutable table of every known model. Requests read it without a lock; a change publishes a new one.
type snapshot struct {
	models map[string]*model   // by key
	keys   []string            // of models, sorted
	called map[string]*model   // by the name in requests
	spaces map[string][]string // the namespaces of the models with a name; nil without namespacing
	number uint64              // counts the snapshots
}

// newSnapshot returns a snapshot of models by key. spaced is set if keys hold a namespace.
func newSnapshot(models map[string]*model, spaced bool) *snapshot {
	s := &snapshot{models: models, keys: slices.Sorted(maps.Keys(models)), called: models}
	if spaced {
		s.called, s.spaces = callNames(models), map[string][]string{}
		for _, key := range s.keys {
			s.spaces[nameOf(key)] = append(s.spaces[nameOf(key)], spaceOf(key))
		}
	}
	return s
}

// model is one model of a snapshot. It is immutable, except for its versions' states.
type model struct {
	key      string // see source.keyOf
	name     string
	folder   *folder
	versions []*version      // the serving versions, ascending
	states   []*versionState // those of every known version, ascending
	err      error           // why a version does not serve
	wanted   bool            // false after the model is unloaded
	// withdrawn is set for an ensemble that does not serve because one of its models was unloaded by a request, or
	// its folder removed. The server is ready without it.
	withdrawn bool
	explicit  bool // set for a model loaded by name, not as part of an ensemble
	// holdsOverride keeps the files of a load request: an ensemble needs them when it is compiled again.
	holdsOverride bool
	// moved has the present places of versions whose instances changed since they were loaded.
	moved       map[*version][]tensor.Place
	fingerprint uint64 // the folder's at the last load, and in mode Polled at the last attempt
	sharedBy    int    // the number of models behind an ambiguous name; 0 for a real model
}

// isEnsemble reports whether the configuration, if it could be read, is that of an ensemble.
func (m *model) isEnsemble() bool {
	return m.folder != nil && m.folder.cfg.GetEnsembleScheduling() != nil
}

// version returns a version by number, the latest for number <= 0, or nil.
func (m *model) version(number int64) *version {
	if number <= 0 && len(m.versions) > 0 {
		return m.versions[len(m.versions)-1]
	}
	for _, v := range m.versions {
		if v.sig.Version == number {
			return v
		}
	}
	return nil
}

// placesOf returns the places of a version's instances. Nil: the host.
func (m *model) placesOf(v *version) []tensor.Place {
	if places, ok := m.moved[v]; ok {
		return places
	}
	return v.places
}

func (m *model) ensemble() bool { return config.IsEnsemble(m.folder.cfg) }

// ready reports whether the model serves completely, or is not expected to.
func (m *model) ready() bool { return !m.wanted || m.withdrawn || m.err == nil && len(m.versions) > 0 }

// overrideDir returns the files of a load request that the model retains, or nil. m may be nil.
func (m *model) overrideDir() *overrideDir {
	if m == nil || !m.holdsOverride {
		return nil
	}
	return m.folder.overrideDir
}

// find returns the version that a request names. Its errors are Triton's.
//
// hot: one map lookup.
func (s *snapshot) find(name string, number int64) (*version, error) {
	m := s.called[name]
	if m == nil {
		return nil, status.Errorf(status.InvalidArg, "Request for unknown model: '%s' is not found", name)
	}
	if v := m.version(number); v != nil {
		return v, nil
	}
	if m.sharedBy > 0 {
		return nil, m.ambiguous()
	}
	if number <= 0 {
		return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' has no available versions", name)
	}
	if slices.ContainsFunc(m.states, func(l *versionState) bool { return l.number == number }) {
		return nil, status.At(name, status.Reasonf(status.ModelNotReady, "Request for unknown model: '%s' version %d is not at ready state", name, number))
	}
	return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' version %d is not found", name, number)
}

// find looks the version up in the current snapshot.
//
// hot: no lock, one map lookup.
func (r *Repository) find(name string, number int64) (*version, error) {
	return r.catalog.Load().find(name, number)
}

// unloaded is Triton's reason for an unloaded version.
const unloaded = "unloaded"

// versionState is the state of one version of a model. Index reads it while it changes.
type versionState struct {
	number  int64
	current atomic.Pointer[condition]
}

type condition struct {
	state  infer.State
	reason string
}

// newVersionState returns the state LOADING.
func newVersionState(number int64) *versionState {
	l := &versionState{number: number}
	l.current.Store(&condition{state: infer.Loading})
	return l
}

// transitions lists the states that may follow each state. A state that follows itself gets another reason.
var transitions = map[infer.State][]infer.State{
	infer.Unavailable: {infer.Unavailable, infer.Loading},
	infer.Loading:     {infer.Ready, infer.Unavailable},
	infer.Ready:       {infer.Ready, infer.Unloading},
	infer.Unloading:   {infer.Unavailable},
}

// set changes the state. It reports false if the transition is not allowed.
func (l *versionState) set(state infer.State, reason string) bool {
	for {
		old := l.current.Load()
		if !slices.Contains(transitions[old.state], state) {
			return false
		}
		if l.current.CompareAndSwap(old, &condition{state, reason}) {
			return true
		}
	}
}

func (l *versionState) is(state infer.State) bool { return l.current.Load().state == state }

// mergeStates returns the states of both lists, ascending by number. For a number in both, the state of first counts.
func mergeStates(first, second []*versionState) []*versionState {
	all := slices.Clone(first)
	for _, l := range second {
		if !slices.ContainsFunc(first, func(x *versionState) bool { return x.number == l.number }) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *versionState) int { return cmp.Compare(a.number, b.number) })
	return all
}

var _ infer.Inferer = (*Repository)(nil)

// Background decides when background work of the process may execute.
func (r *Repository) Background() *scheduler.Background { return r.workers.Background() }

// Submit passes req to the executor of its model and version. If that version retires in between, Submit looks it
// up again, at most once per change.
//
// hot: no lock, one map lookup.
func (r *Repository) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	for {
		v, err := r.find(req.Model, req.Version)
		if err != nil {
			if req.Trace == nil {
				r.s.Tracer.RecordRefusal(req.Model, 0, req.ID, &req.Origin, err)
			}
			req.Trace.Fail(err)
			req.Release()
			sink.Close(err)
			return
		}
		if req.Trace == nil {
			req.Trace = r.s.Tracer.SampleFrom(req.Model, v.sig.Version, req.ID, &req.Origin)
			if r.s.Tracer.Capturing() {
				req.Trace = r.s.Tracer.Capture(req.Trace, req.Model, v.sig.Version, req.ID, &req.Origin)
			}
			if req.Trace != nil {
				r.describe(req)
			}
		}
		if v.responseCache != nil {
			if v.responseCache.Offer(ctx, req, sink) {
				return
			}
		} else if v.exec.Offer(ctx, req, sink) {
			return
		}
	}
}

// CheckRequest returns the error with which Submit would refuse a request before any model executes. See infer.Checker.
func (r *Repository) CheckRequest(req *infer.Request) error {
	v, err := r.find(req.Model, req.Version)
	if err != nil {
		return err
	}
	return v.exec.Check(req)
}

// describe records the request's origin and the selected parameters in its trace.
func (r *Repository) describe(req *infer.Request) {
	req.Trace.SetOrigin(&req.Origin)
	for _, key := range r.s.Tracer.Params() {
		for i := range req.Params {
			if p := &req.Params[i]; p.Key == key {
				req.Trace.Param(key, p.Text())
			}
		}
	}
}

// changeLock is a mutex whose Lock can be abandoned.
type changeLock chan struct{}

// lock acquires the lock. It fails when ctx is done first.
func (t changeLock) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}: // a free lock is acquired even if ctx is done
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.ErrCancelled
	}
}

func (t changeLock) unlock() { <-t }

// nesting lets a model that is being loaded load and unload other models from its own initialisation. The change
// that loads it waits and keeps Repository.changes; the nested changes run one after the other in its place, and it
// then continues from their result.
type nesting struct {
	changes        changeLock
	ended          bool              // the change continues; guarded by changes
	before         *snapshot         // served before the models began to load
	loadingOutside map[string]*model // models that outer changes are loading, by key
}

// outerKey is the context key of the change that loads a model.
type outerKey struct{}

// allowNested permits nested changes under the returned context, until endNested.
func (c *change) allowNested(ctx context.Context) context.Context {
	c.inner.changes, c.inner.before = make(changeLock, 1), c.r.catalog.Load()
	return context.WithValue(ctx, outerKey{}, c)
}

// endNested waits for a nested change in progress. No further one can begin.
func (c *change) endNested() {
	c.inner.changes <- struct{}{}
	c.inner.ended = true
	c.inner.changes.unlock()
	c.rebase()
}

// lock acquires the lock of the nested changes. It reports false, without the lock, if the outer change continues
// already.
func (n *nesting) lock(ctx context.Context) (bool, error) {
	if err := n.changes.lock(ctx); err != nil {
		return false, err
	}
	if n.ended {
		n.changes.unlock()
		return false, nil
	}
	return true, nil
}

// nestedIn makes c a nested change of outer, unless outer is nil.
func (c *change) nestedIn(outer *change) *change {
	if outer != nil {
		c.inner.loadingOutside = map[string]*model{}
		maps.Copy(c.inner.loadingOutside, outer.inner.loadingOutside)
		maps.Copy(c.inner.loadingOutside, outer.loading)
	}
	return c
}

func (c *change) checkFree(key string) error {
	if m := c.inner.loadingOutside[key]; m != nil {
		return status.Reasonf(status.ModelNotReady, "model '%s' is itself being loaded", m.name)
	}
	return nil
}

// rebase merges what nested changes have published.
func (c *change) rebase() {
	now := c.r.catalog.Load()
	if now == c.inner.before {
		return
	}
	base := maps.Clone(c.base.models)
	for key, m := range now.models {
		if c.loading[key] == nil && c.inner.before.models[key] != m {
			base[key], c.next[key] = m, m
		}
	}
	c.base = newSnapshot(base, c.r.s.Namespacing)
}
