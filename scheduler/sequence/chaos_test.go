package sequence_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// TestChaos checks that every request of misbehaving clients has one response and that sequences execute in order:
// starts without ends, ends without starts, repeated starts, requests that are cancelled or time out, ids that the
// model cannot receive, with priorities, few and many slots, and limiters. Several sequences of one id may be live
// at a time, if one has ended but still has queued requests; not of calm clients.
func TestChaos(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]string{
		"direct": "direct {}", "oldest": "oldest {}", "many": "oldest { max_candidate_sequences: 1000 preserve_ordering: true }",
		"delay": "direct { minimum_slot_utilization: 0.8 max_queue_delay_microseconds: 300 }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arbiter := device.New(device.Settings{RateLimit: true})
			cfg := "max_sequence_idle_microseconds: 500 " + strategy
			b, s, seen := benchLimited(t, text(cfg, ""), 4, append(limiters(t, arbiter, 2), nil))
			var wg sync.WaitGroup
			for c := range 4 {
				wg.Go(func() { storm(t, b, s, uint64(c)) })
			}
			wg.Wait()
			for id, sent := range seen.order {
				if id%1000 <= calm && !slices.IsSorted(sent) {
					t.Errorf("sequence %d ran as %v", id, sent)
				}
			}
			if err := s.Drain(t.Context()); err != nil || arbiter.Waiting() != 0 {
				t.Errorf("%v, %d in line", err, arbiter.Waiting())
			}
		})
	}
}

// calm is the highest id whose sequences neither end nor are cancelled.
const calm = 5

// storm sends the requests of one client, in lists of any length.
func storm(t *testing.T, b *schedtest.Bench, s scheduler.Scheduler, client uint64) {
	t.Helper()
	rounds, rng := 300, rand.New(rand.NewPCG(client, 1))
	if testing.Short() {
		rounds = 30
	}
	for n := range rounds {
		var jobs []*schedtest.Job
		ctx, cancel := context.WithCancel(t.Context())
		for k := range 1 + rng.IntN(12) {
			seq := infer.Sequence{ID: client*1000 + uint64(rng.IntN(15)) + 1, Start: rng.IntN(3) == 0, End: rng.IntN(4) == 0}
			switch rng.IntN(40) {
			case 0:
				seq.ID = 0
			case 1:
				seq.Name = strings.Repeat("x", rng.IntN(200))
			}
			j := number(t, b, seq, int32(n*100+k))
			j.Meta.Priority = uint64(rng.IntN(4))
			if rng.IntN(4) == 0 {
				j.Meta.Timeout = uint64(rng.IntN(2000))
			}
			switch {
			case seq.ID%1000 <= calm:
				j.Meta.Timeout, j.Meta.Sequence.End = 0, false
			case rng.IntN(5) == 0:
				j = j.For(ctx)
			}
			jobs = append(jobs, j)
		}
		if rng.IntN(2) == 0 {
			cancel()
		}
		b.Submit(s, jobs...)
		cancel()
		schedtest.Wait(jobs...)
		for _, j := range jobs {
			if code := status.CodeOf(j.Err); j.Err != nil && code != status.InvalidArg && code != status.Unavailable && code != status.Cancelled {
				t.Error(j.Err)
			}
			if j.Times.Load() != 1 {
				t.Errorf("completed %d times", j.Times.Load())
			}
			j.Release()
		}
	}
}

// TestStartStorm checks that each of a thousand START requests of one id begins a new sequence, in order.
func TestStartStorm(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"direct {}", "oldest {}"} {
		b, s, _ := bench(t, text(strategy, ""), 4, 2)
		var jobs []*schedtest.Job
		for i := range 1000 {
			jobs = append(jobs, number(t, b, infer.Sequence{ID: 7, Start: true}, int32(i)))
		}
		b.Submit(s, jobs...)
		schedtest.Wait(jobs...)
		for i, j := range jobs {
			sum(t, j, int32(i))
		}
		if done := b.Batches(); len(done) != len(jobs) {
			t.Errorf("%d batches for %d requests of one sequence", len(done), len(jobs))
		}
	}
}
