package direct_test

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func queued(b *schedtest.Bench, instances []backends.Instance) scheduler.Scheduler {
	return direct.New(direct.Settings{Runner: b.Runner, Instances: instances, Workers: b.Workers})
}

func inline(b *schedtest.Bench, instances []backends.Instance) scheduler.Scheduler {
	return direct.NewInline(direct.Settings{Runner: b.Runner, Instances: instances[:1]})
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]schedtest.Make{"queued": queued, "inline": inline} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schedtest.Run(t, s)
		})
	}
}

// TestNeverBatches checks that tasks which arrive together execute one by one, and that those of an inline
// scheduler complete together.
func TestNeverBatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		make    schedtest.Make
		batches int
	}{{"queued", queued, 5}, {"inline", inline, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := schedtest.NewBench(t, schedtest.Signature(8), nil)
			s := tc.make(b, []backends.Instance{schedtest.Model(func(batch *backends.Batch) error {
				if batch.Rows != 1 || len(batch.Requests) != 1 {
					t.Errorf("a batch of %d works, %d rows", len(batch.Requests), batch.Rows)
				}
				return schedtest.Share(batch)
			})})
			var jobs []*schedtest.Job
			for i := range 5 {
				jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i))))
			}
			b.Submit(s, jobs...)
			schedtest.Wait(jobs...)
			if n := len(b.Batches()); n != tc.batches {
				t.Errorf("%d completions, want %d", n, tc.batches)
			}
			for _, j := range jobs {
				j.Release()
			}
		})
	}
}

// TestInstancesRunAtOnce checks that all instances execute at the same time: each waits for the others.
func TestInstancesRunAtOnce(t *testing.T) {
	t.Parallel()
	const n = 4
	var meeting sync.WaitGroup
	meeting.Add(n)
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	instances := make([]backends.Instance, n)
	for i := range instances {
		instances[i] = schedtest.Model(func(batch *backends.Batch) error {
			meeting.Done()
			meeting.Wait()
			return schedtest.Share(batch)
		})
	}
	s := queued(b, instances)
	var jobs []*schedtest.Job
	for i := range n {
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i))))
	}
	b.Submit(s, jobs...)
	schedtest.Wait(jobs...)
	for _, j := range jobs {
		j.Release()
	}
}
