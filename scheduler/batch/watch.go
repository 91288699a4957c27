package batch

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// WatchSettings configure a Watch.
type WatchSettings struct {
	// Limit is the longest time of an execution; 0 for none.
	Limit time.Duration
	// Factor times the 99.9th percentile of a model's executions is the longest time, once there are watchSamples of them; 0 for
	// none. It is at least watchLeast.
	Factor float64
	// Memory is the most resident memory in bytes of the process of an instance, which is recycled above it; 0 for no bound.
	Memory int64
	// Model is its name, in messages. Required.
	Model string
	// Stats counts. Required.
	Stats *telemetry.Model
	// Log receives one line for each cause. Required.
	Log *slog.Logger

	_ struct{}
}

const (
	// watchTime is the time between two looks.
	watchTime = 250 * time.Millisecond
	// watchGap is the most that the time between two looks counts. For example, a machine that was suspended for an hour has not
	// executed anything meanwhile.
	watchGap = time.Second
	// watchRetry is the time after which a request that was ended may be sent again.
	watchRetry = time.Second
)

// Watch finds executions of one model version that take too long, and instances whose process has too much memory. An instance in a
// process of its own (backends.Recycler) is recycled: the requests that it executes fail with Unavailable. Others are only
// reported. It is safe for concurrent use. The methods of nil do nothing.
//
// Lifecycle: NewWatch; Start at most once; Runners call begin and end around executions; Close after the last one.
type Watch struct {
	s    WatchSettings
	stop chan struct{}

	unbounded sync.Once // reports that the memory has no limit
	done      sync.WaitGroup

	mu    sync.Mutex
	slots []*watched // guarded by mu, and their fields
	times durations  // of executions that ended by themselves; guarded by mu
	last  int64      // the last look; guarded by mu
}

// watched is an instance and its execution, if one runs. A concurrent instance has several.
type watched struct {
	inst   backends.Instance
	child  backends.Recycler // the same, nil if it has no process of its own
	since  int64             // telemetry.Now at its start
	from   int64             // the limit counts from here
	busy   bool
	reason string // set once it was reported
}

// NewWatch returns a Watch, or nil when nothing is limited.
func NewWatch(s WatchSettings) *Watch {
	if s.Limit <= 0 && s.Factor <= 0 && s.Memory <= 0 {
		return nil
	}
	return &Watch{s: s, stop: make(chan struct{}), last: telemetry.Now()}
}

// Start looks for what exceeds a limit, in the background, until Close.
func (w *Watch) Start() {
	if w == nil {
		return
	}
	w.done.Go(func() {
		tick := time.NewTicker(watchTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.look(telemetry.Now())
			case <-w.stop:
				return
			}
		}
	})
}

// Close ends the background. It must be called once.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	close(w.stop)
	w.done.Wait()
}

// begin notes an execution, which end ends.
//
// hot: no allocation in the steady state.
func (w *Watch) begin(inst backends.Instance, now int64) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.slots {
		if !x.busy && Same(x.inst, inst) {
			x.since, x.from, x.busy = now, now, true
			return x
		}
	}
	x := &watched{inst: inst, child: backends.RecyclerOf(inst), since: now, from: now, busy: true}
	w.slots = append(w.slots, x)
	return x
}

// end notes the end of an execution. One that was reported does not count for the percentile, which it would raise until
// nothing is stuck any more.
func (w *Watch) end(x *watched, now int64) {
	w.mu.Lock()
	took, reported := now-x.since, x.reason != ""
	if !reported {
		w.times.add(took)
	}
	x.busy, x.reason = false, ""
	w.mu.Unlock()
	if reported {
		w.s.Log.Info("an execution that was stuck has ended", slog.String("model", w.s.Model), slog.Duration("time", time.Duration(took)))
	}
}

// forget drops an instance that is removed.
func (w *Watch) forget(inst backends.Instance) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = slices.DeleteFunc(w.slots, func(x *watched) bool { return Same(x.inst, inst) })
}

// limit returns the longest time of an execution and where it is from; 0 for none. The caller holds mu.
func (w *Watch) limit() (ns int64, from string) {
	ns, from = int64(w.s.Limit), "its limit, which --watchdog-secs or the parameter watchdog_secs sets"
	if w.s.Factor <= 0 {
		return ns, from
	}
	if own := w.times.slowest(); own > 0 {
		own = max(int64(w.s.Factor*float64(own)), int64(watchLeast))
		if ns == 0 || own < ns {
			return own, fmt.Sprintf("%g times the 99.9th percentile of its executions, which --watchdog-factor sets", w.s.Factor)
		}
	}
	return ns, from
}

// finding is an execution or a process that exceeds a limit.
type finding struct {
	recycled bool
	attrs    []any
}

