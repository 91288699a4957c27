package exec_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// branching is an ensemble with conditions, whose models are functions of one number. It implements plan.Lookup.
type branching struct {
	cfg    *modelconfig.ModelConfig
	models map[string]plan.Model
	does   map[string]func(in []float32) (float32, error)
	rows   map[string]*atomic.Int64 // rows that each model executed
	batch  map[string]model         // models that are functions of a batch
}

func (e *branching) Model(name string, _ int64) (plan.Model, error) {
	m, ok := e.models[name]
	if !ok {
		return m, status.Errorf(status.NotFound, "no model '%s'", name)
	}
	return m, nil
}

func newBranching(maxBatch int32, outputs ...string) *branching {
	e := &branching{cfg: ensemble("e", 1, outputs...), models: map[string]plan.Model{}, does: map[string]func([]float32) (float32, error){}, rows: map[string]*atomic.Int64{}, batch: map[string]model{}}
	e.cfg.MaxBatchSize = maxBatch
	return e
}

// param sets a parameter of the ensemble.
func (e *branching) param(key, value string) {
	if e.cfg.Parameters == nil {
		e.cfg.Parameters = map[string]*modelconfig.ModelParameter{}
	}
	e.cfg.Parameters[key] = &modelconfig.ModelParameter{StringValue: value}
}

// step adds a model and a step of the same name, which writes out.
func (e *branching) step(name, out string, does func(in []float32) (float32, error), in ...string) {
	e.model(name, len(in), does)
	addStep(e.cfg, name, out, in...)
}

func (e *branching) model(name string, inputs int, does func(in []float32) (float32, error)) {
	sig := signature(name, inputs, int(e.cfg.MaxBatchSize))
	sig.Outputs = sig.Outputs[:1]
	e.models[name] = plan.Model{Signature: sig}
	e.does[name], e.rows[name] = does, &atomic.Int64{}
}

// instance returns the instance of a model. A failed row fails its request.
func (e *branching) instance(name string) model {
	if f := e.batch[name]; f != nil {
		return f
	}
	return func(b *backends.Batch) error {
		e.rows[name].Add(int64(b.Rows))
		out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
		if err != nil {
			return err
		}
		dst := tensor.Slice[float32](out)
		for i := range dst {
			in := make([]float32, len(b.In))
			for k := range in {
				in[k] = tensor.Slice[float32](&b.In[k])[i]
			}
			if dst[i], err = e.does[name](in); err != nil {
				b.Fail(i, err)
			}
		}
		return nil
	}
}

