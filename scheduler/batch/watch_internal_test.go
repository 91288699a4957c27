package batch

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// child is an instance in a process of its own.
type child struct {
	resident int64
	starting bool // it has no process
	whys     []error
	busy     func() bool // of the watch, while the process is ended
	held     bool
}

func (*child) Execute(context.Context, *backends.Batch) error { return nil }
func (*child) Close() error                                   { return nil }
func (c *child) Resident() int64                              { return c.resident }
func (c *child) Alive() bool                                  { return !c.starting }
func (c *child) Recycle(why error) bool {
	if c.starting {
		return false
	}
	c.held = c.held || c.busy != nil && c.busy()
	c.whys = append(c.whys, why)
	return true
}

func newWatch(t *testing.T, s WatchSettings) (*Watch, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s.Model, s.Stats, s.Log = "m", &telemetry.Model{}, slog.New(slog.NewTextHandler(&log, nil))
	w := NewWatch(s)
	if w != nil {
		w.last = 0
	}
	return w, &log
}

// TestWatchLimit checks that an execution is reported and recycled once, after its limit, while it cannot end.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	w, lines := newWatch(t, WatchSettings{Limit: time.Second})
	slow, fast := &child{busy: func() bool { return !w.mu.TryLock() }}, &child{}
	at, other := w.begin(slow, 0), w.begin(fast, 5e8)
	if w.look(1e9); len(slow.whys) > 0 {
		t.Errorf("recycled at the limit: %v", slow.whys)
	}
	if reason, _ := w.Stuck(); reason != "" {
		t.Errorf("degraded at the limit: %s", reason)
	}
	for range 2 {
		w.look(1e9 + 1)
	}
	if len(slow.whys) != 1 || status.CodeOf(slow.whys[0]) != status.Unavailable || status.RetryAfter(slow.whys[0]) != time.Second || len(fast.whys) > 0 {
		t.Fatalf("recycled with %v, the other one with %v", slow.whys, fast.whys)
	}
	if !slow.held {
		t.Error("the execution could end while its process was ended, and another one begin")
	}
	if n := strings.Count(lines.String(), "an instance is recycled"); n != 1 || w.s.Stats.Stuck.Load() != 1 || w.s.Stats.Recycled.Load() != 1 {
		t.Errorf("reported %d times:\n%s", n, lines)
	}
	if got, since := w.Stuck(); !strings.HasPrefix(got, "an execution of model 'm' takes longer than 1s, its limit") || since != 0 {
		t.Errorf("degraded since %d: %q", since, got)
	}
	w.end(at, 2e9)
	w.end(other, 2e9)
	if got, _ := w.Stuck(); got != "" || !strings.Contains(lines.String(), "an execution that was stuck has ended") {
		t.Errorf("after the end: %q\n%s", got, lines)
	}
	if again := w.begin(fast, 3e9); again != other || len(w.slots) != 2 {
		t.Errorf("%d slots", len(w.slots))
	}
}

// wrapper is an instance around another one, such as one with a limiter or bound to processors.
type wrapper struct{ backends.Instance }

func (w *wrapper) Unwrap() backends.Instance { return w.Instance }

// TestWatchWrapped checks that an instance is recycled that is behind others, for its time and for its memory.
func TestWatchWrapped(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Limit: time.Second, Memory: 1000})
	c := &child{resident: 1001}
	x := w.begin(&wrapper{&wrapper{c}}, 0)
	w.look(1)
	w.look(2e9)
	w.look(3e9)
	if len(c.whys) != 4 || w.s.Stats.Stuck.Load() != 1 || !strings.Contains(c.whys[0].Error(), "1001 bytes") {
		t.Errorf("recycled with %v", c.whys)
	}
	w.end(x, 3e9)
}

// TestWatchFits checks that a process that is too large from the beginning is refused.
func TestWatchFits(t *testing.T) {
	t.Parallel()
	w, lines := newWatch(t, WatchSettings{Memory: 1000})
	if err := w.Fits(&wrapper{&child{resident: 1000}}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := w.Fits(&wrapper{&child{resident: 1001}}); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "memory_limit_bytes of 1000, but the process of an instance has 1001 bytes") {
		t.Errorf("beyond the limit: %v", err)
	}
	for range 2 {
		if err := w.Fits(&plain{}); err != nil {
			t.Errorf("in the server's process: %v", err)
		}
	}
	if n := strings.Count(lines.String(), "memory_limit_bytes has no effect"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, lines)
	}
	if err := (*Watch)(nil).Fits(&child{resident: 1}); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// TestWatchRepeats checks that no execution is forgotten: one whose process is being started, or that outlives its process, is ended
// when it exceeds the limit again.
func TestWatchRepeats(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Limit: time.Second})
	c := &child{starting: true}
	at := w.begin(c, 0)
	now := int64(0)
	until := func(to int64) {
		for ; now < to; now += 25e7 {
			w.look(now)
		}
	}
	until(5e9)
	if reason, _ := w.Stuck(); reason != "" || w.s.Stats.Stuck.Load() != 0 {
		t.Errorf("reported while its process is started: %q", reason)
	}
	c.starting = false
	until(7e9)
	if len(c.whys) != 1 {
		t.Fatalf("recycled %d times after the start", len(c.whys))
	}
	until(85e8)
	if len(c.whys) != 2 || w.s.Stats.Stuck.Load() != 1 || w.s.Stats.Recycled.Load() != 2 {
		t.Errorf("recycled %d times in all; %d stuck", len(c.whys), w.s.Stats.Stuck.Load())
	}
	w.end(at, now)
}

