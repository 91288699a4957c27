package schedtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// Make returns the scheduler under test over the given instances of one model.
type Make func(b *Bench, instances []backends.Instance) scheduler.Scheduler

// Run checks the contract of a scheduler: each task completes once, with the outputs of its own inputs or with an
// error; tasks keep their order; a failure does not affect other tasks; cancelled tasks are not executed; Drain
// waits; Close closes the instances; and all memory is released. The caller's TestMain checks for leaked
// goroutines.
func Run(t *testing.T, makeScheduler Make) {
	t.Helper()
	RunRows(t, makeScheduler, 3)
}

// RunRows checks the same with requests of at most maxRows rows.
func RunRows(t *testing.T, makeScheduler Make, maxRows int) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, Make)
	}{
		{"conservation", func(t *testing.T, m Make) {
			t.Helper()
			conservation(t, m, maxRows)
		}},
		{"order", order},
		{"failure of one", failureOfOne},
		{"failure of all", failureOfAll},
		{"panic", panics},
		{"cancelled", cancelled},
		{"deadline", deadline},
		{"drain", drain},
		{"close", closes},
		{"idle", idle},
		{"instance removed", removed},
		{"instance added", added},
		{"instances lost", lost},
		{"instances change", resized},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, makeScheduler)
		})
	}
}

// Signature returns the signature of a model with one FP32 [-1] input and output.
func Signature(maxBatch int) *config.Signature {
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.FP32, Dims: tensor.Of(-1)}}
	}
	return &config.Signature{Model: "m", Version: 1, MaxBatch: maxBatch, Inputs: port("INPUT0"), Outputs: port("OUTPUT0")}
}

const maxBatch = 8

// start returns a Bench and a scheduler over n instances of m.
func start(t *testing.T, makeScheduler Make, n int, m Model) (*Bench, scheduler.Scheduler) {
	t.Helper()
	b := NewBench(t, Signature(maxBatch), nil)
	instances := make([]backends.Instance, n)
	for i := range instances {
		instances[i] = m
	}
	return b, makeScheduler(b, instances)
}

// single returns a job of one row that holds one value.
func (b *Bench) single(v float32) *Job { return b.Job(1, b.Floats([]int64{1, 1}, v)) }

// first returns the first value of a batch's row.
func first(b *backends.Batch, row int) float32 {
	width := int(b.In[0].Shape.Dim(1))
	return tensor.Slice[float32](&b.In[0])[row*width]
}

// expect fails the test unless the job ended once, with exactly these values.
func (j *Job) expect(t *testing.T, values ...float32) {
	t.Helper()
	if n := j.Times.Load(); n != 1 {
		t.Errorf("completed %d times", n)
	}
	if j.Err != nil {
		t.Errorf("unexpected error %v", j.Err)
		return
	}
	if got := tensor.Slice[float32](&j.Out[0]); !slices.Equal(got, values) {
		t.Errorf("got %v, want %v", got, values)
	}
	j.Release()
}

// refused fails the test unless the job ended once, with an error and no output.
func (j *Job) refused(t *testing.T, code status.Code) {
	t.Helper()
	if n := j.Times.Load(); n != 1 {
		t.Errorf("completed %d times", n)
	}
	if j.Err == nil || status.CodeOf(j.Err) != code {
		t.Errorf("error %v, want code %v", j.Err, code)
	}
	if j.Out[0].Present() {
		t.Error("a failed task has an output")
		j.Release()
	}
}

// settled fails the test unless no task is in flight and the counters have the given values.
func (b *Bench) settled(t *testing.T, s scheduler.Scheduler, succeeded, failed, cancels uint64) {
	t.Helper()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d tasks are in flight", n)
	}
	if n := b.Stats.Pending(); n != 0 {
		t.Errorf("pending gauge is %d", n)
	}
	f, _ := b.Stats.Failures[telemetry.Backend].Load()
	c, _ := b.Stats.Failures[telemetry.Canceled].Load()
	if n := b.Stats.Requests().Count; n != succeeded || f != failed || c != cancels {
		t.Errorf("counted %d succeeded, %d failed, %d cancelled; want %d, %d, %d", n, f, c, succeeded, failed, cancels)
	}
}

