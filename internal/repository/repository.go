package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/device"
)

// loadThreads is how many versions load at a time, Triton's default.
const loadThreads = 4

// Mode says who decides what is loaded once the repository is open.
type Mode uint8

// The control modes.
const (
	// Fixed, Triton's "none", serves what was there at the start.
	Fixed Mode = iota
	// Explicit serves what Load and Unload say.
	Explicit
	// Polled follows the folders.
	Polled
)

// Settings are what a Repository is opened with.
type Settings struct {
	// Roots are the folders that hold models, or the addresses of buckets.
	Roots []string
	// Cache is the folder that models from buckets are kept in; empty for what
	// TRITON_AWS_MOUNT_DIRECTORY and its kin say, else one in the user's cache.
	Cache string
	// OpenBucket opens the bucket at an address, nil for cloud.Open.
	OpenBucket func(ctx context.Context, address string) (cloud.Bucket, error)
	// BucketTimeout bounds how long a bucket may take to be listed, and how long none of
	// a model's bytes may come from it; 0 for a minute.
	BucketTimeout time.Duration
	// Progress, when not nil, is told how many bytes of a model are there while it is
	// fetched, instead of the log. It is called from several goroutines.
	Progress func(model string, done, total int64)
	Mode     Mode
	// Only, when not nil, names the models to load at the start; what an ensemble
	// among them is made of is loaded too. Nil loads every model.
	Only []string
	// Tolerant has Open succeed although a root cannot be read: the repository then has no
	// models and loads none, and Err says why. A name in Only that no root has is logged.
	Tolerant bool
	// PollInterval is how often a Polled repository looks at its folders; with 0
	// only Poll does.
	PollInterval time.Duration
	// ConfigName picks configs/NAME.pbtxt instead of config.pbtxt where a model has it.
	ConfigName string
	// LoadThreads is how many versions load at a time, 0 for Triton's default of 4.
	LoadThreads int
	// LoadRetries is how often a version that cannot be loaded is tried again.
	LoadRetries int
	// StrictConfig refuses a configuration that leaves inputs or outputs out, where
	// otherwise the model's own are taken.
	StrictConfig bool
	// StrictEnsembleConfig reads ensembles as Triton does: they declare what their
	// steps could tell.
	StrictEnsembleConfig bool
	// StrictParams refuses parameters of models that nobody reads, where otherwise the log has a warning.
	StrictParams bool
	// GPUFallback runs on the CPU what asks for GPUs that are not there.
	GPUFallback bool
	// Namespacing makes every root a namespace of its own, so that models in several
	// may have one name. An ensemble looks for its models in its own first.
	Namespacing bool

	// Devices are the places besides the host at which instances may be.
	Devices []tensor.Place
	// Limits say what may execute at a time.
	Limits device.Settings
	// HostPolicies bind instances to parts of the machine, by the policy's name.
	HostPolicies map[string]*device.Policy
	// DelayScheduler is how many requests a batcher waits for before its first
	// batch, 0 for none: a test hook.
	DelayScheduler int
	// BacklogDelayScheduler is how many requests must be without a slot before the first
	// batch of a model of sequences, 0 for none: a test hook.
	BacklogDelayScheduler int

	Backends *backends.Registry
	// BackendConfig holds --backend-config values by backend name.
	BackendConfig map[string]map[string]string
	Alloc         tensor.Allocator
	// Responses keeps the answers of models with response_cache; nil keeps none. It is
	// closed by whoever made it, after the repository.
	Responses cache.Cache
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	// Tracer chooses the requests to trace; nil traces none.
	Tracer *tracing.Tracer

	_ struct{}
}

// Repository holds every known model. Requests read a snapshot of what serves
// without a lock; changes are made one after the other.
type Repository struct {
	s        Settings
	source   source
	workers  *scheduler.Workers
	places   *tensor.Places
	mover    *scheduler.Mover
	arbiter  *device.Arbiter
	catalog  atomic.Pointer[snapshot]
	openErr  error             // see Err; set before anything is served
	retiring scheduler.Pending // versions that wait for their last requests
	loads    atomic.Uint64     // counts loaded versions, for the keys of kept answers

	// turn is taken by who changes the repository.
	changes changeLock
	closed  bool              // guarded by turn
	seen    map[string]uint64 // fingerprints of the last look, guarded by turn

	stop    context.CancelFunc // ends polling
	polling sync.WaitGroup

	mu          sync.Mutex
	opened      map[string]backends.Backend // guarded by mu
	closeErrors []error                     // of closing, guarded by mu
}

// brought returns the devices that backends bring.
func (s *Settings) backendDevices() []tensor.Place {
	var list []tensor.Place
	for _, name := range s.Backends.Names() {
		if f := s.Backends.ByName(name); f.Devices != nil {
			list = append(list, f.Devices(s.BackendConfig[name])...)
		}
	}
	return list
}

