package exec_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// mode selects where models run: host, device or mixed.
var mode string

// everyMode runs every test three times: with models on the host, on a device, and with every second model on a
// device. See simtest.New for the devices.
type everyMode struct{ m *testing.M }

func (e everyMode) Run() int {
	code := 0
	for _, mode = range []string{"", "device", "mixed"} {
		failed := e.m.Run()
		if failed != 0 && mode != "" {
			fmt.Fprintln(os.Stderr, "these failed with models at devices:", mode)
		}
		code = max(code, failed)
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(everyMode{m}) }

// model is a test instance, as a function of a batch.
type model func(b *backends.Batch) error

func (f model) Execute(_ context.Context, b *backends.Batch) error { return f(b) }
func (model) Close() error                                         { return nil }

// share returns every input as the output of the same position, without a copy.
func share(b *backends.Batch) error {
	for i := range b.Out {
		b.SetOutput(i, b.In[i].Retain())
	}
	return nil
}

// add returns a model that adds x to every element of its FP32 inputs.
func add(x float32) model {
	return func(b *backends.Batch) error {
		for i := range b.In {
			if !b.In[i].Present() {
				continue
			}
			out, err := b.Alloc(i, tensor.FP32, b.In[i].Shape)
			if err != nil {
				return err
			}
			dst := tensor.Slice[float32](out)
			for j, v := range tensor.Slice[float32](&b.In[i]) {
				dst[j] = v + x
			}
		}
		return nil
	}
}

// signature returns a signature of n FP32[-1] inputs INPUTi and outputs OUTPUTi.
func signature(name string, n, maxBatch int) *config.Signature {
	s := &config.Signature{Model: name, Version: 1, MaxBatch: maxBatch}
	for i := range n {
		s.Inputs = append(s.Inputs, config.Port{Name: fmt.Sprintf("INPUT%d", i), DType: tensor.FP32, Dims: tensor.Of(-1)})
		s.Outputs = append(s.Outputs, config.Port{Name: fmt.Sprintf("OUTPUT%d", i), DType: tensor.FP32, Dims: tensor.Of(-1)})
	}
	return s
}

// bench builds executors over functions.
type bench struct {
	workers *scheduler.Workers
	alloc   tensor.Allocator
	device  *testDevice // nil: all models are on the host
	log     *slog.Logger
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	b := newHostBench(tb)
	if mode != "" {
		b.device = newTestDevice(tb, b, mode == "mixed")
	}
	return b
}

// newHostBench returns a bench whose models are on the host in every mode.
func newHostBench(tb testing.TB) *bench {
	tb.Helper()
	b := &bench{workers: scheduler.NewWorkers(), alloc: tensortest.NewChecked(tb, nil)}
	tb.Cleanup(b.workers.Close)
	return b
}

func (b *bench) runner(sig *config.Signature) *batch.Runner {
	return batch.NewRunner(batch.Settings{
		Signature: sig, Stats: b.stats(sig.Model), Alloc: b.alloc, Log: slog.New(slog.DiscardHandler), Mover: b.mover(),
	})
}

func (b *bench) inline(sig *config.Signature, f model) scheduler.Scheduler {
	if placed := b.onDevice(f); placed != nil {
		return direct.New(direct.Settings{Runner: b.runner(sig), Instances: placed, Workers: b.workers})
	}
	return direct.NewInline(direct.Settings{Runner: b.runner(sig), Instances: []backends.Instance{f}})
}

func (b *bench) batching(sig *config.Signature, rules dynamic.Rules, f ...backends.Instance) scheduler.Scheduler {
	if placed := b.onDevice(f...); placed != nil {
		f = placed
	}
	return dynamic.New(dynamic.Settings{Runner: b.runner(sig), Instances: f, Workers: b.workers}, rules)
}

func (b *bench) executor(p *plan.Plan, targets ...scheduler.Scheduler) *exec.Executor {
	return exec.New(exec.Settings{Plan: p, Targets: targets, Stats: b.stats("e"), Workers: b.workers, Mover: b.mover(), Alloc: b.alloc})
}

func (b *bench) request(values ...float32) *infer.Request {
	req := infer.NewRequest()
	req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT0", Tensor: b.floats(values)})
	return req
}

func (b *bench) floats(values []float32) tensor.Tensor {
	t, err := tensor.New(b.alloc, tensor.FP32, tensor.Of(1, int64(len(values))))
	if err != nil {
		panic(err)
	}
	copy(tensor.Slice[float32](&t), values)
	return t
}

// chain returns the plan of n models, each OUTPUT0 feeding the next INPUT0.
func chain(n int, sig *config.Signature) *plan.Plan {
	p := &plan.Plan{Signature: sig, Ensemble: true, Slots: n + 1, AllNodes: plan.NewNodeSet(n)}
	for i := range n + 1 {
		p.Names = append(p.Names, fmt.Sprintf("t%d", i))
		p.Readers = append(p.Readers, 1)
		p.Consumers = append(p.Consumers, nil)
	}
	for i := range n {
		p.Nodes = append(p.Nodes, plan.Node{
			Name: fmt.Sprintf("n%d", i), Model: "m", Version: 1, Signature: sig, Need: 1,
			In: []plan.Slot{plan.Slot(i)}, Out: []plan.Slot{plan.Slot(i + 1)}, Rules: make([]plan.BatchRule, 1), Ensembles: []string{"chain"},
		})
		p.Consumers[i] = []plan.InputRef{{Node: int32(i)}}
		p.AllNodes.Add(int32(i))
	}
	p.Inputs, p.Outputs = []plan.Slot{0}, []plan.Slot{plan.Slot(n)}
	p.OutputNodes = []plan.NodeSet{p.AllNodes}
	return p
}

func inferOne(tb testing.TB, x infer.Inferer, req *infer.Request) ([]float32, error) {
	tb.Helper()
	call := infer.NewCall()
	x.Submit(tb.Context(), req, call)
	resp, err := call.Wait()
	if err != nil {
		return nil, err
	}
	defer resp.Release()
	return append([]float32(nil), tensor.Slice[float32](&resp.Outputs[0].Tensor)...), nil
}

func TestChain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	m := b.batching(sig, dynamic.Rules{MaxBatch: 8}, add(1), add(1))
	x := b.executor(chain(3, sig), m, b.inline(sig, add(10)), m)
	got, err := inferOne(t, x, b.request(1, 2))
	if err != nil || len(got) != 2 || got[0] != 13 || got[1] != 14 {
		t.Fatalf("got %v, %v; want [13 14]", got, err)
	}
}

