package repository

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/recovery"
)

var _ infer.Lifecycle = (*Repository)(nil)

// plainName reports whether a name can be the name of a folder directly in a repository.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00")
}

// control returns why models cannot be loaded or unloaded by name, or nil.
func (r *Repository) control() error {
	switch {
	case r.openErr != nil:
		return status.Reasonf(status.ServerNotReady, "Server not ready")
	case r.s.Mode != Explicit:
		return status.Reasonf(status.NotEnabled, "explicit model load / unload is not allowed if polling is enabled")
	}
	return nil
}

// checkName rejects names that no model can have. Surrounding blanks are ignored.
func checkName(name string) error {
	trimmed := strings.TrimSpace(name)
	switch {
	case trimmed == "":
		return status.Errorf(status.InvalidArg, "Model name cannot be empty. Please enter a valid name to deploy.")
	case !plainName(trimmed):
		return status.Errorf(status.InvalidArg, "invalid model name '%s', model name must not contain path traversal characters", name)
	}
	return nil
}

// beginChange acquires the lock for changes and returns the function that releases it. A model that loads other models
// from its own initialisation runs inside the change that loads it: outer is that change, whose lock it borrows.
func (r *Repository) beginChange(ctx context.Context) (outer *change, leave func(), err error) {
	if outer, _ = ctx.Value(outerKey{}).(*change); outer != nil && outer.r == r {
		if waits, err := outer.inner.lock(ctx); err != nil || waits {
			return outer, outer.inner.changes.unlock, err
		}
	}
	if err := r.changes.lock(ctx); err != nil {
		return nil, nil, err
	}
	if r.closed {
		r.changes.unlock()
		return nil, nil, &status.Error{Code: status.Unavailable, Reason: status.Draining, RetryAfter: infer.LeavingRetry, Msg: "the server is stopping, no model can be loaded or unloaded"}
	}
	return nil, r.changes.unlock, nil
}

// Load loads a model, and for an ensemble its models, unless they serve their current files already. Versions of
// which only the instances changed keep the instances that still fit. Ensembles that use a loaded model are
// compiled again. All of it takes effect in one step. If any part fails, nothing changes, the old versions continue
// to serve, and Index has the reason.
func (r *Repository) Load(ctx context.Context, name string, o infer.LoadOptions) (err error) {
	defer recovery.Error(&err, r.s.Log, "loading model '"+name+"'", slog.String("model", name))
	if err := r.control(); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	updates, err := r.load(ctx, name, o)
	if err != nil {
		return err
	}
	r.waitRemoved(ctx, updates)
	return r.loadEvicted(ctx, name)
}

// load is Load without waiting for removed instances: it returns the versions whose instances changed.
func (r *Repository) load(ctx context.Context, name string, o infer.LoadOptions) ([]*update, error) {
	// Buckets are listed before the lock is acquired: other changes do not wait for the network.
	r.source.listBuckets(ctx)
	if len(o.Files) == 0 {
		r.source.prefetch(ctx, r.source.findAll(name))
	}
	outer, leave, err := r.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	folders, err := r.source.fetch(ctx, name, o)
	if err != nil {
		r.s.Log.ErrorContext(ctx, "model cannot be loaded", slog.String("model", name), slog.String("reason", err.Error()))
		return nil, err
	}
	c := r.change(causeRequest).nestedIn(outer)
	if err := c.beginAll(ctx, folders); err != nil {
		c.cancel(ctx)
		return nil, err
	}
	for _, f := range folders {
		c.loadDependencies(ctx, f.key)
	}
	c.load(ctx)
	broken := c.compileAll(ctx)
	if ctx.Err() != nil {
		c.cancel(ctx)
		return nil, status.ErrCancelled
	}
	if err := c.firstError(folders, broken); err != nil {
		c.reject(ctx, name, err)
		return nil, err
	}
	c.commit(ctx)
	return c.updates, nil
}

