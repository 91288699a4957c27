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
	why      error
}

func (*child) Execute(context.Context, *backends.Batch) error { return nil }
func (*child) Close() error                                   { return nil }
func (c *child) Recycle(why error)                            { c.why = why }
func (c *child) Resident() int64                              { return c.resident }

func newWatch(t *testing.T, s WatchSettings) (*Watch, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s.Model, s.Stats, s.Log = "m", &telemetry.Model{}, slog.New(slog.NewTextHandler(&log, nil))
	return NewWatch(s), &log
}

// TestWatchLimit checks that an execution is reported and recycled once, after its limit.
func TestWatchLimit(t *testing.T) {
	t.Parallel()
	w, lines := newWatch(t, WatchSettings{Limit: time.Second})
	slow, fast := &child{}, &child{}
	at, other := w.begin(slow, 0), w.begin(fast, 5e8)
	w.Look(1e9)
	if slow.why != nil || w.Stuck() != "" {
		t.Errorf("recycled at the limit: %v, %q", slow.why, w.Stuck())
	}
	for range 2 {
		w.Look(1e9 + 1)
	}
	if status.CodeOf(slow.why) != status.Unavailable || status.RetryAfter(slow.why) != time.Second || fast.why != nil {
		t.Errorf("recycled with %v, the other one with %v", slow.why, fast.why)
	}
	if n := strings.Count(lines.String(), "an instance is recycled"); n != 1 || w.s.Stats.Stuck.Load() != 1 || w.s.Stats.Recycled.Load() != 1 {
		t.Errorf("reported %d times:\n%s", n, lines)
	}
	if got := w.Stuck(); !strings.HasPrefix(got, "1 executions take longer than 1s") {
		t.Errorf("degraded: %q", got)
	}
	w.end(at, 2e9)
	w.end(other, 2e9)
	if got := w.Stuck(); got != "" || !strings.Contains(lines.String(), "an execution that was stuck has ended") {
		t.Errorf("after the end: %q\n%s", got, lines)
	}
	if again := w.begin(fast, 3e9); again != at && again != other {
		t.Errorf("place %d", again)
	}
}

// TestWatchFactor checks the limit that follows from the model's own executions.
func TestWatchFactor(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Factor: 4})
	inst := &child{}
	for i := range int64(watchSamples) {
		ns := int64(5e8)
		if i == 0 {
			ns = 1e12 // an outlier beyond the percentile
		}
		if limit, _ := w.limit(); limit != 0 {
			t.Fatalf("a limit of %d after %d executions", limit, i)
		}
		w.end(w.begin(inst, 0), ns)
	}
	limit, from := w.limit()
	if limit < 4*5e8 || limit > 4*5e8*5/4 || !strings.HasPrefix(from, "4 times the 99.9th percentile") {
		t.Errorf("the limit is %d, %s", limit, from)
	}
	for _, ns := range []int64{-1, 0, 3, 4, 5, 7, 8, 1000, 1 << 40, 1 << 60} {
		if b := bucket(ns); b < 0 || b > 255 || upper(b) <= ns {
			t.Errorf("%d is in bucket %d, which ends at %d", ns, b, upper(b))
		}
	}
}

// TestWatchMemory checks the bound of the memory of a process, and a watch without limits.
func TestWatchMemory(t *testing.T) {
	t.Parallel()
	w, _ := newWatch(t, WatchSettings{Memory: 1000})
	inst := &child{resident: 1000}
	w.end(w.begin(inst, 0), 1)
	if w.Look(2); inst.why != nil {
		t.Errorf("recycled at the bound: %v", inst.why)
	}
	inst.resident = 1001
	if w.Look(3); inst.why == nil || !strings.Contains(inst.why.Error(), "has 1001 bytes of memory, more than its parameter memory_limit_bytes of 1000") {
		t.Errorf("recycled with %v", inst.why)
	}
	inst.why = nil
	w.forget(inst)
	if w.Look(4); inst.why != nil {
		t.Error("a removed instance was recycled")
	}
	none, _ := newWatch(t, WatchSettings{})
	if none != nil || none.Stuck() != "" {
		t.Error("a watch without limits")
	}
	none.Look(0)
}

// TestWatchAllocs checks that a watched execution allocates nothing.
func TestWatchAllocs(t *testing.T) {
	w, _ := newWatch(t, WatchSettings{Limit: time.Second})
	inst := &child{}
	if n := testing.AllocsPerRun(100, func() { w.end(w.begin(inst, 0), 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
