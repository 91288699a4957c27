package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// blocking returns a model whose first execution waits until leave is closed.
func blocking(inner schedtest.Model) (m schedtest.Model, entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	var once sync.Once
	return func(b *backends.Batch) error {
		once.Do(func() {
			close(entered)
			<-leave
		})
		return inner(b)
	}, entered, leave
}

// TestBatchesGrowWhileBusy checks that tasks which arrive while the only instance is busy form one batch when it is
// free, and that the gauge counts them until then.
func TestBatchesGrowWhileBusy(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	m, entered, leave := blocking(schedtest.Share)
	s := schedtest.NewQueue(b, m, 1)
	var jobs []*schedtest.Job
	for i := range 6 {
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i))))
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.Submit(s, jobs[0]) })
	<-entered
	for _, j := range jobs[1:] {
		b.Submit(s, j) // returns: there is nothing to help with
	}
	if n := b.Stats.Pending(); n != 5 {
		t.Errorf("pending gauge is %d, want 5", n)
	}
	close(leave)
	schedtest.Wait(jobs...)
	wg.Wait()
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{1, 5}) {
		t.Errorf("batches of %v works, want [1 5]", got)
	}
	for i, j := range jobs {
		schedtest.Numbers(t, j, 0, []int64{1, 1}, float32(i))
		j.Release()
	}
	if n := b.Stats.Pending(); n != 0 {
		t.Errorf("pending gauge is %d in the end", n)
	}
}

// TestCancelledInQueue checks that cancelled tasks behind a busy instance do not execute.
func TestCancelledInQueue(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	m, entered, leave := blocking(func(batch *backends.Batch) error {
		if tensor.Slice[float32](&batch.In[0])[0] < 0 {
			t.Error("a cancelled work was executed")
		}
		return schedtest.Share(batch)
	})
	s := schedtest.NewQueue(b, m, 1)
	ctx, cancel := context.WithCancel(t.Context())
	head := b.Job(1, b.Floats([]int64{1, 1}, 0))
	tail := b.Job(1, b.Floats([]int64{1, 1}, 1))
	var wg sync.WaitGroup
	wg.Go(func() { b.Submit(s, head) })
	<-entered
	var gone []*schedtest.Job
	for range 3 {
		j := b.Job(1, b.Floats([]int64{1, 1}, -1)).For(ctx)
		gone = append(gone, j)
		b.Submit(s, j)
	}
	b.Submit(s, tail)
	cancel()
	close(leave)
	schedtest.Wait(append(gone, head, tail)...)
	wg.Wait()
	for _, j := range gone {
		if status.CodeOf(j.Err) != status.Cancelled || j.In[0].Present() {
			t.Errorf("error %v, input held: %v", j.Err, j.In[0].Present())
		}
	}
	for i, j := range []*schedtest.Job{head, tail} {
		schedtest.Numbers(t, j, 0, []int64{1, 1}, float32(i))
		j.Release()
	}
	if n := b.Stats.Pending(); n != 0 {
		t.Errorf("pending gauge is %d in the end", n)
	}
}

// patient is a policy that waits once and then takes everything.
type patient struct {
	wait  time.Duration
	calls int
}

func (p *patient) Decide(_ int64, v scheduler.View, scratch []int32) scheduler.Decision {
	if p.calls++; p.calls == 1 {
		return scheduler.Decision{Wait: p.wait}
	}
	return schedtest.Everything{}.Decide(0, v, scratch)
}

// TestPolicyDecidesAgain checks that the policy decides again after short waits, in which a worker sleeps, and long
// ones, for which a timer is set.
func TestPolicyDecidesAgain(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{time.Microsecond, 3 * time.Millisecond} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
			p := &patient{wait: wait}
			s := queue.New(queue.Settings{
				Runner: b.Runner, Policy: p, Instances: []backends.Instance{schedtest.Model(schedtest.Share)}, Workers: b.Workers,
			})
			for range 2 { // the second time the timer is there already
				p.calls = 0
				j := b.Job(1, b.Floats([]int64{1, 1}, 1))
				b.Submit(s, j) // returns before the response; no later request triggers a decision
				schedtest.Wait(j)
				schedtest.Numbers[float32](t, j, 0, []int64{1, 1}, 1)
				j.Release()
				if err := s.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCompleteSplits checks that each Completer receives its own tasks, in order.
func TestCompleteSplits(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	other := schedtest.NewBench(t, b.Sig, nil)
	var jobs []*schedtest.Job
	for i := range 5 {
		from := b
		if i == 2 {
			from = other
		}
		jobs = append(jobs, from.Job(1, b.Floats([]int64{1, 1}, float32(i))))
	}
	schedtest.Do(b, schedtest.Share, jobs...)
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{2, 2}) {
		t.Errorf("lists of %v works, want [2 2]", got)
	}
	if got := schedtest.Sizes(other); !slices.Equal(got, []int{1}) {
		t.Errorf("other lists of %v works, want [1]", got)
	}
	for _, j := range jobs {
		j.Release()
	}
}