// beginAll begins to load the models that do not serve their current files. A model that an outer change is loading
// is an error.
func (c *change) beginAll(ctx context.Context, folders []*folder) error {
	for _, f := range folders {
		err := c.checkFree(f.key)
		if err != nil || !c.current(f) {
			c.begin(ctx, f, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// current reports whether the folder's present state serves already, including under a configuration from an
// earlier load request, with all its instances: none was lost with its device. It marks the model as explicitly loaded.
func (c *change) current(f *folder) bool {
	m := c.base.models[f.key]
	if m == nil || !m.current(f.fingerprint) || f.override || slices.ContainsFunc(m.versions, func(v *version) bool { return len(v.lost) > 0 }) {
		return false
	}
	if !m.explicit {
		asked := *m
		asked.explicit = true
		c.next[f.key] = &asked
	}
	return true
}

// current reports whether every version serves and the folder still has this fingerprint.
func (m *model) current(fingerprint uint64) bool {
	return len(m.versions) > 0 && m.err == nil && m.fingerprint == fingerprint && fingerprint != 0
}

// firstError returns why the change must be rejected, or nil.
func (c *change) firstError(folders []*folder, broken []*model) error {
	for _, f := range folders {
		m := c.loading[f.key]
		if m == nil {
			continue
		}
		if m.folder.err != nil {
			return unreadable(m.name, m.folder.err)
		}
		if m.err != nil {
			return failedLoad(m.name, c.reason(m), m.err)
		}
	}
	for _, b := range broken {
		return status.Errorf(status.InvalidArg, "load failed for model '%s': %w\n", folders[0].name, b.err)
	}
	for _, other := range c.loading {
		if other.err != nil {
			return status.Errorf(status.InvalidArg, "load failed for model '%s': %w\n", other.name, errors.New(c.reason(other)))
		}
	}
	return nil
}

// failedLoad is Triton's error for a model that cannot be loaded, why because of err. It is one of the client, as in Triton, unless a disk is full.
func failedLoad(name, why string, err error) error {
	e := &status.Error{Code: status.InvalidArg, Msg: "load failed for model '" + name + "': " + why + "\n"}
	if diskfull.Is(err) {
		e.Code, e.Err, e.RetryAfter = status.CodeOf(err), err, status.RetryAfter(err)
	}
	return e
}

// reason returns why a model failed to load: one text for an ensemble, one per version for other models.
func (c *change) reason(m *model) string {
	if m.ensemble() || len(m.states) == 0 {
		return m.err.Error()
	}
	var b strings.Builder
	for _, l := range m.states {
		if err := c.failed[l]; err != nil { // a version that stays is READY
			b.WriteString("version " + strconv.FormatInt(l.number, 10) + " is at " + string(l.current.Load().state) + " state: " + err.Error() + ";")
		}
	}
	return b.String()
}

// Unload stops a model from accepting requests. A model that is not loaded, or unknown, is left as it is. Ensembles
// that use the model become unavailable. With dependents, the models of an ensemble are unloaded too, unless they
// were loaded by name or another ensemble uses them.
func (r *Repository) Unload(ctx context.Context, name string, dependents bool) (err error) {
	defer recovery.Error(&err, r.s.Log, "unloading model '"+name+"'", slog.String("model", name))
	if err := r.control(); err != nil {
		return err
	}
	outer, leave, err := r.beginChange(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c := r.change(causeRequest).nestedIn(outer)
	for _, key := range c.named(name) {
		if err := c.checkFree(key); err != nil {
			return err
		}
		c.unload(key)
		if dependents {
			c.unloadDependencies(key)
		}
	}
	if c.unloaded == nil {
		return nil
	}
	c.compileAll(ctx)
	c.commit(ctx)
	return nil
}

// named returns the keys of the loaded models with a name.
func (c *change) named(name string) []string {
	m := c.base.called[name]
	switch {
	case m == nil || !m.wanted:
		return nil
	case m.sharedBy == 0:
		return []string{m.key}
	}
	return slices.DeleteFunc(slices.Clone(c.base.keys), func(key string) bool { return nameOf(key) != name || !c.base.models[key].wanted })
}

func (c *change) unload(key string) {
	m := c.next[key]
	for _, l := range m.states {
		if l.is(infer.Unavailable) {
			l.set(infer.Unavailable, unloaded)
		}
	}
	c.next[key] = &model{key: m.key, name: m.name, folder: m.folder, states: m.states, fingerprint: m.fingerprint} // its versions retire
	c.unloaded = append(c.unloaded, key)
	if m.folder != nil && m.folder.overrideDir != nil && len(c.r.source.findAll(m.name)) == 0 {
		c.forgetOldest(key)
	}
}

// maxUnloaded is how many unloaded models stay in the index that came from requests and are in no repository. Names of clients must not
// fill the memory.
const maxUnloaded = 100

// forgetOldest counts an unloaded model that is in no repository, and removes those from the index that were unloaded before the last
// maxUnloaded.
func (c *change) forgetOldest(key string) {
	r := c.r
	r.forgettable = append(slices.DeleteFunc(r.forgettable, func(k string) bool { return k == key }), key)
	for len(r.forgettable) > maxUnloaded {
		if old := c.next[r.forgettable[0]]; old != nil && !old.wanted {
			delete(c.next, r.forgettable[0])
		}
		r.forgettable = r.forgettable[1:]
	}
}

// unloadDependencies unloads the models of an ensemble that were not loaded by name and that no other ensemble uses.
func (c *change) unloadDependencies(key string) {
	for _, part := range c.closure(key)[1:] {
		m := c.next[part]
		if m == nil || !m.wanted || m.explicit || c.inner.loadingOutside[part] != nil || c.isUsed(part) {
			continue
		}
		c.unload(part)
		c.unloadDependencies(part)
	}
}

func (c *change) isUsed(key string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.next)), func(m *model) bool {
		return m.wanted && slices.Contains(m.dependencies(&c.r.source, c.next), key)
	})
}

// Index lists every version of the models that are or were loaded, and the names of other models in the folders.
func (r *Repository) Index(ready bool) []infer.Entry {
	s := r.catalog.Load()
	keys := s.keys
	if !ready {
		keys = r.known(s)
	}
	return r.entries(s, keys, ready)
}

// Opened is Index without the models of which only the folder is known: it does not read the folders.
func (r *Repository) Opened() []infer.Entry {
	s := r.catalog.Load()
	return r.entries(s, s.keys, false)
}

// entries lists the versions of models.
func (r *Repository) entries(s *snapshot, keys []string, ready bool) []infer.Entry {
	list := make([]infer.Entry, 0, len(keys))
	for _, key := range keys {
		m, name := s.models[key], nameOf(key)
		if m == nil || len(m.states) == 0 {
			e := infer.Entry{Name: name}
			if m != nil && m.err != nil {
				e.State, e.Reason, e.Ensemble = infer.Unavailable, m.err.Error(), m.isEnsemble()
			}
			if !ready {
				list = append(list, e)
			}
			continue
		}
		for _, l := range m.states {
			if now := r.condition(m, l); !ready || now.state == infer.Ready {
				list = append(list, infer.Entry{Name: name, Version: strconv.FormatInt(l.number, 10), State: now.state, Reason: now.reason, Ensemble: m.isEnsemble()})
			}
		}
	}
	return list
}

// fetch returns the model as the options ask for it; with namespacing all models with the name. The caller must
// release an overrideDir once.
func (s *source) fetch(ctx context.Context, name string, o infer.LoadOptions) ([]*folder, error) {
	all := s.findAll(name)
	switch {
	case len(o.Files) > 0 && o.Config == "":
		return nil, failedToPoll(name, ": override files need an override of the configuration")
	case len(all) == 0 && len(o.Files) == 0:
		return nil, s.unknown(name)
	case o.Config == "":
		return s.openAll(ctx, all, 1), nil
	case len(all) > 1:
		return nil, (&model{name: name, sharedBy: len(all)}).ambiguous()
	}
	p := location{key: s.keyOf("", name), name: name}
	if len(all) > 0 {
		p = all[0]
	}
	f, err := s.override(ctx, p, o)
	return []*folder{f}, err
}

// override returns a model with the configuration, and files, of a load request.
func (s *source) override(ctx context.Context, p location, o infer.LoadOptions) (*folder, error) {
	cfg, err := config.ParseJSON(o.Config)
	if err != nil {
		return nil, unreadable(p.name, err)
	}
	f := &folder{key: p.key, name: p.name, dir: p.dir, cfg: cfg, override: true}
	if len(o.Files) == 0 && p.dir != "" { // the files serve with it until they change
		f.fingerprint = fingerprint(p)
	}
	if p.bucket != nil && len(o.Files) == 0 {
		if f.dir, err = p.bucket.fetch(ctx, p.name, p.objects); err != nil {
			return nil, unreadable(p.name, err)
		}
	}
	if len(o.Files) > 0 {
		if f.overrideDir, err = newOverrideDir(p.name, o.Files); err != nil {
			return nil, err
		}
		f.dir = f.overrideDir.dir
	}
	s.check(f, nil)
	return f, nil
}

// unknown returns the error for a name that no repository has, which is fs.ErrNotExist. If a bucket cannot be listed, that
// is the error.
func (s *source) unknown(name string) error {
	for _, m := range s.buckets {
		if err := m.err.Load(); err != nil {
			return failedToPoll(name, ": "+(*err).Error())
		}
	}
	err := failedToPoll(name, ": model not found in any model repository")
	return &status.Error{Code: status.CodeOf(err), Msg: err.Error(), Err: fs.ErrNotExist}
}

// unreadable is failedToPoll because of err. It keeps the code of an error that has a time to retry, as a full disk has.
func unreadable(name string, err error) error {
	e := failedToPoll(name, ": "+err.Error())
	if after := status.RetryAfter(err); after > 0 {
		return &status.Error{Code: status.CodeOf(err), Msg: e.Error(), Err: err, RetryAfter: after}
	}
	return e
}

// failedToPoll is Triton's error for a model that cannot be found or read.
func failedToPoll(name, why string) error {
	return status.Errorf(status.Internal, "failed to load '%s', failed to poll from model repository%s", name, why)
}
