package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// errSlow reports that a figure is beyond its limit.
var errSlow = errors.New("a figure is beyond its limit")

// sched measures the cost that schedulers and the executor add to the models' own work, in this process.
func (b *bench) sched() error {
	s := &schedBench{bench: b, workers: scheduler.NewWorkers(), alloc: tensor.NewPool()}
	defer s.workers.Close()
	for _, part := range []func() error{s.chains, s.traced, s.shapes, s.idle, s.many, s.depth} {
		if err := part(); err != nil {
			return err
		}
	}
	if s.over {
		return errors.Join(b.table.Flush(), errSlow)
	}
	return nil
}

type schedBench struct {
	*bench
	workers *scheduler.Workers
	alloc   tensor.Allocator
	over    bool
}

// limit prints one figure beside its limit.
func (s *schedBench) limit(what, unit string, figure, most float64) {
	verdict := ""
	if figure > most {
		s.over, verdict = true, "\tOVER"
	}
	fmt.Fprintf(s.table, "%s\t%.2f %s\t(at most %.2f)%s\n", what, figure, unit, most, verdict)
}

// cost is the cost of one call.
type cost struct{ cpu, allocs float64 }

// measure returns the CPU time in ns and the allocations of one of n calls, from the fastest round. Other load on
// the machine only adds time.
func (s *schedBench) measure(n int, run func(n int)) cost { return s.inTurns(n, run)[0] }

