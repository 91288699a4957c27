package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tempfolder"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/device"
)

// Repository holds every known model. All methods are safe for concurrent use: requests read the current snapshot
// without a lock, and changes run one after the other.
type Repository struct {
	s        Settings
	source   source
	workers  *scheduler.Workers
	places   *tensor.Places
	mover    *batch.Mover
	arbiter  *device.Arbiter
	memory   *memory // nil: no model is evicted
	catalog  atomic.Pointer[snapshot]
	openErr  error         // why the repository could not be opened; set before anything is served
	retiring pending.Count // versions that wait for their last requests
	loads    atomic.Uint64 // counts loaded versions, for the keys of cached responses
	prints   prints
	journal  journal // of what is loaded and unloaded

	changes changeLock        // held by the change in progress
	closed  bool              // guarded by changes
	seen    map[string]uint64 // fingerprints at the last poll, guarded by changes
	// forgettable has the keys of unloaded models that came from requests and are in no repository, oldest first; guarded by changes
	forgettable []string

	stop    context.CancelFunc // ends polling
	polling sync.WaitGroup

	mu          sync.Mutex
	opened      map[string]backends.Backend // guarded by mu
	closeErrors []error                     // errors of closing versions, guarded by mu
}

// Open finds and loads the models. A model that fails to load is unavailable and does not affect the others; see
// Failures. Open fails when a root cannot be read, or a name in Settings.Only is unknown, unless the settings are
// Tolerant.
func Open(ctx context.Context, s Settings) (*Repository, error) {
	tempfolder.RemoveStale(os.TempDir(), overridePrefix, nil)
	places := tensor.NewPlaces(s.Alloc)
	for _, d := range s.Accelerators {
		if err := places.Add(d); err != nil {
			return nil, err
		}
	}
	if s.Pinned != nil {
		places.SetPinned(s.Pinned)
	}
	s.Backends = s.Backends.Configured(s.BackendConfig)
	known := places.Devices()
	for _, name := range s.Backends.Names() {
		if f := s.Backends.ByName(name); f.Devices != nil {
			known = append(known, f.Devices(s.BackendConfig[name])...)
		}
	}
	auto := func(backend string) config.Auto { return s.Backends.Auto(backend, s.BackendConfig[backend]) }
	s.Limits.Log = s.Log
	s.LoadThreads = cmp.Or(max(s.LoadThreads, 0), 4)
	r := &Repository{
		s: s, source: source{
			roots: slices.DeleteFunc(slices.Clone(s.Roots), cloud.Is), spaces: s.namespaces(), configName: s.ConfigName,
			options: config.Options{StrictEnsembleConfig: s.StrictEnsembleConfig, NoAutoComplete: s.StrictConfig, GPUFallback: s.GPUFallback, Devices: known, Auto: auto, Params: s.Backends.Params, StrictParams: s.StrictParams},
			log:     s.Log, noGPU: s.NoAccelerator,
		}, workers: scheduler.NewWorkers(), arbiter: device.New(s.Limits),
		changes: make(changeLock, 1), opened: map[string]backends.Backend{}, seen: map[string]uint64{}, stop: func() {},
	}
	r.places = places
	r.mover = batch.NewMover(r.places)
	if s.EvictIdle {
		r.memory = &memory{r: r, loads: map[tensor.Place]*semaphore.Weighted{}}
	}
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
	r.watchDevices(context.WithoutCancel(ctx))
	r.prune(ctx)
	if s.Mode == Polled && s.PollInterval > 0 {
		r.watch(context.WithoutCancel(ctx))
	}
	return r, nil
}