// executor compiles the ensemble.
func (e *branching) executor(tb testing.TB, b *bench) (*exec.Executor, error) {
	tb.Helper()
	if err := config.Validate(e.cfg); err != nil {
		return nil, err
	}
	p, err := plan.Compile(e.cfg, 1, e)
	if err != nil {
		return nil, err
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range p.Nodes {
		n := &p.Nodes[i]
		most := int32(max(n.Signature.MaxBatch, 1)) //nolint:gosec // small, but of operations, which have no target
		switch {
		case n.Operation != nil:
		case n.Gathers && n.Signature.MaxBatch > 0:
			rules := dynamic.Rules{MaxBatch: most, Preferred: []int32{most + 1}} // a size out of reach: measured times must not decide
			targets[i] = b.batching(n.Signature, rules, e.instance(n.Model))
		case n.Signature.MaxBatch == 0 || len(n.Name)%3 == 0:
			targets[i] = b.inline(n.Signature, e.instance(n.Model))
		default:
			targets[i] = b.batching(n.Signature, dynamic.Rules{MaxBatch: min(8, most), Delay: time.Microsecond}, e.instance(n.Model), e.instance(n.Model))
		}
	}
	return b.executor(p, targets...), nil
}

// batched returns a request with one number a row.
func (b *bench) batched(values ...float32) *infer.Request {
	req := infer.NewRequest()
	x := b.floats(values)
	x.Shape = tensor.Of(int64(len(values)), 1)
	req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT0", Tensor: x})
	return req
}

func plus(x float32) func(in []float32) (float32, error) {
	return func(in []float32) (float32, error) {
		v := x
		for _, i := range in {
			v += i
		}
		return v, nil
	}
}

// cascade is quick -> (detailed -> spell, when its score is low), joined: "answer" is spell's where it ran, else quick's, and "extra" is
// detailed's or -1.
func cascade(maxBatch int32) *branching {
	e := newBranching(maxBatch, "answer", "extra")
	e.step("quick", "score", plus(0), "INPUT0")
	e.step("detailed", "extra", plus(100), "score")
	e.step("spell", "spelled", plus(1000), "extra_raw")
	e.cfg.GetEnsembleScheduling().Step[1].OutputMap["OUTPUT0"] = "extra_raw"
	addStep(e.cfg, "copy", "extra", "extra_raw")
	e.model("copy", 1, plus(0))
	e.param("step.detailed.when", "score[0] < 0.5")
	e.param("step.copy.otherwise", `{"extra": [-1]}`)
	e.param("ensemble.first_of", `{"answer": ["spelled", "score"]}`)
	return e
}

// TestConditions checks which rows conditional steps execute, with and without batches.
func TestConditions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in            []float32
		answer, extra []float32
		ran           int64
	}{
		"no row":   {[]float32{0.5, 0.75}, []float32{0.5, 0.75}, []float32{-1, -1}, 0},
		"all rows": {[]float32{0.25, 0}, []float32{1100.25, 1100}, []float32{100.25, 100}, 2},
		"some":     {[]float32{0.5, 0.25, 0.75, 0}, []float32{0.5, 1100.25, 0.75, 1100}, []float32{-1, 100.25, -1, 100}, 2},
		"one":      {[]float32{0.25}, []float32{1100.25}, []float32{100.25}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, e := newBench(t), cascade(8)
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // the second and third runs reuse the first's memory
				a := submit(t.Context(), x, b.batched(tc.in...))
				if a.err != nil {
					t.Fatal(a.err)
				}
				if d := cmp.Diff(map[string][]float32{"answer": tc.answer, "extra": tc.extra}, a.tensors()); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			}
			for _, m := range []string{"detailed", "spell", "copy"} {
				if n := e.rows[m].Load(); n != 3*tc.ran {
					t.Errorf("%s executed %d rows, want %d", m, n, 3*tc.ran)
				}
			}
			if n := e.rows["quick"].Load(); n != 3*int64(len(tc.in)) {
				t.Errorf("quick executed %d rows", n)
			}
		})
	}
	for in, want := range map[float32]map[string][]float32{0.25: {"answer": {1100.25}, "extra": {100.25}}, 0.75: {"answer": {0.75}, "extra": {-1}}} {
		b, e := newBench(t), cascade(0)
		x, err := e.executor(t, b)
		if err != nil {
			t.Fatal(err)
		}
		req := b.request(in)
		req.Inputs[0].Tensor.Shape = tensor.Of(1)
		a := submit(t.Context(), x, req)
		if a.err != nil {
			t.Fatal(a.err)
		}
		if d := cmp.Diff(want, a.tensors()); d != "" {
			t.Errorf("without batches (-want +got):\n%s", d)
		}
	}
}

// TestConditionOutputs checks that a request which names an output runs only what that needs, the choice included.
func TestConditionOutputs(t *testing.T) {
	t.Parallel()
	b, e := newBench(t), cascade(8)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	req := b.batched(0.25, 0.75)
	req.Outputs = []string{"extra"}
	a := submit(t.Context(), x, req)
	if a.err != nil {
		t.Fatal(a.err)
	}
	if d := cmp.Diff(map[string][]float32{"extra": {100.25, -1}}, a.tensors()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := e.rows["spell"].Load(); n != 0 {
		t.Errorf("spell executed %d rows", n)
	}
}

// TestConditionErrors checks requests that fail at a condition or at a join: the error names them, and later requests succeed.
func TestConditionErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		build func(e *branching)
		want  string
	}{
		"index": {func(e *branching) {
			e.step("quick", "score", plus(0), "INPUT0")
			e.step("more", "out", plus(1), "score")
			e.param("step.more.when", "score[0] > 0.5 || score[7] > 1")
			e.param("step.more.otherwise", `{"out": [0]}`)
		}, "in ensemble 'e', condition 'score[0] > 0.5 || score[7] > 1', row 1: index out of bounds: 7"},
		"no alternative": {func(e *branching) {
			e.step("low", "a", plus(1), "INPUT0")
			e.step("high", "b", plus(2), "INPUT0")
			e.param("step.low.when", "INPUT0[0] < 0.25")
			e.param("step.high.when", "INPUT0[0] > 0.75")
			e.param("ensemble.first_of", `{"out": ["a", "b"]}`)
		}, "in ensemble 'e', tensor 'out' has no value for row 1: none of the steps that write its alternatives ran for it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, e := newBench(t), newBranching(8, "out")
			tc.build(e)
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			if a := submit(t.Context(), x, b.batched(1, 0.5)); a.err == nil || a.err.Error() != tc.want {
				t.Errorf("%v, want %s", a.err, tc.want)
			}
			a := submit(t.Context(), x, b.batched(1))
			if a.err != nil {
				t.Fatal(a.err)
			}
			a.resp.Release()
		})
	}
}

