package exec_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// shifted adds to a random ensemble the model "shifted", which is the same ensemble with 7 added to each output.
func (f *branches) shifted() {
	base := proto.CloneOf(f.cfg)
	base.Name = "base"
	f.models["base"] = plan.Model{Signature: config.SignatureOf(base), Ensemble: base}
	s := ensemble("shifted", 1)
	s.Output = base.Output
	addStep(s, "base", "", "INPUT0")
	outputs := map[string]string{}
	s.GetEnsembleScheduling().Step[0].OutputMap = outputs
	for _, o := range base.Output {
		outputs[o.Name] = "before " + o.Name
		f.model("shift "+o.Name, 1, plus(7))
		addStep(s, "shift "+o.Name, o.Name, "before "+o.Name)
	}
	f.models["shifted"] = plan.Model{Signature: config.SignatureOf(s), Ensemble: s}
}

// around returns an ensemble whose only step is f, with this parameter.
func (f *branches) around(parameter, value string) *branching {
	outer := *f.branching
	f.models["e"] = plan.Model{Signature: config.SignatureOf(f.cfg), Ensemble: f.cfg}
	outer.cfg = ensemble("outer", 1)
	outer.cfg.Output = f.cfg.Output
	addStep(outer.cfg, "e", "", "INPUT0")
	step := outer.cfg.GetEnsembleScheduling().Step[0]
	step.OutputMap = map[string]string{}
	for _, o := range f.cfg.Output {
		step.OutputMap[o.Name] = o.Name
	}
	outer.param(parameter, value)
	return &outer
}

// routed returns a copy of f whose own requests are routed.
func (f *branches) routed(parameter, value string) *branching {
	whole := *f.branching
	whole.cfg = proto.CloneOf(f.cfg)
	whole.param(parameter, value)
	return &whole
}

// TestRandomWholeRoutes sends each request to a random ensemble with ensemble.split, and to an ensemble around it whose only step has the
// same split: the results are those of the alternative that the response names, in both.
func TestRandomWholeRoutes(t *testing.T) {
	t.Parallel()
	graphs := uint64(20)
	if testing.Short() || mode != "" {
		graphs = 5
	}
	for seed := range graphs {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // reproducible by seed
			b, f := newHostBench(t), newBranches(rng, 2+rng.IntN(20), seed%5 == 4, seed%5 == 3)
			f.shifted()
			const split = `{"weights": {"e": 1, "shifted": 1}, "key": "user"}`
			whole, around := f.routed("ensemble.split", split), f.around("step.e.split", split)
			var both [2]*exec.Executor
			for i, e := range []*branching{whole, around} {
				x, err := e.executor(t, b)
				if err != nil {
					t.Fatal(err)
				}
				both[i] = x
			}
			want := proto.CloneOf(whole.cfg)
			want.ModelTransactionPolicy = &modelconfig.ModelTransactionPolicy{} // completed
			if d := cmp.Diff(want, both[0].Plan().Config, protocmp.Transform()); d != "" {
				t.Errorf("the plan's configuration (-want +got):\n%s", d)
			}
			var ran sync.Map
			var wg sync.WaitGroup
			for i := range 40 {
				in := make([]float32, 1+rng.IntN(8))
				for i := range in {
					in[i] = float32(rng.IntN(200))
				}
				wg.Go(func() {
					for k, x := range both {
						ran.Store(fmt.Sprint(k, f.compareRouted(t, b, x, i, in)), true)
					}
				})
			}
			wg.Wait()
			for _, x := range both {
				if err := x.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for _, want := range []string{"0e", "0shifted", "1e", "1shifted"} {
				if _, ok := ran.Load(want); !ok && seed%5 < 3 {
					t.Errorf("no request had the route %s", want)
				}
			}
		})
	}
}

// compareRouted sends one request and compares it with the interpreter. It returns the alternative that the response names.
func (f *branches) compareRouted(t *testing.T, b *bench, x *exec.Executor, user int, in []float32) (route string) {
	t.Helper()
	req := b.batched(in...)
	req.Params = append(req.Params, infer.Param{Key: "user", Kind: infer.ParamInt, Int: int64(user)})
	a := submit(t.Context(), x, req)
	values, err := f.interpret(in)
	switch {
	case a.err != nil && errors.Is(a.err, errBroken) && err != nil:
		return ""
	case a.err != nil:
		t.Errorf("%v: %v", in, a.err)
		return ""
	case err != nil:
		t.Errorf("%v did not fail", in)
		a.resp.Release()
		return ""
	}
	for _, p := range a.resp.Params {
		if p.Key == "route.e" {
			route = p.String
		}
	}
	add := map[string]float32{"e": 0, "shifted": 7}[route]
	want := map[string][]float32{}
	for _, o := range f.cfg.Output {
		for row := range in {
			want[o.Name] = append(want[o.Name], values[o.Name][row]+add)
		}
	}
	if d := cmp.Diff(want, a.tensors()); d != "" {
		t.Errorf("%v by %q (-want +got):\n%s", in, route, d)
	}
	return route
}

// TestWholeCanary checks that a canary of an ensemble is rolled back when it fails, that the failure names the ensemble once, and that a
// failure of the ensemble itself is none of the canary.
func TestWholeCanary(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), newBranching(8, "out")
	broken := func(in []float32) (float32, error) {
		if in[0] < 0 {
			return 0, errBroken
		}
		return in[0], nil
	}
	e.step("quick", "out", broken, "INPUT0")
	e.model("next", 1, broken)
	e.models["next"].Signature.Outputs[0].Name = "out"
	e.param("ensemble.canary", `{"model": "next", "weight": 100, "requests": 2, "max_errors": 0}`)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	const want = "in ensemble 'e', "
	route := ""
	for i, next := range []string{"next", "e", "e"} {
		if i > 0 {
			a := submit(t.Context(), x, b.batched(3))
			if a.err != nil {
				t.Fatal(a.err)
			}
			route = a.resp.Params[len(a.resp.Params)-1].String
			a.resp.Release()
		}
		if a := submit(t.Context(), x, b.batched(-1)); a.err == nil || a.err.Error() != want+errBroken.Error() {
			t.Errorf("%v, want %s%v", a.err, want, errBroken)
		}
		if i > 0 && route != next {
			t.Errorf("request %d was executed by '%s', want '%s'", i, route, next)
		}
	}
	for i := range x.Plan().Nodes {
		n := &x.Plan().Nodes[i]
		if d := cmp.Diff([]string{"e"}, n.Ensembles); d != "" {
			t.Errorf("the ensembles of '%s' (-want +got):\n%s", n.Name, d)
		}
	}
}

// TestWholeLabels checks that an output has the labels of the ensemble's own step.
func TestWholeLabels(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), newBranching(8, "out")
	e.step("quick", "out", plus(0), "INPUT0")
	e.models["quick"].Signature.Outputs[0].Labels = []string{"cat", "dog"}
	e.model("next", 1, plus(1))
	e.models["next"].Signature.Outputs[0] = config.Port{Name: "out", DType: e.models["quick"].Signature.Outputs[0].DType, Dims: e.models["quick"].Signature.Outputs[0].Dims, Labels: []string{"a", "b"}}
	e.param("ensemble.split", `{"weights": {"e": 1, "next": 1}}`)
	e.cfg.Output[0].DataType = modelconfig.DataType_TYPE_FP32
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"cat", "dog"}, x.Plan().Signature.Outputs[0].Labels); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
