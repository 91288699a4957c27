package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// later is a policy that never forms a batch.
type later struct{}

func (later) Decide(int64, scheduler.View, []int32) scheduler.Decision {
	return scheduler.Decision{Wait: time.Hour}
}

// oldest is a policy that takes one task at a time.
type oldest struct{}

func (oldest) Decide(_ int64, _ scheduler.View, scratch []int32) scheduler.Decision {
	return scheduler.Decision{Take: append(scratch, 0)}
}

// TestCancelledWhileQueued checks that the tasks of disconnected clients end while they wait for a delay, or for
// the only instance, and that the others stay.
func TestCancelledWhileQueued(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy scheduler.Policy
		busy   bool
	}{"delay": {later{}, false}, "busy": {oldest{}, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Signature(8), nil)
			entered, leave := make(chan struct{}), make(chan struct{})
			s := queue.New(queue.Settings{
				Runner: b.Runner, Policy: tt.policy, Workers: b.Workers,
				Instances: []backends.Instance{schedtest.Model(func(batch *backends.Batch) error {
					close(entered)
					<-leave
					return schedtest.Share(batch)
				})},
			})
			var first *schedtest.Job
			if tt.busy {
				first = b.Job(1, b.Floats([]int64{1, 1}, 1))
				go b.Submit(s, first)
				<-entered
			}
			ctx, cancel := context.WithCancel(t.Context())
			var jobs []*schedtest.Job
			for range 300 {
				jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, 2)).For(ctx))
			}
			stay, end := context.WithCancel(t.Context())
			last := b.Job(1, b.Floats([]int64{1, 1}, 3)).For(stay)
			b.Submit(s, append(jobs, last)...)
			cancel()
			schedtest.Wait(jobs...)
			for _, j := range jobs {
				if status.CodeOf(j.Err) != status.Cancelled {
					t.Errorf("%v, want a cancellation", j.Err)
				}
			}
			if n := last.Times.Load(); n != 0 {
				t.Errorf("a work whose client waits was completed %d times", n)
			}
			end()
			schedtest.Wait(last)
			if tt.busy {
				close(leave)
				schedtest.Wait(first)
				first.Release()
			}
			if err := s.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
