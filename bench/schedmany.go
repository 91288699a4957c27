package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// The concurrent load: manyCallers callers that each wait for a response, at a model that needs manyWork for a
// batch of up to manyBatch rows.
const (
	manyCallers = 32
	manyBatch   = 8
	manyWork    = 50 * time.Microsecond
)

// many measures 32 callers at a model that needs 50 us of CPU time for a batch of up to 8, and compares them with
// the same model called with full batches only. If callers run on other processors than the model, waking them has
// a cost in any program. Then the limit is for the cost above the simplest program that serves them. On one
// processor the limit is for the whole cost.
func (s *schedBench) many() error {
	for _, c := range []struct {
		what       string
		processors int
	}{{"32 callers, batch 8, 50 us a batch", runtime.GOMAXPROCS(0)}, {"the same on one processor", 1}} {
		before := runtime.GOMAXPROCS(c.processors)
		s.manyOn(c.what, c.processors == 1)
		runtime.GOMAXPROCS(before)
	}
	return nil
}

func (s *schedBench) manyOn(what string, alone bool) {
	const requests = 100_000
	var calls atomic.Int64
	ours := s.callers(&calls)
	loop, end := channels()
	defer end()
	full := func(n int) {
		for range n / manyBatch {
			fail(noop{work: manyWork}.Execute(context.Background(), &backends.Batch{}))
		}
	}
	costs := s.inTurns(requests, ours, loop, full)
	got, least, ideal := costs[0], costs[1].cpu/1000, costs[2].cpu/1000
	cpu := got.cpu / 1000
	s.limit(what+": above a loop over channels", "us of CPU", cpu-least, 2)
	if alone {
		s.limit("  above full batches alone", "us of CPU", cpu-ideal, 2)
	} else {
		fmt.Fprintf(s.table, "  above full batches alone\t%.2f us of CPU\n", cpu-ideal)
	}
	fmt.Fprintf(s.table, "  the loop over channels above full batches alone\t%.2f us of CPU\n", least-ideal)
	fmt.Fprintf(s.table, "  its batches\t%.2f requests\n", float64(requests*s.rounds+requests/10)/float64(calls.Load()))
	s.limit("  its allocations", "per request", got.allocs, 0.01)
}

// callers returns a program that sends n requests from all callers at once. calls counts executions.
func (s *schedBench) callers(calls *atomic.Int64) func(n int) {
	sig := schedSignature(1)
	queue := s.batching(sig, noop{manyWork, calls})
	x := exec.New(exec.Settings{Plan: plan.Single(sig), Targets: []scheduler.Scheduler{queue}, Stats: &telemetry.Model{}, Workers: s.workers})
	return func(n int) { s.inferMany(x, n) }
}

func (s *schedBench) inferMany(x infer.Inferer, n int) {
	var requests atomic.Int64
	var wg sync.WaitGroup
	for range manyCallers {
		wg.Go(func() {
			c := s.client(x, "IN0")
			defer c.close()
			for requests.Add(manyBatch) <= int64(n) { // which keeps all callers busy to the end
				c.infer(manyBatch)
			}
		})
	}
	wg.Wait()
}

// channels returns the simplest program in Go that serves the concurrent load: a goroutine receives the callers'
// requests, lets the others run once before a partial batch, and responds to each caller on a channel.
func channels() (run func(n int), end func()) {
	waiting := make(chan chan struct{}, manyCallers)
	go serveChannels(waiting)
	return func(n int) {
		var requests atomic.Int64
		var wg sync.WaitGroup
		for range manyCallers {
			wg.Go(func() {
				response := make(chan struct{}, 1)
				for requests.Add(1) <= int64(n) {
					waiting <- response
					<-response
				}
			})
		}
		wg.Wait()
	}, func() { close(waiting) }
}

func serveChannels(waiting chan chan struct{}) {
	taken := make([]chan struct{}, 0, manyBatch)
	for one := range waiting {
		taken = append(taken[:0], one)
		if len(waiting) < manyBatch-1 {
			runtime.Gosched()
		}
		for len(taken) < manyBatch && len(waiting) > 0 {
			taken = append(taken, <-waiting)
		}
		fail(noop{work: manyWork}.Execute(context.Background(), &backends.Batch{}))
		for _, response := range taken {
			response <- struct{}{}
		}
	}
}
