package scheduler_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tutti-server/tutti/scheduler"
)

const ms = int64(time.Millisecond)

// TestQuietAfterTraffic checks that background requests wait while an online request is in flight and for a window after it.
func TestQuietAfterTraffic(t *testing.T) {
	t.Parallel()
	var b scheduler.Background
	if b.Watching() || !b.Quiet(ms) {
		t.Error("a process without requests is watched, or not quiet")
	}
	b.Begin(ms)
	if !b.Watching() {
		t.Error("online requests are not counted beside a background request")
	}
	if at := ms + int64(b.Wait(ms)); b.Quiet(2*ms) || b.Quiet(at-1) || !b.Quiet(at+1) {
		t.Error("the first background request does not wait for one window")
	}
	if b.Expecting(2 * ms) {
		t.Error("an online request is expected before there was one")
	}
	b.Arrive(2 * ms)
	if ok, beside := b.Start(3*ms, false); ok || !beside {
		t.Error("a batch starts beside an online request at the only instance")
	}
	b.Leave(4 * ms)
	if b.Quiet(5 * ms) {
		t.Error("quiet a millisecond after a request")
	}
	if at := 5*ms + int64(b.Wait(5*ms)); b.Quiet(at-1) || !b.Quiet(at+1) {
		t.Errorf("quiet after %d ns, or not by then", at)
	}
	if ok, beside := b.Start(5000*ms, false); !ok || beside {
		t.Error("no batch starts in a quiet process")
	}
	b.Done()
	if !b.Expecting(5000*ms) || b.Expecting(20_000*ms) {
		t.Error("an online request is not expected three seconds after the last one, or is for long")
	}
}

// TestWatchEnds checks that online requests are not counted any more a minute after the last background request.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	var b scheduler.Background
	b.Begin(ms)
	b.Arrive(70_000 * ms)
	b.Leave(70_000 * ms)
	if !b.Watching() {
		t.Error("not watched although a background request is in flight")
	}
	b.End(80_000 * ms)
	b.Arrive(130_000 * ms)
	b.Leave(130_000 * ms)
	if !b.Watching() {
		t.Error("not watched 50 s after the last background request")
	}
	b.Arrive(141_000 * ms)
	b.Leave(141_000 * ms)
	if b.Watching() {
		t.Error("watched 61 s after the last background request")
	}
}

// TestFewCollisions checks that, whatever the rate of random requests above one per maximum window, less than one in a hundred arrives
// while background batches may execute, once the window has been learned.
func TestFewCollisions(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{5, 20, 100, 1000} {
		rng := rand.New(rand.NewPCG(uint64(rate), 3)) //nolint:gosec // a test wants the same numbers again
		var b scheduler.Background
		now, collisions, counted := int64(1), 0, 20000
		for i := range 1000 + counted {
			now += int64(rng.ExpFloat64() / rate * float64(time.Second))
			if i >= 1000 && b.Quiet(now) {
				collisions++
			}
			b.Arrive(now)
			now += ms / 2
			b.Leave(now)
		}
		if limit := counted / 100; collisions > limit {
			t.Errorf("%.0f requests per second: %d of %d arrive while background batches may execute, at most %d may", rate, collisions, counted, limit)
		}
	}
}

// TestPace checks that inline background tasks take an 800th of the processors beside online requests.
func TestPace(t *testing.T) {
	t.Parallel()
	var b scheduler.Background
	b.Begin(ms)
	b.Arrive(ms)
	if ok, _ := b.Pace(10 * ms); !ok {
		t.Fatal("the first task may not execute")
	}
	if ok, _ := b.Pace(10 * ms); ok {
		t.Error("a second task executes at the same time")
	}
	b.Paced(10*ms, 14*ms)
	pause := 4 * ms * int64(800/runtime.GOMAXPROCS(0)-1)
	ok, wait := b.Pace(14 * ms)
	if ok || wait != time.Duration(pause) {
		t.Errorf("after 4 ms the next task may execute after %v, %v, want %v", wait, ok, time.Duration(pause))
	}
	if ok, _ = b.Pace(14*ms + pause); !ok {
		t.Error("no task may execute after the wait")
	}
}
