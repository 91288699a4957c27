package exec_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// TestConstants checks steps whose second input the configuration gives, for requests of several sizes, and without batches.
func TestConstants(t *testing.T) {
	t.Parallel()
	sum := func(in []float32) (float32, error) { return in[0] + 10*in[1], nil }
	for _, maxBatch := range []int32{8, 0} {
		b, e := newBench(t), newBranching(maxBatch, "out")
		e.step("weighted", "out", sum, "INPUT0")
		e.model("weighted", 2, sum)
		e.param("step.weighted.constant", `{"INPUT1": [7]}`)
		x, err := e.executor(t, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range [][]float32{{1}, {1, 2, 3}, {4}} {
			req, want := b.batched(in...), []float32(nil)
			if maxBatch == 0 {
				in = in[:1]
				req.Release()
				req = b.request(in[0])
				req.Inputs[0].Tensor.Shape = tensor.Of(1)
			}
			for _, v := range in {
				want = append(want, v+70)
			}
			a := submit(t.Context(), x, req)
			if a.err != nil {
				t.Fatal(a.err)
			}
			if d := cmp.Diff(map[string][]float32{"out": want}, a.tensors()); d != "" {
				t.Errorf("batches of %d, %v (-want +got):\n%s", maxBatch, in, d)
			}
		}
	}
}

// seen collects the parameters that models receive.
type seen struct {
	mu   sync.Mutex
	list map[string][]string // by model
}

// model returns a model that notes the parameters of each request.
func (s *seen) model(name string) model {
	return func(b *backends.Batch) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range b.Requests {
			var text strings.Builder
			for k := range b.Requests[i].Meta.Params {
				p := &b.Requests[i].Meta.Params[k]
				fmt.Fprintf(&text, "%s=%s ", p.Key, p.Text())
			}
			s.list[name] = append(s.list[name], text.String())
		}
		return share(b)
	}
}

// TestStepParameters checks that a step sees its own parameters over those of the request, that the other steps do not, and that an ensemble
// passes its own on to its steps and to their conditions.
func TestStepParameters(t *testing.T) {
	t.Parallel()
	b, e, inner := newHostBench(t), newBranching(8, "out"), newBranching(8, "OUTPUT0")
	inner.cfg.Name = "inner"
	inner.step("deep", "OUTPUT0", plus(0), "INPUT0")
	inner.param("step.deep.when", "params.mode == 'full'")
	inner.param("step.deep.otherwise", `{"OUTPUT0": [0]}`)
	inner.param("step.deep.parameters", `{"level": 2}`)
	e.models["inner"] = plan.Model{Signature: config.SignatureOf(inner.cfg), Ensemble: inner.cfg}
	e.models["deep"] = inner.models["deep"]
	e.step("plain", "a", plus(0), "INPUT0")
	addStep(e.cfg, "inner", "c", "a")
	e.step("last", "out", plus(0), "c")
	e.param("step.inner.parameters", `{"mode": "full", "level": 1}`)
	e.param("step.last.parameters", `{"t": 0.5, "mode": true}`)
	s := &seen{list: map[string][]string{}}
	p, err := plan.Compile(e.cfg, 1, e)
	if err = errors.Join(err, config.Validate(e.cfg)); err != nil {
		t.Fatal(err)
	}
	x := b.executor(p, b.targets(p, s.model)...)
	for range 2 { // the second request reuses the memory of the first
		req := b.batched(1)
		req.Params = infer.Params{{Key: "mode", Kind: infer.ParamString, String: "fast"}, {Key: "k", Kind: infer.ParamInt, Int: 3}}
		a := submit(t.Context(), x, req)
		if a.err != nil {
			t.Fatal(a.err)
		}
		a.resp.Release()
	}
	want := map[string][]string{
		"plain": {"mode=fast k=3 ", "mode=fast k=3 "},
		"deep":  {"k=3 mode=full level=2 ", "k=3 mode=full level=2 "},
		"last":  {"k=3 mode=true t=0.5 ", "k=3 mode=true t=0.5 "},
	}
	if d := cmp.Diff(want, s.list); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// targets returns a scheduler for each node of a plan that has a model.
func (b *bench) targets(p *plan.Plan, of func(name string) model) []scheduler.Scheduler {
	list := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Operation == nil {
			list[i] = b.inline(n.Signature, of(n.Model))
		}
	}
	return list
}