// inTurns measures several programs of n calls each. They run one after another in every round.
func (s *schedBench) inTurns(n int, programs ...func(n int)) []cost {
	costs := slices.Repeat([]cost{{math.Inf(1), math.Inf(1)}}, len(programs))
	for _, run := range programs {
		run(max(n/10, 1)) // fills the pools
	}
	for range s.rounds {
		for i, run := range programs {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := processCPU()
			run(n)
			took := processCPU() - began
			runtime.ReadMemStats(&after)
			costs[i].cpu = min(costs[i].cpu, float64(took)/float64(n))
			costs[i].allocs = min(costs[i].allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
		}
	}
	return costs
}

func processCPU() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		fail(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// noop is an identity model that optionally uses some CPU time.
type noop struct {
	work  time.Duration
	calls *atomic.Int64 // counts executions, unless nil
}

func (m noop) Execute(_ context.Context, b *backends.Batch) error {
	if m.calls != nil {
		m.calls.Add(1)
	}
	if m.work > 0 {
		for began := telemetry.Now(); telemetry.Now()-began < int64(m.work); {
		}
	}
	for i := range b.Out {
		b.SetOutput(i, b.In[0].Retain())
	}
	return nil
}
func (noop) Close() error { return nil }

// bare is a scheduler that does nothing but pass tasks on, which leaves the cost of the executor.
type bare struct{}

var _ scheduler.Inliner = bare{}

func (s bare) Enqueue(list scheduler.TaskList, t *scheduler.RunLoop) { t.Inline(s, list) }

// RunInline makes each task's input its output.
func (bare) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) {
	for w := list.Head; w != nil; w = w.Next() {
		for i := range w.Out {
			w.Out[i] = w.In[0].Retain()
		}
		tensor.ReleaseAll(w.In)
	}
	scheduler.Complete(list, t)
}
func (bare) Help(*scheduler.RunLoop) bool { return false }
func (bare) InFlight() int64              { return 0 }
func (bare) Drain(context.Context) error  { return nil }
func (bare) Close() error                 { return nil }

func (s *schedBench) runner(sig *config.Signature) *batch.Runner {
	return batch.NewRunner(batch.Settings{
		Signature: sig, Stats: &telemetry.Model{Name: sig.Model}, Alloc: s.alloc, Log: slog.New(slog.DiscardHandler),
	})
}

func (s *schedBench) inline(sig *config.Signature) scheduler.Scheduler {
	return direct.NewInline(direct.Settings{Runner: s.runner(sig), Instances: []backends.Instance{noop{}}})
}

func (s *schedBench) batching(sig *config.Signature, m noop) scheduler.Scheduler {
	return dynamic.New(dynamic.Settings{
		Runner: s.runner(sig), Instances: []backends.Instance{m}, Workers: s.workers,
	}, dynamic.Rules{MaxBatch: 8})
}

// executor returns an executor of g with a new scheduler for each step.
func (s *schedBench) executor(g *graph, target func(sig *config.Signature) scheduler.Scheduler) (*exec.Executor, error) {
	p, err := plan.Compile(g.cfg, 1, g)
	if err != nil {
		return nil, err
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range targets {
		targets[i] = target(p.Nodes[i].Signature)
	}
	return exec.New(exec.Settings{Plan: p, Targets: targets, Stats: &telemetry.Model{}, Workers: s.workers}), nil
}

// infer sends n requests one after another.
func (s *schedBench) infer(x infer.Inferer, n int) {
	c := s.client(x, "t0")
	defer c.close()
	c.infer(n)
}

// client sends a request when the response to the last one is complete.
type client struct {
	x      infer.Inferer
	name   string
	input  tensor.Tensor
	ctx    context.Context //nolint:containedctx // that of all its requests
	cancel context.CancelFunc
}

func (s *schedBench) client(x infer.Inferer, name string) *client {
	input, err := tensor.New(s.alloc, tensor.FP32, tensor.Of(1, 2))
	fail(err)
	c := &client{x: x, name: name, input: input}
	c.ctx, c.cancel = context.WithCancel(context.Background()) // can be cancelled, as a front end's context can
	return c
}

func (c *client) close() {
	c.cancel()
	c.input.Release()
}

func (c *client) infer(n int) {
	for range n {
		req := infer.NewRequest()
		req.Inputs = append(req.Inputs, infer.Named{Name: c.name, Tensor: c.input.Retain()})
		call := infer.NewCall()
		c.x.Submit(c.ctx, req, call)
		resp, err := call.Wait()
		fail(err)
		resp.Release()
	}
}

// chains measures chains of models that do no work.
func (s *schedBench) chains() error {
	for _, c := range []struct {
		what   string
		nodes  int
		limit  float64
		target func(*config.Signature) scheduler.Scheduler
	}{
		{"chain of 3, executor alone", 3, 1, func(*config.Signature) scheduler.Scheduler { return bare{} }},
		{"chain of 3, with statistics", 3, 1.5, s.inline},
		{"chain of 3 batching models", 3, 1.5, func(sig *config.Signature) scheduler.Scheduler { return s.batching(sig, noop{}) }},
		{"chain of 100, with statistics", 100, 50, s.inline},
	} {
		x, err := s.executor(chain(c.nodes), c.target)
		if err != nil {
			return err
		}
		got := s.measure(600_000/c.nodes, func(n int) { s.infer(x, n) })
		s.limit(c.what, "us of CPU", got.cpu/1000, c.limit)
		s.limit("  its allocations", "per request", got.allocs, 0.01)
	}
	return nil
}

// shapes measures the cost of a step in small and in large graphs.
func (s *schedBench) shapes() error {
	for _, kind := range []struct {
		what   string
		target func(*config.Signature) scheduler.Scheduler
	}{
		{"executor alone", func(*config.Signature) scheduler.Scheduler { return bare{} }},
		{"with statistics", s.inline},
		{"batching models", func(sig *config.Signature) scheduler.Scheduler { return s.batching(sig, noop{}) }},
	} {
		small, err := s.step(chain(3), 3, kind.target)
		if err != nil {
			return err
		}
		s.limit("a step of a chain of 3, "+kind.what, "us of CPU", small.cpu/1000, 1)
		for _, c := range []struct {
			what string
			of   func(n int) *graph
			n    int
		}{{"chain of 100", chain, 100}, {"chain of 1,000", chain, 1000}, {"fan of 1,000", fan, 1000}} {
			big, err := s.step(c.of(c.n), c.n, kind.target)
			if err != nil {
				return err
			}
			s.limit("  that of a "+c.what, "us of CPU", big.cpu/1000, 1)
			s.limit("  against the chain of 3", "x", big.cpu/small.cpu, 1.5)
			s.limit("  its allocations", "per 1,000 steps", 1000*big.allocs/float64(c.n), 1)
		}
	}
	return nil
}

// step returns the cost of a step in a graph of n steps, and the allocations of a whole request.
func (s *schedBench) step(g *graph, n int, target func(*config.Signature) scheduler.Scheduler) (cost, error) {
	x, err := s.executor(g, target)
	if err != nil {
		return cost{}, err
	}
	c := s.client(x, "t0")
	defer c.close()
	got := s.measure(600_000/n, c.infer)
	got.cpu /= float64(n)
	return got, nil
}

// job is one task that is reused.
type job struct {
	scheduler.Task
	left *sync.WaitGroup
}

// Complete marks the tasks as done.
func (*job) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	for w := list.Pop(); w != nil; w = list.Pop() {
		fail(w.Err)
		tensor.ReleaseAll(w.Out)
		w.Run.(*job).left.Done() //nolint:errcheck,forcetypeassert // set by newJob
	}
}

func newJob(ctx context.Context, left *sync.WaitGroup) *job {
	j := &job{left: left}
	j.Task = scheduler.Task{
		TaskRequest: scheduler.TaskRequest{Rows: 1, Meta: &infer.Meta{}, Ctx: ctx, Run: j, To: j, In: make([]tensor.Tensor, 1)},
		TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
	}
	return j
}

// idle measures one caller of an idle model with dynamic batching.
func (s *schedBench) idle() error {
	queue := s.batching(schedSignature(1), noop{})
	input, err := tensor.New(s.alloc, tensor.FP32, tensor.Of(1, 2))
	if err != nil {
		return err
	}
	defer input.Release()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left sync.WaitGroup
	j, loop := newJob(ctx, &left), scheduler.NewRunLoop(s.workers)
	over := func() bool { return true }
	got := s.measure(1_000_000, func(n int) {
		for range n {
			left.Add(1)
			j.In[0] = input.Retain()
			loop.Tick(0)
			loop.Stage(queue, &j.Task)
			loop.Dispatch()
			loop.RunUntil(over)
			left.Wait()
		}
	})
	s.limit("one caller at an idle batcher, with statistics", "ns of CPU", got.cpu, 300)
	s.limit("  its allocations", "per request", got.allocs, 0.01)
	return nil
}

// depth compares the cost of a request in a short queue and in a long one.
func (s *schedBench) depth() error {
	input, err := tensor.New(s.alloc, tensor.FP32, tensor.Of(1, 2))
	if err != nil {
		return err
	}
	defer input.Release()
	short := s.queued(&input, 1)
	for _, n := range []int{100, 10_000} {
		s.limit(fmt.Sprintf("cost of a request, %d queued against 1", n), "x", s.queued(&input, n)/short, 1.5)
	}
	return nil
}

// queued returns the cost of a request that joins a queue of the given length, which stays constant.
func (s *schedBench) queued(input *tensor.Tensor, depth int) float64 {
	queue := s.batching(schedSignature(1), noop{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left sync.WaitGroup
	jobs := make([]*job, depth)
	for i := range jobs {
		jobs[i] = newJob(ctx, &left)
	}
	loop := scheduler.NewRunLoop(s.workers)
	over := func() bool { return false }
	return s.measure(max(200_000, depth), func(n int) {
		for done := 0; done < n; done += depth {
			loop.Tick(0)
			left.Add(depth)
			for _, j := range jobs {
				j.In[0] = input.Retain()
				loop.Stage(queue, &j.Task)
				loop.Dispatch()
			}
			loop.RunUntil(over)
			left.Wait()
		}
	}).cpu
}
