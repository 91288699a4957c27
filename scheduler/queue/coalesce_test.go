package queue_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// TestCoalesce checks that a task which follows a batch of several waits for others before it takes the free
// instance, and that a task which came alone for long, or at a model that does nothing, does not wait.
func TestCoalesce(t *testing.T) {
	t.Parallel()
	const worth = 100 * time.Microsecond
	for _, tc := range []struct {
		name  string
		first int // tasks of the first batch
		alone int // batches of one that follow it
		work  time.Duration
		want  []int
	}{
		{"after a batch of several", 2, 0, worth, []int{2}},
		{"after a batch of several and one of one", 2, 1, worth, []int{2}},
		{"after many of one", 2, 16, worth, []int{1, 1}},
		{"nothing but batches of one", 1, 1, worth, []int{1, 1}},
		{"now and then it is tried again", 1, 64, worth, []int{2}},
		{"a model that does nothing", 2, 0, 0, []int{1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("IN0", tensor.FP32, 1)), nil)
			s := schedtest.NewQueue(b, func(x *backends.Batch) error {
				for began := telemetry.Now(); telemetry.Now()-began < int64(tc.work); {
				}
				return schedtest.Share(x)
			}, 1)
			jobs := func(n int) (list []*schedtest.Job) {
				for range n {
					list = append(list, b.Job(1, b.Floats([]int64{1, 1}, 1)))
				}
				return list
			}
			all := jobs(tc.first)
			b.Submit(s, all...)
			for range tc.alone {
				one := jobs(1)
				b.Submit(s, one...)
				all = append(all, one...)
			}
			before := len(schedtest.Sizes(b))
			loop, two := scheduler.NewRunLoop(b.Workers), jobs(2)
			for _, j := range two {
				loop.Stage(s, &j.Task)
				loop.Dispatch() // each by itself, as two clients do
			}
			loop.RunUntil(func() bool { return false })
			all = append(all, two...)
			schedtest.Wait(all...)
			if diff := cmp.Diff(tc.want, schedtest.Sizes(b)[before:]); tc.work > 0 && diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
			for _, j := range all {
				j.Release()
			}
		})
	}
}