// TestConditionInside checks conditions of an ensemble that batches, inside one that does not: a tensor of three rows is one row outside.
func TestConditionInside(t *testing.T) {
	t.Parallel()
	b, e, inner := newBench(t), newBranching(0, "out"), newBranching(8, "OUTPUT0")
	inner.cfg.Name = "inner"
	inner.step("one", "a", plus(1), "INPUT0")
	inner.step("two", "b", plus(10), "a")
	inner.param("step.two.when", "a[0] < 3")
	inner.param("ensemble.first_of", `{"OUTPUT0": ["b", "INPUT0"]}`)
	for name, m := range inner.models {
		e.models[name], e.does[name], e.rows[name] = m, inner.does[name], inner.rows[name]
	}
	e.models["inner"] = plan.Model{Signature: config.SignatureOf(inner.cfg), Ensemble: inner.cfg}
	addStep(e.cfg, "inner", "out", "INPUT0")
	e.cfg.Input[0].Dims, e.cfg.Output[0].Dims = []int64{-1, 1}, []int64{-1, 1}
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	a := submit(t.Context(), x, b.batched(1, 5, 0))
	if a.err != nil {
		t.Fatal(a.err)
	}
	if d := cmp.Diff(map[string][]float32{"out": {12, 5, 11}}, a.tensors()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := e.rows["two"].Load(); n != 2 {
		t.Errorf("'two' executed %d rows, want 2", n)
	}
}

// TestConditionOfParameters checks a condition on the parameters of the request.
func TestConditionOfParameters(t *testing.T) {
	t.Parallel()
	b, e := newBench(t), newBranching(8, "out")
	e.step("more", "out", plus(1), "INPUT0")
	e.param("step.more.when", "params.mode == 'full'")
	e.param("step.more.otherwise", `{"out": [0]}`)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string][]float32{"full": {2, 3, 4}, "fast": {0, 0, 0}} {
		req := b.batched(1, 2, 3)
		req.Params = infer.Params{{Key: "mode", Kind: infer.ParamString, String: mode}}
		a := submit(t.Context(), x, req)
		if a.err != nil {
			t.Fatal(a.err)
		}
		if d := cmp.Diff(map[string][]float32{"out": want}, a.tensors()); d != "" {
			t.Errorf("%s (-want +got):\n%s", mode, d)
		}
	}
}

// BenchmarkCondition measures what a condition adds to a request of 8 rows, half of which take the branch.
func BenchmarkCondition(bb *testing.B) {
	for name, conditional := range map[string]bool{"without": false, "with": true} {
		bb.Run(name, func(bb *testing.B) {
			b, e := newHostBench(bb), newBranching(8, "out")
			b.alloc = tensor.NewPool()
			e.step("one", "a", plus(1), "INPUT0")
			e.step("two", "out", plus(1), "a")
			if conditional {
				e.param("step.two.when", "a[0] < 5")
				e.param("step.two.otherwise", `{"out": [0]}`)
			}
			x, err := e.executor(bb, b)
			if err != nil {
				bb.Fatal(err)
			}
			bb.ReportAllocs()
			for bb.Loop() {
				a := submit(bb.Context(), x, b.batched(0, 1, 2, 3, 4, 5, 6, 7))
				if a.err != nil {
					bb.Fatal(a.err)
				}
				a.resp.Release()
			}
		})
	}
}
