package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// rowFunc computes one row of a model's output from its inputs, nil for absent ones. The sequential interpreter
// consists of these functions.
type rowFunc func(in []*float32) (float32, error)

// forest is a random ensemble of ensembles with its sequential interpreter.
type forest struct {
	rng   *rand.Rand
	fails int // the model that fails for every third value, or -1
	kinds map[string]plan.Model
	ids   map[string]int // of the models that execute

	cfg   *modelconfig.ModelConfig
	steps []rowFunc
	reads [][]int // per step: the tensors it reads; the first two are the inputs
	outs  []int   // tensors that are outputs
}

// Model implements plan.Lookup.
func (f *forest) Model(name string, _ int64) (plan.Model, error) {
	m, ok := f.kinds[name]
	if !ok {
		return m, fmt.Errorf("no model '%s'", name)
	}
	return m, nil
}

func ensemble(name string, inputs int, outputs ...string) *modelconfig.ModelConfig {
	c := &modelconfig.ModelConfig{Name: name, Platform: "ensemble", MaxBatchSize: 8}
	for i := range inputs {
		c.Input = append(c.Input, &modelconfig.ModelInput{Name: fmt.Sprintf("INPUT%d", i), DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{-1}, Optional: i > 0})
	}
	for _, o := range outputs {
		c.Output = append(c.Output, &modelconfig.ModelOutput{Name: o, DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{-1}})
	}
	c.SchedulingChoice = &modelconfig.ModelConfig_EnsembleScheduling{EnsembleScheduling: &modelconfig.ModelEnsembling{}}
	return c
}

func addStep(c *modelconfig.ModelConfig, model, out string, in ...string) {
	inputs := map[string]string{}
	for i, name := range in {
		inputs[fmt.Sprintf("INPUT%d", i)] = name
	}
	e := c.GetEnsembleScheduling()
	e.Step = append(e.Step, &modelconfig.ModelEnsembling_Step{ModelName: model, ModelVersion: -1, InputMap: inputs, OutputMap: map[string]string{"OUTPUT0": out}})
}

// model returns a model with the given number of inputs: one that executes, or an ensemble of two.
func (f *forest) model(inputs, depth int) (string, rowFunc) {
	if depth == 0 || f.rng.IntN(3) > 0 {
		return f.leaf()
	}
	first, a := f.model(inputs, depth-1)
	second, b := f.model(2, depth-1)
	name := fmt.Sprintf("nest%d", len(f.kinds))
	c := ensemble(name, inputs, "OUTPUT0")
	names := []string{"INPUT0", "INPUT1", "INPUT2"}
	addStep(c, first, "middle", names[:inputs]...)
	addStep(c, second, "OUTPUT0", "middle", "INPUT0")
	f.kinds[name] = plan.Model{Signature: config.SignatureOf(c), Ensemble: c}
	return name, func(in []*float32) (float32, error) {
		middle, err := a(in)
		if err != nil {
			return 0, err
		}
		return b([]*float32{&middle, in[0]})
	}
}

func (f *forest) leaf() (string, rowFunc) {
	id := len(f.ids)
	sig := sumSignature()
	sig.Model = fmt.Sprintf("sum%d", id)
	f.ids[sig.Model] = id
	f.kinds[sig.Model] = plan.Model{Signature: sig}
	return sig.Model, func(in []*float32) (float32, error) {
		if id == f.fails && third(*in[0]) {
			return 0, errBroken
		}
		v := float32(id)
		for _, x := range in {
			if x != nil {
				v += *x
			}
		}
		return v, nil
	}
}

func third(v float32) bool { return math.Mod(float64(v), 3) == 0 }

func newForest(rng *rand.Rand, steps int) *forest {
	f := &forest{rng: rng, fails: -1, kinds: map[string]plan.Model{}, ids: map[string]int{}}
	if rng.IntN(4) == 0 {
		f.fails = rng.IntN(steps)
	}
	read := make([]bool, steps+2)
	f.cfg = ensemble("forest", 2)
	names := []string{"INPUT0", "INPUT1"}
	for i := range steps {
		var reads []int
		var in []string
		for port := range max(1+rng.IntN(3), 2-i) {
			s := rng.IntN(i + 2)
			switch {
			case port == 0 && s == 1:
				s = 0 // the first input is required
			case port == 1 && i == 0:
				s = 1 // so that both inputs are read
			default:
			}
			read[s] = true
			reads, in = append(reads, s), append(in, names[s])
		}
		name, does := f.model(len(in), 3)
		out := fmt.Sprintf("t%d", i)
		addStep(f.cfg, name, out, in...)
		names = append(names, out)
		f.steps, f.reads = append(f.steps, does), append(f.reads, reads)
	}
	for s := 2; s < len(read); s++ {
		if !read[s] {
			f.outs = append(f.outs, s)
			f.cfg.Output = append(f.cfg.Output, &modelconfig.ModelOutput{Name: names[s], DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{-1}})
		}
	}
	return f
}