func conservation(t *testing.T, makeScheduler Make, maxRows int) {
	t.Helper()
	const clients, each = 8, 25
	b, s := start(t, makeScheduler, 2, func(b *backends.Batch) error {
		if b.Rows > maxBatch {
			return errors.New("batch too large")
		}
		return Copy(b)
	})
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for k := range each {
				rows := 1 + (c+k)%maxRows
				values := make([]float32, rows*2)
				for i := range values {
					values[i] = float32(c*1000 + k*10 + i)
				}
				j := b.Job(rows, b.Floats([]int64{int64(rows), 2}, values...))
				b.Submit(s, j)
				Wait(j)
				j.expect(t, values...)
			}
		})
	}
	wg.Wait()
	b.settled(t, s, clients*each, 0, 0)
	want := uint64(0)
	for c := range clients {
		for k := range each {
			want += uint64(1 + (c+k)%maxRows)
		}
	}
	if rows := b.Stats.Rows(); rows != want {
		t.Errorf("counted %d rows, want %d", rows, want)
	}
}

func order(t *testing.T, makeScheduler Make) {
	t.Helper()
	var mu sync.Mutex
	var seen []float32
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for row := range b.Rows {
			seen = append(seen, first(b, row))
		}
		return Copy(b)
	})
	jobs := make([]*Job, 30)
	want := make([]float32, len(jobs))
	for i := range jobs {
		want[i] = float32(i)
		jobs[i] = b.single(want[i])
	}
	b.Submit(s, jobs...)
	Wait(jobs...)
	for i, j := range jobs {
		j.expect(t, want[i])
	}
	if !slices.Equal(seen, want) {
		t.Errorf("executed in order %v", seen)
	}
	b.settled(t, s, uint64(len(jobs)), 0, 0)
}

func failureOfOne(t *testing.T, makeScheduler Make) {
	t.Helper()
	bad := status.Errorf(status.InvalidArg, "negative")
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		for row := range b.Rows {
			if first(b, row) < 0 {
				b.Fail(row, bad)
			}
		}
		return Copy(b)
	})
	jobs := []*Job{b.single(1), b.single(-2), b.single(3)}
	b.Submit(s, jobs...)
	Wait(jobs...)
	jobs[0].expect(t, 1)
	jobs[1].refused(t, status.InvalidArg)
	jobs[2].expect(t, 3)
	b.settled(t, s, 2, 1, 0)
}

func failureOfAll(t *testing.T, makeScheduler Make) {
	t.Helper()
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		if err := Copy(b); err != nil {
			return err
		}
		return status.Errorf(status.Unavailable, "out of luck")
	})
	jobs := []*Job{b.single(1), b.single(2)}
	b.Submit(s, jobs...)
	Wait(jobs...)
	for _, j := range jobs {
		j.refused(t, status.Unavailable)
	}
	b.settled(t, s, 0, 2, 0)
}

func panics(t *testing.T, makeScheduler Make) {
	t.Helper()
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		if err := Copy(b); err != nil {
			return err
		}
		if first(b, 0) < 0 {
			panic("negative")
		}
		return nil
	})
	bad, good := b.single(-1), b.single(1)
	b.Submit(s, bad)
	Wait(bad)
	b.Submit(s, good)
	Wait(good)
	bad.refused(t, status.Internal)
	if want := "model 'm' failed: panic: negative"; bad.Err != nil && bad.Err.Error() != want {
		t.Errorf("got error %q, want %q", bad.Err, want)
	}
	good.expect(t, 1)
	b.settled(t, s, 1, 1, 0)
}

