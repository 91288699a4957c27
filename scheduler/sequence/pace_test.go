//go:build cgo

package sequence_test

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/simdev"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/schedtest"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

// atDevice returns a scheduler of iterative sequences with one instance at a device, and a bench whose runner has the device.
func atDevice(t *testing.T, d tensor.Accelerator, strategy *modelconfig.ModelSequenceBatching, inst backends.Instance, limiters ...scheduler.Limiter) (*schedtest.Bench, *sequence.Scheduler) {
	t.Helper()
	b := schedtest.NewBench(t, schedtest.Mirror(8, schedtest.Port("INPUT0", tensor.FP32, 1)), nil)
	places := tensor.NewPlaces(b.Alloc)
	if err := places.Add(d); err != nil {
		t.Fatal(err)
	}
	mover := batch.NewMover(places)
	b.Runner = batch.NewRunner(batch.Settings{
		Signature: b.Sig, Stats: b.Stats, Alloc: b.Alloc, Log: slog.New(slog.DiscardHandler), Mover: mover, NoRetry: true, Iterative: true,
	})
	strategy.IterativeSequence = true
	cfg := &modelconfig.ModelConfig{MaxBatchSize: 8, SchedulingChoice: &modelconfig.ModelConfig_SequenceBatching{SequenceBatching: strategy}}
	s, err := sequence.New(sequence.Settings{
		Config: cfg, Signature: b.Sig, Public: b.Sig, Rules: sequence.RulesOf(cfg), Policy: dynamic.Rules{MaxBatch: 8, MaxElements: math.MaxInt64}.Policy(),
		Runner: b.Runner, Stats: b.Stats, Alloc: b.Alloc, Instances: []backends.Instance{inst}, Limiters: limiters, Workers: b.Workers,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, end := range []func() error{s.Close, backends.StreamOf(inst).Close, mover.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return b, s
}

// strategies are both strategies.
func strategies() map[string]*modelconfig.ModelSequenceBatching {
	return map[string]*modelconfig.ModelSequenceBatching{
		"direct": {StrategyChoice: &modelconfig.ModelSequenceBatching_Direct{Direct: &modelconfig.ModelSequenceBatching_StrategyDirect{}}},
		"oldest": {StrategyChoice: &modelconfig.ModelSequenceBatching_Oldest{Oldest: &modelconfig.ModelSequenceBatching_StrategyOldest{MaxCandidateSequences: 8}}},
	}
}

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

// TestBatchesGrowWhileTheDeviceIsBehind checks that an instance is at most one batch ahead of its device: the sequences that start
// later share one batch, although every execution returned at once.
func TestBatchesGrowWhileTheDeviceIsBehind(t *testing.T) {
	t.Parallel()
	for name, strategy := range strategies() {
		t.Run(name, func(t *testing.T) {
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
			stream, err := machine.Devices()[0].Open("slow")
			if err != nil {
				t.Fatal(err)
			}
			m := &slowKernel{stream: stream, leave: make(chan struct{})}
			b, s := atDevice(t, machine.Devices()[0], strategy, m)
			var jobs []*schedtest.Job
			for i := range 6 {
				jobs = append(jobs, b.Job(1, b.Floats([]int64{1, 1}, float32(i))))
				b.Submit(s, jobs[i])
			}
			if n := m.runs.Load(); n != 2 {
				t.Errorf("%d batches were executed while the device was at the first one, want 2", n)
			}
			close(m.leave)
			schedtest.Wait(jobs...)
			if got := schedtest.Sizes(b); !slices.Equal(got, []int{1, 1, 4}) {
				t.Errorf("batches of %v requests, want [1 1 4]", got)
			}
			for _, j := range jobs {
				j.Release()
			}
		})
	}
}

// copier is an instance at a device that copies its input: one operation of the stream, for a kernel.
type copier struct{ stream tensor.Stream }

func (m *copier) Stream() tensor.Stream { return m.stream }

func (m *copier) Execute(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, in.DType, in.Shape)
	if err != nil {
		return err
	}
	return m.stream.Copy(out.Buf, 0, in.Buf, in.Off, in.Len)
}

func (*copier) Close() error { return nil }

// toldLimiter is a limiter that admits at once and keeps what it is told.
type toldLimiter struct{ took chan int64 }

func (*toldLimiter) Acquire(func()) bool { return true }
func (*toldLimiter) Release()            {}
func (l *toldLimiter) Took(ns int64)     { l.took <- ns }

// TestLimiterHasTheTimeOfTheDevice checks that the limiter of an instance is told the device's time of a batch, of which the host's is a
// small part: the input's copy and the model's, 2 ms each.
func TestLimiterHasTheTimeOfTheDevice(t *testing.T) {
	t.Parallel()
	for name, strategy := range strategies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checking := cudatest.New(t, 1)
			checking.Set("work_us", 2000)
			driver, err := cuda.Open(checking.Path())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := driver.Close(); err != nil {
					t.Error(err)
				}
			})
			devices, err := driver.Devices(cuda.Options{})
			if err != nil {
				t.Fatal(err)
			}
			stream, err := devices[0].NewStream("copier")
			if err != nil {
				t.Fatal(err)
			}
			told := &toldLimiter{took: make(chan int64, 8)}
			b, s := atDevice(t, devices[0], strategy, &copier{stream}, told)
			j := b.Job(1, b.Floats([]int64{1, 1}, 5))
			b.Submit(s, j)
			schedtest.Wait(j)
			if j.Err != nil {
				t.Fatal(j.Err)
			}
			j.Release()
			if err := stream.Record().Wait(); err != nil {
				t.Fatal(err)
			}
			for len(told.took) == 0 { // the end of the measurement is behind the last operation
				b.Stats.Settle()
			}
			if ns := <-told.took; ns < 4e6 {
				t.Errorf("the limiter was told %d ns, want at least 4 ms", ns)
			}
			if err := s.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
