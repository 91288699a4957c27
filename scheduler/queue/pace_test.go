package queue_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// slowKernel is an instance whose executions return at once, while its device waits until leave is closed.
type slowKernel struct {
	stream *simdev.Stream
	leave  chan struct{}
	runs   atomic.Int32
}

func (m *slowKernel) Stream() tensor.Stream { return m.stream }

func (m *slowKernel) Execute(_ context.Context, b *backends.Batch) error {
	m.runs.Add(1)
	b.SetOutput(0, b.In[0].Retain())
	return m.stream.Launch("slow", []*tensor.Buffer{b.In[0].Buf}, nil, func(simdev.Memory) error {
		<-m.leave
		return nil
	})
}

func (*slowKernel) Close() error { return nil }

// TestBatchesGrowWhileTheDeviceIsBehind checks that an instance is at most one batch ahead of its device: what arrives later forms one
// batch, although every execution returned at once.
func TestBatchesGrowWhileTheDeviceIsBehind(t *testing.T) {
	t.Parallel()
	machine, err := simdev.New(1, simdev.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
	})
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	places := tensor.NewPlaces(b.Alloc)
	if err := places.Add(machine.Devices()[0]); err != nil {
		t.Fatal(err)
	}
	mover := batch.NewMover(places)
	b.Runner = batch.NewRunner(batch.Settings{Signature: b.Sig, Stats: b.Stats, Alloc: b.Alloc, Log: slog.New(slog.DiscardHandler), Mover: mover})
	stream, err := machine.Devices()[0].Open("slow")
	if err != nil {
		t.Fatal(err)
	}
	m := &slowKernel{stream: stream, leave: make(chan struct{})}
	q := queue.New(queue.Settings{Runner: b.Runner, Policy: schedtest.Everything{}, Instances: []backends.Instance{m}, Workers: b.Workers})
	var jobs []*schedtest.Job
	for i := range 6 {
		jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i))))
		b.Submit(q, jobs[i])
	}
	if n := m.runs.Load(); n != 2 {
		t.Errorf("%d batches were executed while the device was at the first one, want 2", n)
	}
	close(m.leave)
	schedtest.Wait(jobs...)
	if got := schedtest.Sizes(b); !slices.Equal(got, []int{1, 1, 4}) {
		t.Errorf("batches of %v requests, want [1 1 4]", got)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	for _, j := range jobs {
		j.Release()
	}
	for _, err := range []error{stream.Close(), mover.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