func cancelled(t *testing.T, makeScheduler Make) {
	t.Helper()
	var wrong atomic.Int32
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		for row := range b.Rows {
			if first(b, row) < 0 {
				wrong.Add(1)
			}
		}
		return Copy(b)
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	const n = 400 // more than a policy considers
	var jobs []*Job
	for i := range n {
		v := float32(i)
		if i%4 != 0 {
			v = -1
		}
		j := b.single(v)
		if v < 0 {
			j.For(gone)
		}
		jobs = append(jobs, j)
	}
	b.Submit(s, jobs...)
	Wait(jobs...)
	for i, j := range jobs {
		if i%4 == 0 {
			j.expect(t, float32(i))
		} else {
			j.refused(t, status.Cancelled)
		}
	}
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d cancelled tasks were executed", n)
	}
	b.settled(t, s, n/4, 0, n-n/4)
}

// deadline checks that tasks whose deadline has passed fail and do not execute; every second task is such a task.
func deadline(t *testing.T, makeScheduler Make) {
	t.Helper()
	var wrong atomic.Int32
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		for row := range b.Rows {
			if first(b, row) < 0 {
				wrong.Add(1)
			}
		}
		return Copy(b)
	})
	const n = 20
	var jobs []*Job
	for i := range n {
		v, until := float32(i), telemetry.Now()+int64(time.Hour)
		if i%2 != 0 {
			v, until = -1, max(telemetry.Now(), 1) // has passed when it is queued
		}
		j := b.single(v)
		j.Meta.Deadline = until
		jobs = append(jobs, j)
	}
	b.Submit(s, jobs...)
	Wait(jobs...)
	for i, j := range jobs {
		if i%2 == 0 {
			j.expect(t, float32(i))
			continue
		}
		j.refused(t, status.Unavailable)
		if j.Err != nil && j.Err.Error() != status.ErrDeadline.Error() {
			t.Errorf("got error %q, want %q", j.Err, status.ErrDeadline)
		}
	}
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d tasks were executed after their deadline", n)
	}
	b.settled(t, s, n/2, 0, n/2)
}

func drain(t *testing.T, makeScheduler Make) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	b, s := start(t, makeScheduler, 1, func(b *backends.Batch) error {
		close(entered)
		<-leave
		return Copy(b)
	})
	if err := s.Drain(t.Context()); err != nil {
		t.Errorf("drain of nothing: %v", err)
	}
	j := b.single(1)
	var wg sync.WaitGroup
	wg.Go(func() { b.Submit(s, j) })
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(over); !errors.Is(err, context.Canceled) {
		t.Errorf("drain while a task executes: %v, want that the context is over", err)
	}
	drained := make(chan error, 1)
	wg.Go(func() { drained <- s.Drain(t.Context()) })
	select {
	case err := <-drained:
		t.Errorf("drained while a task executes: %v", err)
		drained <- err
	default:
	}
	close(leave)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	wg.Wait()
	Wait(j)
	j.expect(t, 1)
}

// closing counts the calls of Close.
type closing struct {
	Model
	closed atomic.Int32
	err    error
}

func (c *closing) Close() error {
	c.closed.Add(1)
	return c.err
}

func closes(t *testing.T, makeScheduler Make) {
	t.Helper()
	stuck := &closing{Model: Copy, err: errors.New("stuck")}
	b := NewBench(t, Signature(maxBatch), nil)
	s := makeScheduler(b, []backends.Instance{stuck})
	if err := s.Close(); !errors.Is(err, stuck.err) {
		t.Errorf("got error %v, want the instance's", err)
	}
	_ = s.Close() // may be called twice
	if stuck.closed.Load() == 0 {
		t.Error("the instance is not closed")
	}
}

func idle(t *testing.T, makeScheduler Make) {
	t.Helper()
	b, s := start(t, makeScheduler, 1, Copy)
	if s.Help(scheduler.NewRunLoop(b.Workers)) {
		t.Error("helped with nothing to do")
	}
	b.settled(t, s, 0, 0, 0)
}
