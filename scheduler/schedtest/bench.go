package schedtest

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Model is a model implemented by a function. It is also the only instance of itself.
type Model func(b *backends.Batch) error

var _ backends.Instance = Model(nil)

// Execute calls the function.
func (m Model) Execute(_ context.Context, b *backends.Batch) error { return m(b) }

// Close does nothing.
func (Model) Close() error { return nil }

// Share returns every input as the output of the same position, without a copy.
func Share(b *backends.Batch) error {
	for i := range b.Out {
		b.SetOutput(i, b.In[i].Retain())
	}
	return nil
}

// Copy copies every input to newly allocated memory of the output of the same position.
func Copy(b *backends.Batch) error {
	for i := range b.Out {
		in := &b.In[i]
		if !in.Present() {
			continue
		}
		out, err := tensor.NewBytes(b.Allocator, in.Shape, in.Len)
		if err != nil {
			return err
		}
		out.DType = in.DType
		copy(out.Bytes(), in.Bytes())
		b.SetOutput(i, out)
	}
	return nil
}

// Memory counts allocations and fails the test if memory is not released.
type Memory struct {
	*tensortest.Checked
	allocs atomic.Int64
}

// Alloc counts and allocates.
func (m *Memory) Alloc(n int) (*tensor.Buffer, error) {
	m.allocs.Add(1)
	return m.Checked.Alloc(n)
}

// Allocs returns the number of allocations so far.
func (m *Memory) Allocs() int64 { return m.allocs.Load() }

// Bench has the dependencies of a scheduler under test. It receives the completed tasks.
type Bench struct {
	Sig     *config.Signature
	Alloc   *Memory
	Stats   *telemetry.Model
	Workers *scheduler.Workers
	Runner  *batch.Runner

	tb      testing.TB
	mu      sync.Mutex
	batches [][]*Job // as they completed, guarded by mu
}

var _ scheduler.Completer = (*Bench)(nil)

// NewBench returns a Bench for a model with that signature; params are the parameters of its configuration, of
// which the padding rules are used.
func NewBench(tb testing.TB, sig *config.Signature, params map[string]string) *Bench {
	tb.Helper()
	pad, err := batch.NewPadding(sig, params)
	if err != nil {
		tb.Fatal(err)
	}
	b := &Bench{
		Sig: sig, Alloc: &Memory{Checked: tensortest.NewChecked(tb, nil)},
		Stats: &telemetry.Model{Name: sig.Model}, Workers: scheduler.NewWorkers(), tb: tb,
	}
	tb.Cleanup(b.Workers.Close)
	b.Runner = batch.NewRunner(batch.Settings{
		Signature: sig, Stats: b.Stats, Alloc: b.Alloc, Padding: pad, Log: slog.New(slog.DiscardHandler),
	})
	return b
}

// Job is one task that a test can wait for.
type Job struct {
	scheduler.Task
	// Times counts completions.
	Times atomic.Int32
	done  chan struct{}
}

// Job returns a task with the given inputs, which move to it.
func (b *Bench) Job(rows int, in ...tensor.Tensor) *Job {
	j := &Job{done: make(chan struct{})}
	j.Task = scheduler.Task{
		TaskRequest: scheduler.TaskRequest{To: b, Run: j, Rows: int32(rows), Meta: &infer.Meta{}, Ctx: context.Background(), In: in},
		TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, len(b.Sig.Outputs))},
	}
	return j
}

// For sets the context of the job's client to ctx and returns the job.
func (j *Job) For(ctx context.Context) *Job {
	j.Ctx = ctx
	return j
}

// Submit enqueues the jobs as one list, as a step that completed a batch does, and runs the run loop until they are
// done or nothing is left to do here.
func (b *Bench) Submit(s scheduler.Scheduler, jobs ...*Job) {
	t := scheduler.NewRunLoop(b.Workers)
	for _, j := range jobs {
		t.Stage(s, &j.Task)
	}
	t.Dispatch()
	left := jobs
	t.RunUntil(func() bool {
		for len(left) > 0 && left[0].Times.Load() > 0 {
			left = left[1:]
		}
		return len(left) == 0
	})
}

// Complete implements scheduler.Completer.
func (b *Bench) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	var batch []*Job
	for w := list.Pop(); w != nil; w = list.Pop() {
		j := w.Run.(*Job) //nolint:errcheck,forcetypeassert // set by Job
		batch = append(batch, j)
	}
	b.mu.Lock()
	b.batches = append(b.batches, batch)
	b.mu.Unlock()
	for _, j := range batch {
		if j.Times.Add(1) == 1 {
			close(j.done)
		}
	}
}

// Batches returns the jobs of each completed batch, in order of completion.
func (b *Bench) Batches() [][]*Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.batches)
}

// Wait waits until every job is done.
func Wait(jobs ...*Job) {
	for _, j := range jobs {
		<-j.done
	}
}

// Done is closed when the job is done.
func (j *Job) Done() <-chan struct{} { return j.done }

// Release releases the job's outputs.
func (j *Job) Release() {
	for i := range j.Out {
		j.Out[i].Release()
	}
}

// Floats returns an FP32 tensor.
func (b *Bench) Floats(shape []int64, values ...float32) tensor.Tensor {
	t, err := tensor.New(b.Alloc, tensor.FP32, tensor.Of(shape...))
	if err != nil {
		b.tb.Fatal(err)
	}
	if n := copy(tensor.Slice[float32](&t), values); n != len(values) || n*4 != t.Len {
		b.tb.Fatalf("%d values for shape %v", len(values), shape)
	}
	return t
}

// Ints returns an INT64 tensor.
func (b *Bench) Ints(shape []int64, values ...int64) tensor.Tensor {
	t, err := tensor.New(b.Alloc, tensor.Int64, tensor.Of(shape...))
	if err != nil {
		b.tb.Fatal(err)
	}
	if n := copy(tensor.Slice[int64](&t), values); n != len(values) || n*8 != t.Len {
		b.tb.Fatalf("%d values for shape %v", len(values), shape)
	}
	return t
}

// Strings returns a BYTES tensor.
func (b *Bench) Strings(shape []int64, values ...string) tensor.Tensor {
	var data []byte
	for _, v := range values {
		data = tensor.AppendBytes(data, v)
	}
	t, err := tensor.NewBytes(b.Alloc, tensor.Of(shape...), len(data))
	if err != nil {
		b.tb.Fatal(err)
	}
	copy(t.Bytes(), data)
	return t
}