// Open finds and loads the models. A model that cannot be loaded is unavailable and
// does not keep the others from serving; Failures tells which. The error is about
// the repository as a whole: a folder that cannot be read, a name that is not there. A
// tolerant repository is returned nevertheless.
func Open(ctx context.Context, s Settings) (*Repository, error) {
	s.Devices = append(slices.Clone(s.Devices), s.backendDevices()...)
	s.Limits.Log = s.Log
	r := &Repository{
		s: s, source: source{
			roots: slices.DeleteFunc(slices.Clone(s.Roots), cloud.Is), spaces: s.namespaces(), configName: s.ConfigName,
			options: config.Options{StrictEnsembleConfig: s.StrictEnsembleConfig, NoAutoComplete: s.StrictConfig, GPUFallback: s.GPUFallback, Devices: s.Devices, Params: s.Backends.Params, StrictParams: s.StrictParams},
			log:     s.Log,
		}, workers: scheduler.NewWorkers(), arbiter: device.New(s.Limits),
		changes: make(changeLock, 1), opened: map[string]backends.Backend{}, seen: map[string]uint64{}, stop: func() {},
	}
	r.places = tensor.NewPlaces(s.Alloc)
	r.mover = scheduler.NewMover(r.places)
	r.workers.Recover(s.Log)
	s.Metrics.Pinned(r.places.PinnedUsage)
	r.catalog.Store(newSnapshot(map[string]*model{}, false))
	for _, root := range s.Roots {
		if !cloud.Is(root) {
			continue
		}
		m, err := r.newBucketRoot(ctx, root)
		if err != nil {
			r.workers.Close()
			return nil, err
		}
		r.source.buckets = append(r.source.buckets, m)
	}
	if err := r.start(ctx); err != nil {
		if s.Tolerant {
			s.Log.ErrorContext(ctx, "no model is served", slog.String("reason", err.Error()))
			r.openErr = err
			return r, nil
		}
		r.workers.Close()
		return nil, err
	}
	r.prune(ctx)
	if s.Mode == Polled && s.PollInterval > 0 {
		r.watch(context.WithoutCancel(ctx))
	}
	return r, nil
}

// start loads the models that are wanted from the start.
func (r *Repository) start(ctx context.Context) error {
	r.source.listBuckets(ctx)
	places, err := r.source.locations()
	if err != nil {
		return err
	}
	c := r.change()
	if r.s.Only == nil {
		for _, f := range r.source.openAll(ctx, places, r.loadThreads()) {
			c.begin(ctx, f, true)
		}
	}
	for _, name := range r.s.Only {
		if err := c.beginNamed(ctx, places, name); err != nil && !r.s.Tolerant {
			return err
		} else if err != nil {
			r.s.Log.ErrorContext(ctx, "model cannot be loaded", slog.String("model", name), slog.String("reason", err.Error()))
		}
	}
	for _, key := range slices.Collect(maps.Keys(c.loading)) {
		c.loadDependencies(ctx, key)
	}
	for key, m := range c.loading {
		r.seen[key] = m.fingerprint
	}
	c.load(ctx)
	c.compileOrRevert(ctx)
	c.commit(ctx)
	return nil
}

// beginNamed has the models of a name loaded, with namespacing all of them, from places that
// are sorted by key.
func (c *change) beginNamed(ctx context.Context, places []location, name string) error {
	source := &c.r.source
	i, found := slices.BinarySearchFunc(places, name, func(p location, name string) int { return strings.Compare(p.name, name) })
	if !found {
		return source.unknown(name)
	}
	for ; i < len(places) && places[i].name == name; i++ {
		c.begin(ctx, source.open(ctx, places[i]), true)
	}
	return nil
}

// Err returns why a tolerant repository serves no models at all, or nil.
func (r *Repository) Err() error { return r.openErr }

// publish makes models what is served, in one step. Versions that are no longer
// among them retire.
func (r *Repository) publish(ctx context.Context, models map[string]*model) {
	old, next := r.catalog.Load(), newSnapshot(models, r.s.Namespacing)
	r.catalog.Store(next)
	for key, now := range next.models {
		if now == old.models[key] {
			continue
		}
		now.overrideDir().retain()
		for _, v := range now.versions {
			r.s.Metrics.Add(v.stats)
		}
	}
	for key, was := range old.models {
		if now := next.models[key]; now != was {
			r.releaseModel(ctx, was, now)
		}
	}
}