func TestStepFailureNamesTheEnsemble(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	broken := model(func(*backends.Batch) error { return errors.New("out of luck") })
	x := b.executor(chain(3, sig), b.inline(sig, share), b.inline(sig, broken), b.inline(sig, share))
	_, err := inferOne(t, x, b.request(1))
	if err == nil || err.Error() != "in ensemble 'chain', out of luck" {
		t.Fatalf("got error %v", err)
	}
}

func TestPanicFailsTheRequestOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sig := signature("m", 1, 8)
	x := b.executor(plan.Single(sig), b.batching(sig, dynamic.Rules{MaxBatch: 8}, model(func(bt *backends.Batch) error {
		if tensor.Slice[float32](&bt.In[0])[0] < 0 {
			panic("negative")
		}
		return share(bt)
	})))
	if _, err := inferOne(t, x, b.request(-1)); err == nil {
		t.Fatal("a panic is not reported")
	}
	if got, err := inferOne(t, x, b.request(1)); err != nil || got[0] != 1 {
		t.Fatalf("after a panic: got %v, %v", got, err)
	}
}

func BenchmarkChain(b *testing.B) {
	for _, n := range []int{1, 3, 100} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			bn := &bench{workers: scheduler.NewWorkers(), alloc: tensor.NewPool()}
			defer bn.workers.Close()
			sig := signature("m", 1, 8)
			targets := make([]scheduler.Scheduler, n)
			for i := range targets {
				targets[i] = bn.inline(sig, share)
			}
			run(b, bn, bn.executor(chain(n, sig), targets...))
		})
	}
	for _, limit := range []time.Duration{0, time.Minute} {
		b.Run(fmt.Sprintf("batched/limit=%v", limit), func(b *testing.B) {
			bn := &bench{workers: scheduler.NewWorkers(), alloc: tensor.NewPool()}
			defer bn.workers.Close()
			sig := signature("m", 1, 8)
			m := func() scheduler.Scheduler { return bn.batching(sig, dynamic.Rules{MaxBatch: 8}, model(share)) }
			runWithin(b, bn, bn.executor(chain(3, sig), m(), m(), m()), limit)
		})
	}
}

func run(b *testing.B, bn *bench, x infer.Inferer) {
	b.Helper()
	runWithin(b, bn, x, 0)
}

// runWithin is run with a deadline for each request, so long after its arrival; 0 for none.
func runWithin(b *testing.B, bn *bench, x infer.Inferer, limit time.Duration) {
	b.Helper()
	input := bn.floats([]float32{1, 2})
	defer input.Release()
	ctx := context.Background()
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		req := infer.NewRequest()
		req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT0", Tensor: input.Retain()})
		if limit > 0 {
			req.Deadline = telemetry.Now() + int64(limit)
		}
		call := infer.NewCall()
		x.Submit(ctx, req, call)
		resp, err := call.Wait()
		if err != nil {
			b.Fatal(err)
		}
		resp.Release()
	}
	// CPU time is less noisy than wall time while other processes run.
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpu returns the CPU time of the process in nanoseconds.
func cpu(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
