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

// What the crowd is: callers that each wait for an answer, at a model that takes so
// long for a batch.
const (
	crowdCallers = 32
	crowdBatch   = 8
	crowdWork    = 50 * time.Microsecond
)

// crowd measures 32 callers at a model that takes 50 us of work for a batch of up to
// 8, against the model called for full batches and nothing else. Where callers wake on
// another processor than the model runs on, that costs something however they are
// served; so there the limit is for what comes on top of the least program that serves
// them, and on one processor it is for all of it.
func (s *schedBench) crowd() error {
	for _, c := range []struct {
		what       string
		processors int
	}{{"32 callers, batch 8, 50 us a batch", runtime.GOMAXPROCS(0)}, {"the same on one processor", 1}} {
		before := runtime.GOMAXPROCS(c.processors)
		s.crowdOn(c.what, c.processors == 1)
		runtime.GOMAXPROCS(before)
	}
	return nil
}

func (s *schedBench) crowdOn(what string, alone bool) {
	const requests = 100_000
	var calls atomic.Int64
	ours := s.callers(&calls)
	loop, end := channels()
	defer end()
	full := func(n int) {
		for range n / crowdBatch {
			fail(noop{work: crowdWork}.Execute(context.Background(), &backends.Batch{}))
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

// callers returns a program that sends n requests by so many callers at once; calls
// counts executions.
func (s *schedBench) callers(calls *atomic.Int64) func(n int) {
	sig := schedSignature(1)
	station := s.batching(sig, noop{crowdWork, calls})
	x := exec.New(exec.Settings{Plan: plan.Single(sig), Targets: []scheduler.Scheduler{station}, Stats: &telemetry.Model{}, Workers: s.workers})
	return func(n int) { s.crowdAsks(x, n) }
}

func (s *schedBench) crowdAsks(x infer.Inferer, n int) {
	var requests atomic.Int64
	var wg sync.WaitGroup
	for range crowdCallers {
		wg.Go(func() {
			c := s.client(x, "IN0")
			defer c.close()
			for requests.Add(crowdBatch) <= int64(n) { // so that all of them go on to the end
				c.ask(crowdBatch)
			}
		})
	}
	wg.Wait()
}

// channels returns the least that can be written in Go for a crowd: a goroutine that
// takes what callers send, lets the others run once before a batch that is not full,
// and answers each caller on a channel of its own.
func channels() (run func(n int), end func()) {
	asked := make(chan chan struct{}, crowdCallers)
	go serveChannels(asked)
	return func(n int) {
		var requests atomic.Int64
		var wg sync.WaitGroup
		for range crowdCallers {
			wg.Go(func() {
				answer := make(chan struct{}, 1)
				for requests.Add(1) <= int64(n) {
					asked <- answer
					<-answer
				}
			})
		}
		wg.Wait()
	}, func() { close(asked) }
}

func serveChannels(asked chan chan struct{}) {
	taken := make([]chan struct{}, 0, crowdBatch)
	for one := range asked {
		taken = append(taken[:0], one)
		if len(asked) < crowdBatch-1 {
			runtime.Gosched()
		}
		for len(taken) < crowdBatch && len(asked) > 0 {
			taken = append(taken, <-asked)
		}
		fail(noop{work: crowdWork}.Execute(context.Background(), &backends.Batch{}))
		for _, answer := range taken {
			answer <- struct{}{}
		}
	}
}