// leave lets go of what a model had and its successor, nil when there is none, has not.
func (r *Repository) releaseModel(ctx context.Context, was, now *model) {
	var versions []*version
	if now != nil {
		versions = now.versions
	}
	for _, v := range was.versions {
		if !slices.ContainsFunc(versions, func(x *version) bool { return x.stats == v.stats }) {
			r.s.Metrics.Remove(v.stats)
		}
		if !slices.Contains(versions, v) {
			r.retire(ctx, v)
		}
	}
	if err := was.overrideDir().release(); err != nil {
		r.s.Log.ErrorContext(ctx, "removing override files failed", slog.String("model", was.name), slog.String("error", err.Error()))
	}
}

// retire has a version take no more requests and closes it when the last one is
// answered and no ensemble uses it.
func (r *Repository) retire(ctx context.Context, v *version) {
	v.state.set(infer.Unloading, "")
	v.exec.Retire()
	v.flush()
	r.retiring.Add(1)
	ctx = context.WithoutCancel(ctx) // whoever unloads does not wait
	go func() {
		if err := r.finish(ctx, v); err != nil {
			r.closeFailed(ctx, v, err)
		}
		v.state.set(infer.Unavailable, unloaded)
		r.retiring.Add(-1)
	}()
}

// finish closes a version when nothing uses it any more.
func (r *Repository) finish(ctx context.Context, v *version) (err error) {
	defer recovery.Error(&err, r.s.Log, "closing model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	err = v.users.Wait(ctx)
	if v.queue != nil { // its sequences need not wait for requests any more that cannot come
		err = errors.Join(err, v.queue.Drain(ctx))
	}
	return errors.Join(err, v.exec.Drain(ctx), v.close(ctx))
}

// fault logs what a version, or an instance of it, could not be closed for.
func (r *Repository) closeFailed(ctx context.Context, v *version, err error) {
	r.s.Log.ErrorContext(ctx, "closing a model failed", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version), slog.String("error", err.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeErrors = append(r.closeErrors[:min(len(r.closeErrors), maxCloseErrors)], err)
}

// maxFaults bounds what is remembered for Close to tell.
const maxCloseErrors = 16

// Failure is a model that does not serve.
type Failure struct {
	Model string
	Dir   string
	Err   error
}

// Failures returns the models of which a wanted version does not serve, by name.
func (r *Repository) Failures() []Failure {
	var list []Failure
	s := r.catalog.Load()
	for _, key := range s.keys {
		if m := s.models[key]; m.err != nil {
			list = append(list, Failure{Model: m.name, Dir: m.folder.dir, Err: m.err})
		}
	}
	for _, m := range r.source.buckets {
		if err := m.err.Load(); err != nil {
			list = append(list, Failure{Model: m.address, Dir: m.address, Err: *err})
		}
	}
	return list
}

// Folder returns the folder that a model was found in, and that of a second model of
// its name.
func (r *Repository) Folder(name string) (dir, twin string) {
	all := r.source.findAll(name)
	if len(all) == 0 {
		return "", ""
	}
	return all[0].dir, all[0].duplicate
}

// Check returns every problem that a model's configuration shows by itself, for
// reporting all at once what loading reports one at a time.
func (r *Repository) Check(name string) []error {
	if m := r.catalog.Load().called[name]; m != nil && m.folder.cfg != nil {
		return config.CheckWith(m.folder.cfg, &r.source.options)
	}
	return nil
}

// Models returns the names of all models that are or were loaded, sorted.
func (r *Repository) Models() []string {
	keys := r.catalog.Load().keys
	var names []string
	for _, key := range keys {
		names = append(names, nameOf(key))
	}
	return slices.Compact(names)
}

// Hurry has no batch wait for more requests from now on: the server is about to end.
func (r *Repository) Flush() {
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			v.flush()
		}
	}
}

// Busy returns how many versions have requests that are not answered.
func (r *Repository) Busy() (n int) {
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			if v.exec.Busy() {
				n++
			}
		}
	}
	return n
}

// hurry does so for one version.
func (v *version) flush() {
	if v.queue != nil {
		scheduler.Flush(v.queue)
	}
}

// Close waits until the requests under way are answered, or ctx is over, and frees
// everything. The front ends have stopped sending requests before. After an error it
// may be called again.
func (r *Repository) Close(ctx context.Context) error {
	r.stop()
	if err := r.changes.lock(ctx); err != nil {
		return fmt.Errorf("the repository is being changed: %w", ctx.Err())
	}
	defer r.changes.unlock()
	r.closed = true
	r.polling.Wait() // it can only be waiting for its turn, in vain
	r.publish(ctx, map[string]*model{})
	if err := r.retiring.Wait(ctx); err != nil {
		return fmt.Errorf("requests are still under way: %w", err)
	}
	r.workers.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := r.closeErrors
	r.closeErrors = nil
	errs = append(errs, r.mover.Close())
	for name, b := range r.opened {
		errs = append(errs, b.Close())
		delete(r.opened, name)
	}
	return errors.Join(errs...)
}
