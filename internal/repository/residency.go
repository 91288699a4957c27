package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/evictable"
)

// residency loads and evicts the model of a version while the version serves: its signature, its statistics and the plans of ensembles
// over it stay, its scheduler, instances and model come and go. Requests wait in gate while it is not loaded.
//
// Lifecycle: newResidency with the loaded model; any number of evict and reload; close. op orders them.
type residency struct {
	r      *Repository
	v      *version
	f      *folder
	gate   *evictable.Scheduler
	places []tensor.Place // those at devices
	state  atomic.Pointer[residentState]

	op     sync.Mutex          // held while the model is evicted, loaded or closed
	inner  scheduler.Scheduler // nil while it is not loaded; guarded by op
	closed bool                // guarded by op

	use sync.RWMutex // held for reading while v.model is asked whether it is ready

	ensembles []*version // that use the version, guarded by memory.mu

	wants    sync.Mutex
	loading  bool // reload runs; guarded by wants
	failures int  // loads that failed in a row; guarded by wants
	reloads  sync.WaitGroup
}

// residentState says whether the model is loaded, since when on the clock of telemetry.Now, and the reason if it is not.
type residentState struct {
	loaded bool
	at     int64
	reason string
}

// The wait before a load that failed is tried again for the next request doubles with each failure.
const (
	firstBackoff = 100 * time.Millisecond
	longBackoff  = 5 * time.Second
)

// newResidency returns the residency of a version that has instances at devices and can be evicted, and nil for any other. Models with
// sequences stay, because their state is with their instances, and native steps, which have no weights.
func (r *Repository) newResidency(f *folder, v *version, inner scheduler.Scheduler) *residency {
	places := onDevices(v.instances.places())
	if r.memory == nil || len(places) == 0 || v.cfg.GetSequenceBatching() != nil || native(v) {
		return nil
	}
	x := &residency{r: r, v: v, f: f, places: places, inner: inner}
	x.gate = evictable.New(evictable.Settings{Inner: inner, Wanted: x.wanted, Stats: v.stats, Workers: r.workers})
	x.state.Store(&residentState{loaded: true, at: telemetry.Now()})
	return x
}

// busy reports whether a request of the model is in flight.
func (x *residency) busy() bool { return x.gate.InFlight() > 0 || x.v.exec.Busy() }

// reason returns why the model is not loaded, "" if it is. x may be nil.
func (x *residency) reason() string {
	if x == nil {
		return ""
	}
	return x.state.Load().reason
}

// evict closes the model unless it is in use; new requests wait meanwhile. Of a busy candidate it first waits for those in flight. It
// reports whether the model has left its devices.
func (c *candidate) evict(ctx context.Context, key string, at []tensor.Place) bool {
	x := c.residency
	if !x.op.TryLock() {
		return false
	}
	defer x.op.Unlock()
	if x.inner == nil || x.closed {
		return false
	}
	idle := telemetry.Now() - x.gate.Used()
	x.gate.Suspend() //nolint:contextcheck // it does not block
	if !x.unused(ctx, c.idle, key) {
		x.gate.Resume(x.inner)
		return false
	}
	x.unload(ctx, time.Duration(idle), at)
	return true
}

// unused reports whether a suspended model has no request in flight, and no ensemble has one that needs it.
func (x *residency) unused(ctx context.Context, idle bool, key string) bool {
	if x.r.memory.pinnedBy(x, key) != "" || idle && (x.v.exec.Busy() || x.inner.InFlight() > 0) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	scheduler.Flush(x.inner)
	return x.inner.Drain(ctx) == nil
}

// unload closes a suspended model without requests in flight. The caller holds op.
func (x *residency) unload(ctx context.Context, idle time.Duration, at []tensor.Place) {
	x.use.Lock()
	defer x.use.Unlock()
	v := x.v
	if err := x.closeLoaded(ctx); err != nil {
		x.r.closeFailed(ctx, v, err)
	}
	reason := fmt.Sprintf("evicted from %s after %s idle; loads again on its next request", placeNames(x.places), idle.Round(time.Millisecond))
	x.state.Store(&residentState{reason: reason})
	v.stats.Evictions.Add(1)
	x.note("evicted", causeMemory, "", 0)
	x.r.s.Log.InfoContext(ctx, "model evicted to make room", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version),
		slog.String("device", at[0].String()), slog.Duration("idle", idle))
}

