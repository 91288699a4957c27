package direct_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

var (
	errRefused = errors.New("refused")
	errLost    = errors.New("lost")
)

// cancelled is the value of a request whose client goes away.
const cancelled = 77

// calls is a model that executes up to four requests in a call, one after the other. It doubles numbers, refuses 13 and loses calls with 66.
type calls struct {
	*schedtest.Bench

	mu    sync.Mutex
	sizes []int // guarded by mu

	started, gate chan struct{} // of the first call
	limiter       scheduler.Limiter
	most          int // requests that a call executes, 0 for all
	before        func(sizes []int)
}

func newCalls(t *testing.T) *calls {
	t.Helper()
	c := &calls{Bench: schedtest.NewBench(t, schedtest.Signature(8), nil), started: make(chan struct{}), gate: make(chan struct{})}
	c.Runner = batch.NewRunner(batch.Settings{
		Signature: c.Sig, Stats: c.Stats, Alloc: c.Alloc, Log: slog.New(slog.DiscardHandler), Serial: func() int { return 4 },
	})
	return c
}

func (c *calls) execute(b *backends.Batch) error {
	c.mu.Lock()
	c.sizes = append(c.sizes, len(b.Requests))
	first, sizes := len(c.sizes) == 1, slices.Clone(c.sizes)
	c.mu.Unlock()
	if c.before != nil {
		c.before(sizes)
	}
	if first {
		close(c.started)
		<-c.gate
	}
	if !b.Serial {
		v := tensor.Slice[float32](&b.In[0])[0]
		if v == 66 {
			return errLost
		}
		return c.double(b.Out, b.In, &b.Requests[0])
	}
	for i := range b.Requests {
		q := &b.Requests[i]
		if q.Unexecuted = c.most > 0 && i >= c.most; q.Unexecuted {
			continue
		}
		if tensor.Slice[float32](&q.In[0])[0] == 66 {
			return errLost
		}
		q.Out = make([]tensor.Tensor, len(b.Out))
		if err := c.double(q.Out, q.In, q); err != nil {
			return err
		}
	}
	return nil
}

func (c *calls) double(out, in []tensor.Tensor, q *backends.Request) error {
	v := tensor.Slice[float32](&in[0])[0]
	if v == 13 {
		q.Err = errRefused
		return nil
	}
	o, err := tensor.New(c.Alloc, tensor.FP32, in[0].Shape)
	if err != nil {
		return err
	}
	tensor.Slice[float32](&o)[0] = 2 * v
	out[0] = o
	return nil
}

// run executes a job, during which the others arrive one by one, and returns the sizes of the calls.
func (c *calls) run(t *testing.T, prepare func([]*schedtest.Job), values ...float32) []int {
	t.Helper()
	s := direct.New(direct.Settings{
		Runner: c.Runner, Instances: []backends.Instance{schedtest.Model(c.execute)}, Limiters: []scheduler.Limiter{c.limiter}, Workers: c.Workers,
	})
	var jobs []*schedtest.Job
	for _, v := range values {
		jobs = append(jobs, c.Job(1, c.Floats([]int64{1, 1}, v)))
	}
	if prepare != nil {
		prepare(jobs)
	}
	var all sync.WaitGroup
	all.Go(func() { c.Submit(s, jobs[0]) })
	<-c.started
	loop := scheduler.NewRunLoop(c.Workers)
	for _, j := range jobs[1:] {
		loop.Stage(s, &j.Task)
		loop.Dispatch()
	}
	loop.Finish()
	close(c.gate)
	schedtest.Wait(jobs...)
	all.Wait()
	for i, j := range jobs {
		switch v := values[i]; {
		case v == cancelled && !errors.Is(j.Err, status.ErrCancelled):
			t.Errorf("job %d: error %v, want it cancelled", i, j.Err)
		case v == 13 && !errors.Is(j.Err, errRefused), v == 66 && !errors.Is(j.Err, errLost):
			t.Errorf("job %d: error %v", i, j.Err)
		case v == 13 || v == 66 || v == cancelled:
		case j.Err != nil || tensor.Slice[float32](&j.Out[0])[0] != 2*v:
			t.Errorf("job %d of %v: error %v or another output", i, v, j.Err)
		}
		j.Release()
	}
	return c.sizes
}

// TestSerial checks that requests which wait are passed to an instance together, that errors are their own, and that each counts as an
// execution.
func TestSerial(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	if got, want := c.run(t, nil, 1, 2, 3, 13, 5, 6, 7), []int{1, 4, 2}; !slices.Equal(got, want) {
		t.Errorf("calls of %v requests, want %v", got, want)
	}
	if n := c.Stats.Executions(); n != 7 {
		t.Errorf("%d executions counted, want 7", n)
	}
	for rows := range c.Stats.Batches {
		if rows != 1 {
			t.Errorf("a batch of %d rows counted, want 1", rows)
		}
	}
	if n := c.Stats.Requests().Count; n != 6 {
		t.Errorf("%d requests succeeded, want 6", n)
	}
}

