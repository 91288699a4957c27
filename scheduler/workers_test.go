package scheduler_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// helped is a scheduler of which only Help matters.
type helped func()

func (helped) Enqueue(scheduler.TaskList, *scheduler.RunLoop) {}
func (f helped) Help(*scheduler.RunLoop) bool {
	f()
	return false
}
func (helped) InFlight() int64             { return 0 }
func (helped) Drain(context.Context) error { return nil }
func (helped) Close() error                { return nil }

// kicked makes a scheduler that can be compared, as a function cannot.
func kicked(f helped) scheduler.Scheduler { return &f }

// TestKicksBeyondTheLimit blocks the only worker and kicks on.
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

// TestWorkerStandsIn has the only worker wait for what another kick does.
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

// TestWorkersGrow has as many workers wait for each other as are reserved.
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

// TestCloseRunsWhatWaits checks that Close is not the end of kicks given before, and
// is of those given after.
func TestCloseRunsWhatWaits(t *testing.T) {
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

// TestTurnHandsOver has two schedulers ready: the turn helps one and a worker the other.
func TestTurnHandsOver(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	p.Reserve(1)
	meet := make(chan struct{})
	one, two := kicked(func() { meet <- struct{}{} }), kicked(func() { <-meet })
	turn := scheduler.NewRunLoop(p)
	turn.Ready(one)
	turn.Ready(two)
	turn.Ready(one) // does not count twice: nobody would be there to meet
	turn.RunUntil(func() bool { return false })
	p.Close()
}

// TestRoomGivenBack takes the room away under running workers: they end when they
// have nothing to do, and come again with the room.
func TestRoomGivenBack(t *testing.T) {
	t.Parallel()
	p := scheduler.NewWorkers()
	for range 20 {
		p.Reserve(2)
		var met, over sync.WaitGroup
		met.Add(2)
		over.Add(3)
		meet := func() {
			met.Done()
			met.Wait() // so there are two of them
			over.Done()
		}
		p.Go(kicked(meet))
		p.Go(kicked(meet))
		p.Reserve(-2)
		p.Go(kicked(func() { over.Done() }))
		p.Reserve(1) // for what nobody may have been left to do
		p.Go(kicked(func() {}))
		over.Wait()
		p.Reserve(-1)
	}
	p.Close()
}

// TestWorkerPanics has what a worker helps panic: that is logged, and the worker goes on with what comes after it.
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
