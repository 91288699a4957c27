package scheduler_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// helped is a scheduler with Help only.
type helped func()

func (helped) Enqueue(scheduler.TaskList, *scheduler.RunLoop) {}
func (f helped) Help(*scheduler.RunLoop) bool {
	f()
	return false
}
func (helped) InFlight() int64             { return 0 }
func (helped) Drain(context.Context) error { return nil }
func (helped) Close() error                { return nil }

// kicked returns a scheduler that is comparable, which a function is not.
func kicked(f helped) scheduler.Scheduler { return &f }

// TestKicksBeyondTheLimit checks that every kick is executed when there are more than workers and the only worker
// is blocked.
func TestKicksBeyondTheLimit(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(1)
	const kicks = 50
	entered, leave, all := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var running, n atomic.Int32
	p.Go(kicked(func() {
		close(entered)
		<-leave
	}))
	<-entered
	for range kicks {
		p.Go(kicked(func() {
			if running.Add(1) > 1 {
				t.Error("more workers than the limit")
			}
			for range 100 {
				runtime.Gosched() // a second worker's chance to show
			}
			running.Add(-1)
			if n.Add(1) == kicks {
				close(all)
			}
		}))
	}
	if n.Load() != 0 {
		t.Error("a second worker started")
	}
	close(leave)
	<-all
	p.Close()
	p.Close()
}

// TestWorkerStandsIn checks that a replacement runs when the only worker waits for another kick.
func TestWorkerStandsIn(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(1)
	entered, waits, other, over := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.Go(kicked(func() {
		close(entered)
		<-waits
		p.Reserve(1)
		<-other
		p.Reserve(-1)
		close(over)
	}))
	<-entered
	p.Go(kicked(func() { close(other) }))
	close(waits)
	<-over
	p.Close()
}

// TestWorkersGrow checks that as many workers run at the same time as are reserved: they wait for each other.
func TestWorkersGrow(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(1)
	p.Reserve(2)
	arrived, leave := make(chan struct{}), make(chan struct{})
	for range 3 {
		p.Go(kicked(func() {
			arrived <- struct{}{}
			<-leave
		}))
	}
	for range 3 {
		<-arrived
	}
	close(leave)
	p.Close()
}

// TestCloseRunsQueued checks that Close executes the kicks before it, and none after it.
func TestCloseRunsQueued(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(1)
	entered, leave := make(chan struct{}), make(chan struct{})
	var n atomic.Int32
	p.Go(kicked(func() {
		close(entered)
		<-leave
	}))
	<-entered
	for range 3 {
		p.Go(kicked(func() { n.Add(1) }))
	}
	close(leave)
	p.Close()
	if got := n.Load(); got != 3 {
		t.Errorf("%d of 3 kicks were followed", got)
	}
	p.Go(kicked(func() { t.Error("a closed pool helps") }))
}

func TestKickAfter(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(2)
	const wait = 500 * time.Microsecond
	came := make(chan int64)
	began := telemetry.Now()
	p.GoAfter(kicked(func() { came <- telemetry.Now() }), wait)
	if took := time.Duration(<-came - began); took < wait {
		t.Errorf("kicked after %v, want at least %v", took, wait)
	}
	p.Close()
}

// TestRunLoopHandsOver checks that of two ready schedulers the run loop helps one and a worker the other.
func TestRunLoopHandsOver(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(1)
	meet := make(chan struct{})
	one, two := kicked(func() { meet <- struct{}{} }), kicked(func() { <-meet })
	loop := scheduler.NewRunLoop(p)
	loop.Ready(one)
	loop.Ready(two)
	loop.Ready(one) // does not count twice: a second call would have no partner
	loop.RunUntil(func() bool { return false })
	p.Close()
}

// TestReserveReleased checks that workers end when their reservation is removed and they are idle, and start again
// with a new reservation.
func TestReserveReleased(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	for range 20 {
		p.Reserve(2)
		var met, over sync.WaitGroup
		met.Add(2)
		over.Add(3)
		meet := func() {
			met.Done()
			met.Wait() // there are two of them
			over.Done()
		}
		p.Go(kicked(meet))
		p.Go(kicked(meet))
		p.Reserve(-2)
		p.Go(kicked(func() { over.Done() }))
		p.Reserve(1) // for tasks that no worker executes
		p.Go(kicked(func() {}))
		over.Wait()
		p.Reserve(-1)
	}
	p.Close()
}

// TestWorkersReleaseIdle checks that workers end when nothing has used them between two calls of ReleaseIdle, and start again when they are
// needed.
func TestWorkersReleaseIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := scheduler.NewWorkers()
		p.Reserve(4)
		use := func(n int) {
			leave := make(chan struct{})
			for range n {
				p.Go(kicked(func() { <-leave }))
			}
			synctest.Wait()
			if started, parked := p.Counts(); started-parked != n {
				t.Errorf("%d workers execute, want %d", started-parked, n)
			}
			close(leave)
			synctest.Wait()
		}
		check := func(when string, want int) {
			t.Helper()
			p.ReleaseIdle()
			synctest.Wait()
			if started, parked := p.Counts(); started != want || parked != want {
				t.Errorf("%s: %d workers, %d of them parked, want %d", when, started, parked, want)
			}
		}
		use(4)
		check("all were used", 4)
		use(2)
		use(1)
		check("two were used", 2)
		use(3)
		check("one was used that is new", 3)
		p.Reserve(-3)
		check("the limit is lower, and none was used", 0)
		use(1)
		p.Close()
		p.ReleaseIdle()
	})
}

// TestWorkerPanics checks that a panic in a worker's task is logged, and that the worker continues with the next
// one.
func TestWorkerPanics(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	p := scheduler.NewWorkers()
	p.Recover(slog.New(slog.NewTextHandler(&lines, nil)))
	p.Reserve(1)
	p.Go(kicked(func() { panic("no such defect") }))
	after := make(chan struct{})
	p.Go(kicked(func() { close(after) }))
	<-after
	p.Close()
	for _, want := range []string{"level=ERROR", `panic="no such defect"`, "scheduler_test.TestWorkerPanics"} {
		if !bytes.Contains(lines.Bytes(), []byte(want)) {
			t.Errorf("the log lacks %q:\n%s", want, &lines)
		}
	}
}