// interpret computes tensor s and its dependencies, one step at a time.
func (f *forest) interpret(s int, known map[int]*float32) (*float32, error) {
	if v, ok := known[s]; ok || s < 2 {
		return v, nil
	}
	var in []*float32
	for _, r := range f.reads[s-2] {
		v, err := f.interpret(r, known)
		if err != nil {
			return nil, err
		}
		in = append(in, v)
	}
	v, err := f.steps[s-2](in)
	known[s] = &v
	return &v, err
}

// build compiles f over inline, single and batching schedulers.
func (f *forest) build(t *testing.T, b *bench) *exec.Executor {
	t.Helper()
	p, err := plan.Compile(f.cfg, 1, f)
	if err != nil {
		t.Fatal(err)
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range targets {
		id := f.ids[p.Nodes[i].Model]
		does := sum(float32(id))
		m := does
		if id == f.fails {
			m = func(bt *backends.Batch) error {
				for row, v := range tensor.Slice[float32](&bt.In[0]) {
					if third(v) {
						bt.Fail(row, errBroken)
					}
				}
				return does(bt)
			}
		}
		if f.rng.IntN(2) == 0 {
			targets[i] = b.inline(p.Nodes[i].Signature, m)
			continue
		}
		targets[i] = b.batching(p.Nodes[i].Signature, dynamic.Rules{MaxBatch: int32(1 + f.rng.IntN(8))},
			slices.Repeat([]backends.Instance{m}, 1+f.rng.IntN(2))...)
	}
	return b.executor(p, targets...)
}

// TestRandomNests compares compiled random ensembles of ensembles with the sequential interpreter, under bursts of
// requests that batch together.
func TestRandomNests(t *testing.T) {
	t.Parallel()
	graphs, bursts := 60, 10
	if testing.Short() || mode != "" {
		graphs, bursts = 15, 3
	}
	for seed := range uint64(graphs) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // reproducible by seed
			b, f := newBench(t), newForest(rng, 1+rng.IntN(80))
			x := f.build(t, b)
			var wg sync.WaitGroup
			for range bursts {
				var asked []*nestedRequest
				for range 1 + rng.IntN(8) {
					asked = append(asked, newNestedRequest(rng, f))
				}
				wg.Go(func() {
					for _, q := range asked {
						q.send(t, b, x, f)
					}
					for _, q := range asked {
						q.check(t, f)
					}
				})
			}
			wg.Wait()
			if err := x.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// nestedRequest is one request.
type nestedRequest struct {
	given   map[int]*float32
	outputs []int // tensors
	cancel  bool
	call    *infer.Call
}

func newNestedRequest(rng *rand.Rand, f *forest) *nestedRequest {
	number := func() *float32 {
		v := float32(rng.IntN(50))
		return &v
	}
	q := &nestedRequest{given: map[int]*float32{0: number()}, cancel: rng.IntN(10) == 0, outputs: slices.Clone(f.outs), call: infer.NewCall()}
	if rng.IntN(2) == 0 {
		q.given[1] = number()
	}
	if rng.IntN(2) == 0 {
		q.outputs = q.outputs[:1+rng.IntN(len(q.outputs))]
	}
	return q
}

func (q *nestedRequest) send(t *testing.T, b *bench, x *exec.Executor, f *forest) {
	t.Helper()
	req := b.request(*q.given[0])
	req.Async = true
	if v := q.given[1]; v != nil {
		req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT1", Tensor: b.floats([]float32{*v})})
	}
	if len(q.outputs) < len(f.outs) {
		for _, s := range q.outputs {
			req.Outputs = append(req.Outputs, fmt.Sprintf("t%d", s-2))
		}
	}
	ctx := t.Context()
	if q.cancel {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ctx = over
	}
	x.Submit(ctx, req, q.call)
}

func (q *nestedRequest) check(t *testing.T, f *forest) {
	t.Helper()
	var want []float32
	var wrong error
	for _, s := range q.outputs {
		v, err := f.interpret(s, q.given)
		if err != nil {
			wrong = err
			break
		}
		want = append(want, *v)
	}
	resp, err := q.call.Wait()
	switch {
	case q.cancel && status.CodeOf(err) == status.Cancelled:
		return
	case wrong != nil && errors.Is(err, errBroken):
		return
	case err != nil || wrong != nil:
		t.Errorf("got error %v, the interpreter %v", err, wrong)
		return
	}
	var got []float32
	for i := range resp.Outputs {
		got = append(got, tensor.Slice[float32](&resp.Outputs[i].Tensor)...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, the interpreter %v", got, want)
	}
	resp.Release()
}