// closeLoaded closes the scheduler, the instances and the model. The caller holds op and use.
func (x *residency) closeLoaded(ctx context.Context) (err error) {
	v := x.v
	defer recovery.Error(&err, x.r.s.Log, "evicting model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	inner := x.inner
	x.inner = nil
	err = v.closeModel(ctx, inner)
	v.instances, v.model, v.holders, v.watch = nil, nil, nil, nil
	return err
}

// wanted starts to load the model, unless that is under way. ctx is that of the request that waits for it.
func (x *residency) wanted(ctx context.Context) {
	x.wants.Lock()
	defer x.wants.Unlock()
	if x.loading {
		return
	}
	x.loading = true
	ctx = context.WithoutCancel(ctx) // others may wait for the load, too
	x.reloads.Go(func() { x.reload(ctx) })
}

// reload loads the model as long as requests wait for it. When a load fails, those that wait fail too, and the next one has the model
// loaded after a short wait.
func (x *residency) reload(ctx context.Context) {
	for {
		x.wants.Lock()
		if x.gate.Held() == 0 {
			x.loading = false
			x.wants.Unlock()
			return
		}
		failures := x.failures
		x.wants.Unlock()
		if failures > 0 {
			<-time.After(min(longBackoff, firstBackoff<<min(failures-1, 10)))
		}
		err := x.load(ctx, func() bool { return x.gate.Held() > 0 })
		x.wants.Lock()
		if x.failures++; err == nil {
			x.failures = 0
		}
		x.wants.Unlock()
		if err != nil {
			x.gate.Fail(err)
		}
	}
}

// load loads the model if it is not loaded and needed returns true, and passes the waiting requests on.
func (x *residency) load(ctx context.Context, needed func() bool) (err error) {
	x.op.Lock()
	defer x.op.Unlock()
	v := x.v
	if x.inner != nil || !needed() {
		return nil
	}
	began := telemetry.Now()
	if x.closed {
		err = errors.New("it is unloaded")
	} else {
		err = x.r.memory.fit(ctx, v.key, x.places, x.open)
	}
	if err != nil {
		x.r.s.Metrics.LoadFailed()
		x.note("failed", causeWanted, status.Text(err), telemetry.Now()-began)
		err = status.Reasonf(status.ModelNotReady, "model '%s' was evicted and cannot be loaded again: %w", v.sig.Model, err)
		x.r.s.Log.ErrorContext(ctx, "an evicted model cannot be loaded again", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version), slog.String("reason", err.Error()))
		return err
	}
	took := telemetry.Now() - began
	v.stats.LoadNs.Store(took)
	v.stats.Reloads.Add(1)
	x.note("loaded again", causeWanted, "", took)
	x.gate.Resume(x.inner)
	x.r.s.Log.InfoContext(ctx, "evicted model loaded again", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version), slog.Duration("took", time.Duration(took)))
	return nil
}

// open loads the model from its folder, as loadVersion does for a new version, and takes its parts over. The caller holds op.
func (x *residency) open(ctx context.Context) (err error) {
	v := x.v
	defer recovery.Error(&err, x.r.s.Log, "loading model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	again := *x.f
	again.reload = true
	now, err := x.r.loadVersion(ctx, &again, v.sig.Version, v.stats)
	if err != nil {
		return err
	}
	if !samePorts(v, now) {
		err := status.Reasonf(status.ModelNotReady, "its inputs, outputs or configuration have changed since: load the model again")
		return errors.Join(err, now.close(ctx))
	}
	x.use.Lock()
	defer x.use.Unlock()
	v.model, v.instances, v.holders, v.watch, x.inner = now.model, now.instances, now.holders, now.watch, now.queue
	x.state.Store(&residentState{loaded: true, at: telemetry.Now()}) // before other loads look for room
	return now.overrideDir.release()
}

// samePorts reports whether a model that was loaded again has the same configuration, which includes its inputs and outputs, and places.
func samePorts(v, now *version) bool {
	return proto.Equal(v.cfg, now.cfg) && slices.Equal(v.places, now.places)
}

// ready asks a loaded model whether it is ready. An evicted one is: it loads with its next request.
func (x *residency) ready() error {
	if !x.use.TryRLock() { // it is being evicted or loaded
		return nil
	}
	defer x.use.RUnlock()
	if m, ok := x.v.model.(backends.ReadinessChecker); ok {
		return m.Ready()
	}
	return nil
}

// close closes the model if it is loaded. No request may follow.
func (x *residency) close(ctx context.Context) error {
	x.reloads.Wait()
	x.op.Lock()
	defer x.op.Unlock()
	defer x.r.memory.remove(x) // until then it takes room
	if x.closed = true; x.inner == nil {
		return nil
	}
	x.use.Lock()
	defer x.use.Unlock()
	return x.closeLoaded(ctx)
}

// placeNames returns the names of places. For example, "device:0, device:1".
func placeNames(places []tensor.Place) string {
	var names []string
	for _, p := range places {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// loadEvicted loads the models with a name that are evicted, for a load request.
func (r *Repository) loadEvicted(ctx context.Context, name string) error {
	if r.memory == nil {
		return nil
	}
	m := r.catalog.Load().called[name]
	if m == nil {
		return nil
	}
	for _, v := range m.versions {
		if v.residency != nil {
			if err := v.residency.load(ctx, func() bool { return true }); err != nil {
				return err
			}
		}
	}
	return nil
}
