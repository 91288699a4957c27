package repository

import (
	"cmp"
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

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/device"
)

// Mode selects who decides which models are loaded after the start.
type Mode uint8

// The control modes.
const (
	// Fixed serves the models found at the start: Triton's model control mode "none".
	Fixed Mode = iota
	// Explicit serves the models that Load and Unload select.
	Explicit
	// Polled follows changes of the folders.
	Polled
)

// Settings configure a Repository.
type Settings struct {
	Build string // identifies the code of the native steps, for Fingerprint. For example, the version of the server.
	// Roots are folders that hold models, or addresses of buckets. For example, "/models" or "s3://bucket/models".
	Roots []string
	// Cache is the folder for models from buckets. Empty: the folder of TRITON_AWS_MOUNT_DIRECTORY,
	// TRITON_GCS_MOUNT_DIRECTORY or TRITON_AZURE_MOUNT_DIRECTORY, else a folder in the user's cache.
	Cache string
	// OpenBucket opens the bucket at an address. Nil: cloud.Open.
	OpenBucket func(ctx context.Context, address string) (cloud.Bucket, error)
	// BucketTimeout is the limit for listing a bucket, and for a download without a received byte. 0: one minute.
	BucketTimeout time.Duration
	// Progress receives the downloaded and the total bytes of a model, in place of the log. It must be safe for
	// concurrent use. Optional.
	Progress func(model string, done, total int64)
	Mode     Mode
	// Only names the models to load at the start. The models of an ensemble among them are loaded too. Nil loads
	// every model.
	Only []string
	// Tolerant makes Open succeed when a root cannot be read. The repository then serves no models and Err returns
	// the reason. A name in Only that no root holds is logged.
	Tolerant bool
	// PollInterval is the time between two looks at the folders in mode Polled. 0: only Poll looks.
	PollInterval time.Duration
	ConfigName   string // selects configs/NAME.pbtxt over config.pbtxt in models that have it
	LoadThreads  int    // the number of versions that load concurrently. 0: 4, as in Triton.
	LoadRetries  int    // the number of further attempts after a version fails to load
	// StrictConfig rejects a configuration without inputs or outputs. Otherwise the model's own are used.
	StrictConfig bool
	// StrictEnsembleConfig requires ensembles to declare inputs and outputs, as Triton does. Otherwise they are
	// derived from the steps.
	StrictEnsembleConfig bool
	// StrictParams rejects model parameters that nothing reads. Otherwise they are logged as a warning.
	StrictParams bool
	GPUFallback  bool // runs KIND_GPU instances on the CPU when the machine lacks the GPU
	// Namespacing makes each root a namespace, so that models in different roots may share a name. An ensemble
	// looks for its models in its own namespace first.
	Namespacing bool

	// Accelerators are the devices where instances may execute. Backends may add others. The caller closes them after the
	// repository. NoAccelerator is why there are none, for the log if a model asks for one.
	Accelerators  []tensor.Accelerator
	NoAccelerator error
	Pinned        tensor.Allocator // pinned memory for copies to and from devices; nil for none
	// Room returns why no further instance may be made at a device, or nil. Optional.
	Room func(at tensor.Place) error
	// EvictIdle makes room at a full device by unloading the models there that have been idle longest. They serve on: the next request
	// loads them again. Otherwise a load that does not fit fails.
	EvictIdle bool
	// Residence is how long a model stays loaded at least while it has requests, before others get its place. 0: one second.
	Residence time.Duration
	Limits    device.Settings // bound what executes concurrently
	// HostPolicies bind instances to CPUs and NUMA nodes, by the name of the policy.
	HostPolicies map[string]*device.Policy
	// DelayScheduler makes a batcher wait for this many requests before its first batch. 0: no wait. For tests, as
	// Triton's TRITONSERVER_DELAY_SCHEDULER.
	DelayScheduler int
	// BacklogDelayScheduler makes a sequence batcher wait until this many requests have no slot before its first
	// batch. 0: no wait. For tests.
	BacklogDelayScheduler int

	Backends *backends.Registry
	// BackendConfig holds the values of --backend-config by backend name.
	BackendConfig map[string]map[string]string
	Alloc         tensor.Allocator
	// Responses stores responses of models with response_cache. Nil: no cache. The caller closes it after the
	// repository.
	Responses cache.Cache
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	Tracer    *tracing.Tracer // selects the requests to trace. Nil: none.

	_ struct{}
}

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

	changes changeLock        // held by the change in progress
	closed  bool              // guarded by changes
	seen    map[string]uint64 // fingerprints at the last poll, guarded by changes

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
	c := r.change()
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

// publish makes models the snapshot that serves. Versions that are not in it retire.
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

// releaseModel releases what the old model holds and its successor does not. The successor may be nil.
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

// retire stops a version from accepting requests and closes it, in the background, when its last request is
// complete and no ensemble uses it.
func (r *Repository) retire(ctx context.Context, v *version) {
	v.state.set(infer.Unloading, "")
	v.exec.Retire()
	v.flush()
	r.retiring.Add(1)
	ctx = context.WithoutCancel(ctx) // closing continues after the unload request has its response
	go func() {
		if err := r.finish(ctx, v); err != nil {
			r.closeFailed(ctx, v, err)
		}
		v.state.set(infer.Unavailable, unloaded)
		r.retiring.Add(-1)
	}()
}

// finish waits until a version is unused, and closes it.
func (r *Repository) finish(ctx context.Context, v *version) (err error) {
	defer recovery.Error(&err, r.s.Log, "closing model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	err = v.users.Wait(ctx)
	if v.queue != nil { // open sequences can get no further requests: Drain ends them
		err = errors.Join(err, v.queue.Drain(ctx))
	}
	return errors.Join(err, v.exec.Drain(ctx), v.close(ctx))
}

// closeFailed logs an error of closing a version or an instance, and keeps it for Close unless it comes of a lost device.
func (r *Repository) closeFailed(ctx context.Context, v *version, err error) {
	if err = r.closeWarning(ctx, err, v.places, slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version)); err == nil {
		return
	}
	r.s.Log.ErrorContext(ctx, "closing a model failed", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version), slog.String("error", err.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeErrors = append(r.closeErrors[:min(len(r.closeErrors), maxCloseErrors)], err)
}

// maxCloseErrors is the number of errors that Close returns at most.
const maxCloseErrors = 16

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
