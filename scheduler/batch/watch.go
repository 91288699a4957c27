package batch

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
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
}

const (
	watchSamples = 1000
	watchLeast   = time.Second
	watchRetry   = time.Second // after which a request that was ended is sent again
)

// Watch finds executions of one model version that take too long, and instances whose process has too much memory. An instance in a
// process of its own (backends.Recycler) is recycled: the requests that it executes fail with Unavailable. Others are only
// reported. It is safe for concurrent use.
//
// Runner.Run calls begin and end around each execution. The owner calls Look some times a second.
type Watch struct {
	s WatchSettings

	mu      sync.Mutex
	running []running           // guarded by mu
	seen    []backends.Instance // guarded by mu
	counts  [256]uint64         // executions by duration, see bucket; guarded by mu
	total   uint64              // guarded by mu
}

// running is an execution; inst is nil for a free place.
type running struct {
	inst     backends.Instance
	since    int64 // telemetry.Now
	reported bool
}

// NewWatch returns a Watch, or nil when nothing is limited. The methods of nil do nothing.
func NewWatch(s WatchSettings) *Watch {
	if s.Limit <= 0 && s.Factor <= 0 && s.Memory <= 0 {
		return nil
	}
	return &Watch{s: s}
}

// begin notes an execution and returns its place.
//
// hot: no allocation in the steady state.
func (w *Watch) begin(inst backends.Instance, now int64) (place int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := false
	for _, s := range w.seen {
		known = known || Same(s, inst)
	}
	if !known {
		w.seen = append(w.seen, inst)
	}
	for i := range w.running {
		if w.running[i].inst == nil {
			w.running[i] = running{inst: inst, since: now}
			return i
		}
	}
	w.running = append(w.running, running{inst: inst, since: now})
	return len(w.running) - 1
}

// forget drops an instance that is removed.
func (w *Watch) forget(inst backends.Instance) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = slices.DeleteFunc(w.seen, func(s backends.Instance) bool { return Same(s, inst) })
}

// end frees the place of an execution.
func (w *Watch) end(place int, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &w.running[place]
	w.counts[bucket(now-x.since)]++
	w.total++
	if x.reported {
		w.s.Log.Info("an execution that was stuck has ended", slog.String("model", w.s.Model), slog.Duration("time", time.Duration(now-x.since)))
	}
	*x = running{}
}

// bucket returns the bucket of a duration in nanoseconds: four for each power of two.
func bucket(ns int64) int {
	n := uint64(max(ns, 4))
	shift := bits.Len64(n) - 3
	return shift*4 + int(n>>shift)&3 //nolint:gosec // below 256
}

// upper returns the end of a bucket.
func upper(b int) int64 { return int64(b&3+5) << (b >> 2) }

// limit returns the longest time of an execution and where it is from; 0 for none. mu must be held.
func (w *Watch) limit() (ns int64, from string) {
	ns, from = int64(w.s.Limit), "its limit, which --watchdog-secs or the parameter watchdog_secs sets"
	if w.s.Factor <= 0 || w.total < watchSamples {
		return ns, from
	}
	rest := w.total / 1000 // are slower
	for b := len(w.counts) - 1; b >= 0; b-- {
		if w.counts[b] > rest {
			own := max(int64(w.s.Factor*float64(upper(b))), int64(watchLeast))
			if ns == 0 || own < ns {
				return own, fmt.Sprintf("%g times the 99.9th percentile of its executions, which --watchdog-factor sets", w.s.Factor)
			}
			break
		}
		rest -= w.counts[b]
	}
	return ns, from
}

// Look reports and recycles what exceeds a limit at the time now of telemetry.Now.
func (w *Watch) Look(now int64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	limit, from := w.limit()
	var stuck []running
	for i := range w.running {
		x := &w.running[i]
		if limit > 0 && x.inst != nil && !x.reported && now-x.since > limit {
			x.reported = true
			stuck = append(stuck, *x)
		}
	}
	seen := slices.Clone(w.seen)
	w.mu.Unlock()
	for _, x := range stuck {
		w.s.Stats.Stuck.Add(1)
		why := fmt.Sprintf("an execution of model '%s' takes longer than %v, %s", w.s.Model, time.Duration(limit), from)
		w.recycle(x.inst, why, slog.Duration("time", time.Duration(now-x.since)))
	}
	if w.s.Memory <= 0 {
		return
	}
	for _, inst := range seen {
		r, ok := inst.(backends.Recycler)
		if !ok {
			continue
		}
		if n := r.Resident(); n > w.s.Memory {
			w.recycle(inst, fmt.Sprintf("the process of model '%s' has %d bytes of memory, more than its parameter memory_limit_bytes of %d", w.s.Model, n, w.s.Memory))
		}
	}
}

// recycle reports an instance, and ends its process if it has one.
func (w *Watch) recycle(inst backends.Instance, why string, more ...any) {
	args := append([]any{slog.String("model", w.s.Model), slog.String("reason", why)}, more...)
	r, ok := inst.(backends.Recycler)
	if !ok {
		w.s.Log.Warn("an instance is stuck; it runs in the server's process, which cannot end it", args...)
		return
	}
	w.s.Stats.Recycled.Add(1)
	w.s.Log.Warn("an instance is recycled: its process is ended, and another one is started", args...)
	r.Recycle(&status.Error{Code: status.Unavailable, Msg: why + "; it was ended, send the request again", Err: errRecycled, RetryAfter: watchRetry})
}

var errRecycled = errors.New("the instance was recycled")

// Stuck returns why the version is degraded: how many executions take too long now. It is empty if there is none.
func (w *Watch) Stuck() string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for i := range w.running {
		if w.running[i].inst != nil && w.running[i].reported {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	limit, from := w.limit()
	return fmt.Sprintf("%d executions take longer than %v, %s", n, time.Duration(limit), from)
}