// Fits returns an error if an instance that has just been made has more memory than the limit: it would be recycled again and again.
// An instance in the server's process has no limit, which is logged.
func (w *Watch) Fits(inst backends.Instance) error {
	if w == nil || w.s.Memory <= 0 {
		return nil
	}
	r := backends.RecyclerOf(inst)
	if r == nil {
		w.unbounded.Do(func() {
			w.s.Log.Warn("the parameter memory_limit_bytes has no effect: the instances of the model run in the server's process; isolate the model", slog.String("model", w.s.Model))
		})
		return nil
	}
	if n := r.Resident(); n > w.s.Memory {
		return status.Errorf(status.InvalidArg, "model '%s' has the parameter memory_limit_bytes of %d, but the process of an instance has %d bytes of memory before its first request: expected a larger limit, or 0 for none", w.s.Model, w.s.Memory, n)
	}
	return nil
}

// look reports and recycles what exceeds a limit at the time now of telemetry.Now.
func (w *Watch) look(now int64) {
	var found []finding
	w.mu.Lock()
	w.forgive(now)
	limit, from := w.limit()
	for _, x := range w.slots {
		if x.child != nil && !x.child.Alive() {
			x.from = now // its process is being started, which has a limit of its own: the execution has not begun
		}
		if limit > 0 && x.busy && now-x.from > limit {
			why := fmt.Sprintf("an execution of model '%s' takes longer than %v, %s", w.s.Model, time.Duration(limit), from)
			found = append(found, w.stuck(x, now, why)...)
		}
	}
	instances := w.recyclers()
	w.mu.Unlock()
	for _, r := range instances {
		if n := r.Resident(); n > w.s.Memory {
			found = append(found, w.tooLarge(r, n)...)
		}
	}
	for _, f := range found {
		args := append([]any{slog.String("model", w.s.Model)}, f.attrs...)
		if f.recycled {
			w.s.Log.Warn("an instance is recycled: its process is ended, and another one is started", args...)
		} else {
			w.s.Log.Warn("an instance is stuck; it runs in the server's process, which cannot end it", args...)
		}
	}
}

// forgive leaves out the time in which the process did not run. The caller holds mu.
func (w *Watch) forgive(now int64) {
	gap := now - w.last - int64(watchGap)
	w.last = now
	if gap <= 0 {
		return
	}
	for _, x := range w.slots {
		x.from = min(x.from+gap, now)
	}
}

// stuck recycles the instance of an execution, or reports it. While the lock is held the execution cannot end, so that no later one
// of the instance is ended in its place. The caller holds mu.
func (w *Watch) stuck(x *watched, now int64, why string) []finding {
	first := x.reason == ""
	ends := x.child != nil
	switch {
	case ends && !x.child.Recycle(recycled(status.StepTimeout, why)):
		return nil // it has exited just now
	case ends:
		x.from = now // for the case that the execution outlives the process: it is ended again
		w.s.Stats.Recycled.Add(1)
	case !first:
		return nil
	}
	x.reason = why
	if first {
		w.s.Stats.Stuck.Add(1)
	}
	return []finding{{ends, []any{slog.String("reason", why), slog.Duration("time", time.Duration(now-x.since))}}}
}

// recyclers returns the instances whose memory is bounded. The caller holds mu.
func (w *Watch) recyclers() (list []backends.Recycler) {
	if w.s.Memory <= 0 {
		return nil
	}
	for _, x := range w.slots {
		if x.child != nil && !slices.ContainsFunc(list, func(y backends.Recycler) bool { return Same(y, x.child) }) {
			list = append(list, x.child)
		}
	}
	return list
}

// tooLarge recycles an instance whose process has n bytes of memory.
func (w *Watch) tooLarge(r backends.Recycler, n int64) []finding {
	why := fmt.Sprintf("the process of model '%s' has %d bytes of memory, more than its parameter memory_limit_bytes of %d", w.s.Model, n, w.s.Memory)
	if !r.Recycle(recycled(status.MemoryLimit, why)) {
		return nil // it has ended meanwhile
	}
	w.s.Stats.Recycled.Add(1)
	return []finding{{true, []any{slog.String("reason", why)}}}
}

func recycled(reason status.Reason, why string) error {
	return &status.Error{Code: status.Unavailable, Reason: reason, Msg: why + "; it was ended", RetryAfter: watchRetry}
}

// Stuck returns why the version is degraded, and since when on the clock of telemetry.Now: how many executions take too long now.
// It is empty if there is none.
func (w *Watch) Stuck() (reason string, since int64) {
	if w == nil {
		return "", 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, x := range w.slots {
		if !x.busy || x.reason == "" {
			continue
		}
		if n++; n == 1 || x.since < since {
			reason, since = x.reason, x.since
		}
	}
	if n > 1 {
		reason = fmt.Sprintf("%s; %d executions do", reason, n)
	}
	return reason, since
}