// TestSerialLost checks that the requests of a call that fails as a whole are executed one by one, so that one fails alone
// and those before it have their responses.
func TestSerialLost(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	var all []*schedtest.Job
	c.before = func(sizes []int) {
		if len(sizes) == 4 { // that of the request at fault, which may hang
			schedtest.Wait(all[:2]...)
		}
	}
	prepare := func(jobs []*schedtest.Job) { all = jobs }
	if got, want := c.run(t, prepare, 1, 2, 66, 4), []int{1, 3, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("calls of %v requests, want %v", got, want)
	}
}

// counter is a limiter that counts executions.
type counter struct{ n int }

func (c *counter) Acquire(func()) bool {
	c.n++
	return true
}

func (*counter) Release() {}

// TestSerialLimited checks that a limiter counts each execution.
func TestSerialLimited(t *testing.T) {
	t.Parallel()
	c, l := newCalls(t), &counter{}
	c.limiter = l
	if got, want := c.run(t, nil, 1, 2, 3), []int{1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("calls of %v requests, want %v", got, want)
	}
	if l.n != 3 {
		t.Errorf("the limiter counted %d executions, want 3", l.n)
	}
}

// sizes checks that traced batches have one request.
type sizes struct{ *testing.T }

func (s sizes) Batch(b *tracing.Batch) {
	if b.Members != 1 {
		s.Errorf("a traced batch of %d requests, want one", b.Members)
	}
}

func (sizes) Trace(*tracing.Trace) {}

// TestSerialTraced checks that traced requests are executed one by one.
func TestSerialTraced(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	tracer, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{sizes{t}}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	got := c.run(t, func(jobs []*schedtest.Job) {
		jobs[2].Traced = &scheduler.TaskTrace{Trace: tracer.Sample("m", 1, "")}
	}, 1, 2, 3)
	if want := []int{1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("calls of %v requests, want %v", got, want)
	}
}

// TestSerialUnexecuted checks that requests which a call has left are executed by the next ones, once, and after those before them have completed.
func TestSerialUnexecuted(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	c.most = 2
	var all []*schedtest.Job
	c.before = func(sizes []int) {
		if done := map[int]int{3: 3, 4: 5}[len(sizes)]; done > 0 {
			schedtest.Wait(all[:done]...)
		}
	}
	prepare := func(jobs []*schedtest.Job) { all = jobs }
	if got, want := c.run(t, prepare, 1, 2, 3, 4, 5, 6), []int{1, 4, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("calls of %v requests, want %v", got, want)
	}
	if n := c.Stats.Executions(); n != 6 {
		t.Errorf("%d executions counted, want 6", n)
	}
}

// TestSerialCancelled checks that requests which a call has left are not executed once their clients have gone.
func TestSerialCancelled(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	c.most = 1
	ctx, cancel := context.WithCancel(t.Context())
	var all []*schedtest.Job
	c.before = func(sizes []int) {
		if len(sizes) == 2 {
			cancel()
		}
	}
	prepare := func(jobs []*schedtest.Job) {
		all = jobs
		all[2].For(ctx)
		all[3].For(ctx)
	}
	if got, want := c.run(t, prepare, 1, 2, cancelled, cancelled), []int{1, 3}; !slices.Equal(got, want) {
		t.Errorf("calls of %v requests, want %v", got, want)
	}
}

// TestSerialInstances checks that each request is executed once where instances share what calls have left.
func TestSerialInstances(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	c.most = 1
	close(c.gate)
	var instances []backends.Instance
	for range 3 {
		instances = append(instances, schedtest.Model(c.execute))
	}
	s := direct.New(direct.Settings{Runner: c.Runner, Instances: instances, Workers: c.Workers})
	var jobs []*schedtest.Job
	for i := range 500 {
		jobs = append(jobs, c.Job(1, c.Floats([]int64{1, 1}, float32(100+i))))
	}
	var all sync.WaitGroup
	for part := range slices.Chunk(jobs, 50) {
		all.Go(func() {
			for _, j := range part {
				loop := scheduler.NewRunLoop(c.Workers)
				loop.Stage(s, &j.Task)
				loop.Dispatch()
				loop.Finish()
			}
		})
	}
	all.Wait()
	schedtest.Wait(jobs...)
	for i, j := range jobs {
		if j.Err != nil || tensor.Slice[float32](&j.Out[0])[0] != float32(2*(100+i)) || j.Times.Load() != 1 {
			t.Errorf("job %d: error %v, completed %d times", i, j.Err, j.Times.Load())
		}
		j.Release()
	}
	if n := c.Stats.Executions(); n != uint64(len(jobs)) {
		t.Errorf("%d executions counted, want %d", n, len(jobs))
	}
}
