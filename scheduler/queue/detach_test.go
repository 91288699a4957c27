package queue_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// single is a policy that takes one request at a time.
type single struct{}

func (single) Decide(_ int64, _ scheduler.View, scratch []int32) scheduler.Decision {
	return scheduler.Decision{Take: append(scratch, 0)}
}

// TestDetach checks a model that detaches its batches: the only instance takes the next one while earlier ones
// continue, a queue limit counts only the tasks that wait for the instance, and every task completes once.
func TestDetach(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(0, schedtest.Port("INPUT0", tensor.FP32, 1))
	sig.Decoupled = true
	b := schedtest.NewBench(t, sig, nil)
	entered, leave, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := schedtest.Model(func(batch *backends.Batch) error {
		entered <- struct{}{}
		<-leave
		batch.Detach()
		batch.Detach() // the second time changes nothing
		<-end
		return nil
	})
	s := queue.New(queue.Settings{Runner: b.Runner, Policy: single{}, Instances: []backends.Instance{m}, Workers: b.Workers})
	var jobs []*schedtest.Job
	for range 4 {
		j := b.Job(1, b.Floats([]int64{1}, 1))
		jobs = append(jobs, j)
		go b.Submit(s, j)
	}
	<-entered
	select {
	case <-entered:
		t.Error("the instance took a second batch before it was detached")
	default:
	}
	for range 3 {
		leave <- struct{}{}
		<-entered // while earlier ones continue
	}
	leave <- struct{}{}
	close(end)
	schedtest.Wait(jobs...)
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{1, 1, 1, 1}) {
		t.Errorf("batches of %v works", got)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}
