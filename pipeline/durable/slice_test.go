package durable

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
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
	asking := make(chan struct{}, 1)
	first, second := &slice{b: &b, asking: asking}, &slice{b: &b, asking: asking}
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
	asking := make(chan struct{}, 1)
	first, second := &slice{b: &b, asking: asking}, &slice{b: &b, asking: asking}
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

// asked is a Background beside online requests. It counts those that ask, and lets them wait until open.
type asked struct {
	noOnline
	here  chan struct{} // gets an element for each question whether the process is quiet
	count atomic.Int32
	open  atomic.Bool
}

func (a *asked) Quiet(int64) bool {
	select {
	case a.here <- struct{}{}:
	default:
	}
	return false
}

func (a *asked) Pace(int64) (bool, time.Duration) {
	a.count.Add(1)
	return a.open.Load(), time.Millisecond
}

// TestOneAsks checks that of the goroutines that wait for a slice one asks when it may begin. All of them would wake the process
// hundreds of times in a second each, which online requests notice.
func TestOneAsks(t *testing.T) {
	t.Parallel()
	asking := make(chan struct{}, 1)
	begin := func() (*asked, chan error) {
		b, done := &asked{here: make(chan struct{}, 1)}, make(chan error, 1)
		go func() { done <- (&slice{b: b, asking: asking}).next(t.Context()) }()
		return b, done
	}
	first, done := begin()
	for first.count.Load() == 0 {
		<-first.here
	}
	var others []*asked
	var ends []chan error
	for range 8 {
		b, end := begin()
		<-b.here
		others, ends = append(others, b), append(ends, end)
	}
	for n := first.count.Load(); first.count.Load() < n+10; { // meanwhile the others would have asked
		<-first.here
	}
	for _, b := range others {
		if n := b.count.Load(); n != 0 {
			t.Errorf("another one asked %d times, want 0", n)
		}
		b.open.Store(true)
	}
	first.open.Store(true)
	for _, end := range append(ends, done) {
		if err := <-end; err != nil {
			t.Error(err)
		}
	}
}