func (r *Repository) start(ctx context.Context) error {
	r.source.listBuckets(ctx)
	places, err := r.source.locations()
	if err != nil {
		return err
	}
	c := r.change(causeStart)
	if r.s.Only == nil {
		for _, f := range r.source.openAll(ctx, places, r.s.LoadThreads) {
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

// beginNamed begins to load the models with a name: one, or with namespacing all of them. The locations are sorted
// by key.
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

// Err returns why a tolerant repository serves no models, or nil.
func (r *Repository) Err() error { return r.openErr }

// MissingGPU returns why no GPU is used, although a model asks for one; nil if none does, or there are GPUs.
func (r *Repository) MissingGPU() error {
	if r.source.gpuMissed.Load() {
		return r.source.noGPU
	}
	return nil
}

// ReleaseIdle ends the workers of the schedulers that nothing has used since the last call.
func (r *Repository) ReleaseIdle() { r.workers.ReleaseIdle() }

// Failure is a model, or a bucket, that failed to load.
type Failure struct {
	Model string
	Dir   string
	Err   error
}

// Failures returns the models with a version that failed to load, sorted by name, and the buckets that cannot be
// listed.
func (r *Repository) Failures() []Failure {
	var list []Failure
	s := r.catalog.Load()
	for _, key := range s.keys {
		if m := s.models[key]; m.err != nil {
			list = append(list, Failure{Model: m.name, Dir: m.folder.dir, Err: m.err})
		}
	}
	return append(list, r.LostBuckets()...)
}

// LostBuckets returns the buckets whose last listing failed.
func (r *Repository) LostBuckets() (list []Failure) {
	for _, m := range r.source.buckets {
		if err := m.err.Load(); err != nil {
			list = append(list, Failure{Model: m.address, Dir: m.address, Err: *err})
		}
	}
	return list
}

// Folder returns the folder of a model. duplicate is the folder of a second model with the same name, or empty.
func (r *Repository) Folder(name string) (dir, twin string) {
	all := r.source.findAll(name)
	if len(all) == 0 {
		return "", ""
	}
	return all[0].dir, all[0].duplicate
}

// Check returns every problem in a model's configuration. Loading stops at the first one.
func (r *Repository) Check(name string) []error {
	if m := r.catalog.Load().called[name]; m != nil && m.folder.cfg != nil {
		return config.CheckWith(m.folder.cfg, &r.source.options)
	}
	return nil
}

// Models returns the names of all models that are or were loaded, sorted.
func (r *Repository) Models() []string { return namesOf(r.catalog.Load().keys) }

// Flush executes queued requests now instead of waiting for fuller batches, from now on. The server calls it when
// it shuts down.
func (r *Repository) Flush() {
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			v.flush()
		}
	}
}

// EndCopies cancels the copies of requests that shadows execute. The server calls it when it shuts down.
func (r *Repository) EndCopies() {
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			v.exec.EndCopies()
		}
	}
}

// Busy returns the number of versions with requests in flight.
func (r *Repository) Busy() (n int) {
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			if v.exec.InFlight() > 0 {
				n++
			}
		}
	}
	return n
}

// Requests returns how many requests wait for an instance now, and how many others have not ended. A request to an
// ensemble is one, also while several of its steps wait.
func (r *Repository) Requests() (queued, running int64) {
	total := int64(0)
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			total += v.exec.InFlight()
			queued += v.stats.Pending()
		}
	}
	queued = min(queued, total)
	return queued, total - queued
}

// Loads returns how much each version has to do.
func (r *Repository) Loads() (list []infer.ModelLoad) {
	for _, m := range r.catalog.Load().models {
		for _, v := range m.versions {
			l := v.load()
			list = append(list, infer.ModelLoad{Model: v.sig.Model, Version: v.sig.Version, Queued: v.stats.Pending(), Running: l.Running, Wait: l.Wait, Utilization: l.Utilization})
		}
	}
	return list
}

// load measures how much the version has to do.
func (v *version) load() (l telemetry.Load) {
	l.Wait, l.Utilization = v.exec.Load()
	l.Running = max(v.exec.InFlight()-v.stats.Pending(), 0)
	return l
}

func (v *version) flush() {
	if v.queue != nil {
		scheduler.Flush(v.queue)
	}
}

// Close waits until all requests are complete, or ctx is done, and frees everything. The front ends must have
// stopped sending requests. After an error Close may be called again.
func (r *Repository) Close(ctx context.Context) error {
	r.stop()
	if err := r.changes.lock(ctx); err != nil {
		return fmt.Errorf("the repository is being changed: %w", ctx.Err())
	}
	defer r.changes.unlock()
	r.closed = true
	r.polling.Wait() // it can only be waiting for the lock, and fails then
	r.publish(ctx, map[string]*model{})
	if err := r.retiring.Wait(ctx); err != nil {
		return fmt.Errorf("requests are still under way: %w", err)
	}
	r.workers.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := r.closeErrors
	r.closeErrors = nil
	errs = append(errs, r.closeWarning(ctx, r.mover.Close(), nil))
	for name, b := range r.opened {
		errs = append(errs, r.closeWarning(ctx, b.Close(), r.places.Devices(), slog.String("backend", name)))
		delete(r.opened, name)
	}
	return errors.Join(errs...)
}
