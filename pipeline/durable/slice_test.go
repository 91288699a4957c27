package durable

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// TestSlice checks that background work beside an online request executes in one goroutine at a time, at the pace of background tasks, and
// that nothing waits when there are no more online requests.
func TestSlice(t *testing.T) {
	t.Parallel()
	var b scheduler.Background
	b.Begin(telemetry.Now())
	b.Arrive(telemetry.Now())
	first, second := &slice{b: &b}, &slice{b: &b}
	next := func(s *slice) {
		t.Helper()
		if err := s.next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next(first)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := second.next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a second slice at the same time: %v", err)
	}
	begin := telemetry.Now()
	for telemetry.Now() < begin+int64(time.Millisecond) { // work
	}
	worked := telemetry.Now()
	next(first)
	if waited, least := telemetry.Now()-worked, int64(time.Millisecond)*int64(800/runtime.GOMAXPROCS(0)-1); waited < least {
		t.Errorf("after 1 ms of work the next slice began %v later, want at least %v", time.Duration(waited), time.Duration(least))
	}
	first.yield()
	next(second)
	b.Leave(telemetry.Now())
	next(first) // while the second has its slice: after the window
	if !b.Quiet(telemetry.Now()) {
		t.Error("two slices at the same time")
	}
	second.yield()
}

// TestQuietSlice checks that slices of a quiet process do not wait for each other, and that work stops as soon as an online request comes.
func TestQuietSlice(t *testing.T) {
	t.Parallel()
	var b scheduler.Background
	first, second := &slice{b: &b}, &slice{b: &b}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 3 {
		if first.next(ended) != nil || second.next(ended) != nil {
			t.Fatal("a slice waits in a quiet process")
		}
	}
	b.Arrive(telemetry.Now())
	if err := first.next(ended); err != nil {
		t.Errorf("the first one beside an online request: %v", err)
	}
	if second.next(ended) == nil {
		t.Error("two slices beside an online request")
	}
}