// plain is an instance in the server's process.
type plain struct{ _ int }

func (*plain) Execute(context.Context, *backends.Batch) error { return nil }
func (*plain) Close() error                                   { return nil }

// TestWatchInProcess checks that an instance in the server's process is reported once for each execution.
func TestWatchInProcess(t *testing.T) {
	t.Parallel()
	w, lines := newWatch(t, WatchSettings{Limit: time.Second})
	p := &plain{}
	for i := range int64(2) {
		x := w.begin(p, 10*i*1e9)
		w.last = x.from
		for k := range int64(8) {
			w.look(10*i*1e9 + k*5e8)
		}
		w.end(x, 10*i*1e9+4e9)
	}
	if n := strings.Count(lines.String(), "an instance is stuck"); n != 2 || w.s.Stats.Stuck.Load() != 2 || w.s.Stats.Recycled.Load() != 0 {
		t.Errorf("reported %d times:\n%s", n, lines)
	}
}

// TestWatchGap checks that the time in which the server did not run counts for nobody.
func TestWatchGap(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Limit: 3 * time.Second})
	c := &child{}
	w.begin(c, 0)
	w.look(5e8)
	w.look(3600e9)
	if len(c.whys) > 0 {
		t.Fatalf("after an hour's pause: %v", c.whys)
	}
	w.look(3601e9)
	if w.look(3602e9); len(c.whys) != 1 {
		t.Errorf("after three seconds beside the pause: recycled %d times", len(c.whys))
	}
}

// TestWatchFactor checks the limit that follows from the model's own executions, which those that were stuck do not raise.
func TestWatchFactor(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Factor: 4})
	c := &child{}
	for i := range int64(watchSamples) {
		ns := int64(5e8)
		if i == 0 {
			ns = 1e12 // an outlier beyond the percentile
		}
		if limit, _ := w.limit(); limit != 0 {
			t.Fatalf("a limit of %d after %d executions", limit, i)
		}
		w.end(w.begin(c, 0), ns)
	}
	limit, from := w.limit()
	if limit < 4*5e8 || limit > 4*5e8*5/4 || !strings.HasPrefix(from, "4 times the 99.9th percentile") {
		t.Errorf("the limit is %d, %s", limit, from)
	}
	for i := range int64(100) {
		at := 10 * i * 1e9
		x := w.begin(c, at)
		for k := range int64(6) {
			w.look(at + k*5e8)
		}
		w.end(x, at+3e9)
	}
	if now, _ := w.limit(); now != limit || len(c.whys) != 100 {
		t.Errorf("the limit is %d after %d stuck executions, was %d", now, len(c.whys), limit)
	}
}

// TestDurations checks the buckets, and that older executions count less.
func TestDurations(t *testing.T) {
	t.Parallel()
	for _, ns := range []int64{-1, 0, 3, 4, 5, 7, 8, 1000, 1 << 40, 1 << 60} {
		if b := bucket(ns); b < 0 || b > 255 || upper(b) <= ns {
			t.Errorf("%d is in bucket %d, which ends at %d", ns, b, upper(b))
		}
	}
	var d durations
	for range watchLast {
		d.add(1e9)
	}
	n := 0
	for d.slowest() > 1e8 && n < 1e8 {
		d.add(1e6)
		n++
	}
	if n < watchLast || n > 20*watchLast {
		t.Errorf("the percentile follows after %d executions", n)
	}
}

// TestWatchMemory checks the bound of the memory of a process, and a watch without limits.
func TestWatchMemory(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Memory: 1000})
	c := &child{resident: 1000}
	one, two := w.begin(c, 0), w.begin(c, 0)
	w.end(one, 1)
	w.end(two, 1)
	if w.look(2); len(c.whys) > 0 {
		t.Errorf("recycled at the bound: %v", c.whys)
	}
	c.resident = 1001
	if w.look(3); len(c.whys) != 1 || !strings.Contains(c.whys[0].Error(), "has 1001 bytes of memory, more than its parameter memory_limit_bytes of 1000") {
		t.Errorf("recycled with %v", c.whys)
	}
	c.starting = true
	if w.look(4); w.s.Stats.Recycled.Load() != 1 {
		t.Error("a process that has exited was counted")
	}
	c.starting = false
	w.forget(c)
	if w.look(5); len(c.whys) != 1 {
		t.Error("a removed instance was recycled")
	}
	none, _ := newWatch(t, WatchSettings{})
	if reason, _ := none.Stuck(); none != nil || reason != "" {
		t.Error("a watch without limits")
	}
	none.Start()
	none.Close()
}

// TestWatchAllocs checks that a watched execution allocates nothing.
func TestWatchAllocs(t *testing.T) {
	w, _ := newWatch(t, WatchSettings{Limit: time.Second})
	c := &child{}
	if n := testing.AllocsPerRun(100, func() { w.end(w.begin(c, 0), 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
