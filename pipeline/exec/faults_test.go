package exec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// stepFault is what an interpreter does when a step fails.
type stepFault struct {
	does     func(in []float32) (float32, error)
	fallback func(in []float32) (float32, error) // nil without one
	optional *float32                            // nil without a value
	lacks    bool                                // the output is absent when everything failed
}

// run computes the rows that a step runs for, all by one model: it fails for all when it fails for one.
func (s *stepFault) run(v table, out string, rows map[int][]float32) error {
	err := compute(v, out, rows, s.does)
	if err != nil && s.fallback != nil {
		err = compute(v, out, rows, s.fallback)
	}
	switch {
	case err == nil:
	case s.optional != nil:
		for row := range rows {
			v.set(out, row, *s.optional)
		}
	case !s.lacks:
		return err
	}
	return nil
}

func compute(v table, out string, rows map[int][]float32, does func(in []float32) (float32, error)) error {
	values := map[int]float32{}
	for row, in := range rows {
		x, err := does(in)
		if err != nil {
			return err
		}
		values[row] = x
	}
	for row, x := range values {
		v.set(out, row, x)
	}
	return nil
}

// fault makes the step that was added last fail for some rows, and gives it a random reaction. does is what the interpreter computes.
func (f *branches) fault(name, out string, inputs int, does *func(in []float32) (float32, error)) *stepFault {
	s := &stepFault{does: *does}
	if !f.faults || f.models[name].Ensemble != nil || f.rng.IntN(3) == 0 {
		return s
	}
	failing := func(does func(in []float32) (float32, error)) func(in []float32) (float32, error) {
		limit := f.rng.IntN(30)
		return func(in []float32) (float32, error) {
			if int(in[0])%97 < limit {
				return 0, errBroken
			}
			return does(in)
		}
	}
	s.does = failing(*does)
	f.does[name] = s.does
	m := f.models[name]
	m.Idempotent = true
	f.models[name] = m
	if f.rng.IntN(2) == 0 {
		f.param("step."+name+".timeout_ms", "3600000")
	}
	if f.rng.IntN(4) == 0 {
		f.param("step."+name+".retries", "1")
	}
	if f.rng.IntN(2) == 0 {
		s.fallback = failing(plus(-500))
		if f.rng.IntN(3) == 0 {
			s.fallback = f.nest(name+"_fallback", inputs, s.fallback)
		} else {
			f.model(name+"_fallback", inputs, s.fallback)
		}
		f.param("step."+name+".fallback", name+"_fallback")
		if f.models[name+"_fallback"].Ensemble != nil {
			return s
		}
	}
	switch f.rng.IntN(3) {
	case 0:
		x := float32(f.rng.IntN(50))
		s.optional = &x
		f.param("step."+name+".optional_result", fmt.Sprintf(`{"%s": [%g]}`, out, x))
	case 1:
		s.lacks = true
		f.param("step."+name+".optional_result", "absent")
	}
	return s
}

// TestRandomFaults compares random ensembles whose steps fail for some requests, with timeouts, retries, fallbacks and optional results,
// and with conditions, with an interpreter.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	randomBranches(t, true)
}

// faulty is quick -> out, where quick does what a test says, and "spare" can replace it.
func faulty(does func(in []float32) (float32, error)) *branching {
	e := newBranching(8, "out")
	e.step("quick", "score", does, "INPUT0")
	e.step("last", "out", plus(1), "score")
	e.model("spare", 1, plus(100))
	return e
}

func fails(code status.Code) func(in []float32) (float32, error) {
	return func(in []float32) (float32, error) {
		if in[0] < 0 {
			return 0, status.Errorf(code, "broken")
		}
		return in[0], nil
	}
}

// TestFaults checks the response, its parameters and the error of a request whose step fails, and that a later one succeeds.
func TestFaults(t *testing.T) {
	t.Parallel()
	type params map[string]string
	for name, tc := range map[string]struct {
		code   status.Code
		params params // of the ensemble
		want   map[string][]float32
		told   params // of the response
		fails  string
	}{
		"fallback": {
			status.Unavailable,
			params{"step.quick.fallback": "spare"},
			map[string][]float32{"out": {99, 102}},
			params{"fallback.quick": "spare"},
			"",
		},
		"constant": {
			status.Internal,
			params{"step.quick.optional_result": `{"score": [41]}`},
			map[string][]float32{"out": {42, 42}},
			params{"optional_result.quick": "Internal"},
			"",
		},
		"absent": {
			status.Internal,
			params{"step.quick.optional_result": "absent"},
			map[string][]float32{},
			params{"optional_result.quick": "Internal"},
			"",
		},
		"both": {
			status.Internal,
			params{"step.quick.optional_result": `{"score": [41]}`, "step.quick.fallback": "broken"},
			map[string][]float32{"out": {42, 42}},
			params{"optional_result.quick": "Unavailable", "fallback.quick": "broken"},
			"",
		},
		"both absent": {
			status.Internal,
			params{"step.quick.optional_result": "absent", "step.quick.fallback": "broken"},
			map[string][]float32{},
			params{"optional_result.quick": "Unavailable", "fallback.quick": "broken"},
			"",
		},
		"fallback fails": {
			status.Internal,
			params{"step.quick.fallback": "broken"},
			nil, nil,
			"in ensemble 'e', the fallback of step 'quick', which failed with 'broken', failed too: out of order",
		},
		"input": {status.InvalidArg, params{"step.quick.fallback": "spare", "step.quick.optional_result": "absent"}, nil, nil, "in ensemble 'e', broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, e := newHostBench(t), faulty(fails(tc.code))
			e.model("broken", 1, func([]float32) (float32, error) { return 0, status.Errorf(status.Unavailable, "out of order") })
			for k, v := range tc.params {
				e.param(k, v)
			}
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second run reuses the first's memory
				a := submit(t.Context(), x, b.batched(-2, 1))
				switch {
				case tc.fails != "":
					if a.err == nil || a.err.Error() != tc.fails {
						t.Errorf("%v, want %s", a.err, tc.fails)
					}
				case a.err != nil:
					t.Fatal(a.err)
				default:
					told := params{}
					for i := range a.resp.Params {
						told[a.resp.Params[i].Key] = a.resp.Params[i].Text()
					}
					if d := cmp.Diff(tc.told, told); d != "" {
						t.Errorf("parameters (-want +got):\n%s", d)
					}
					if d := cmp.Diff(tc.want, a.tensors()); d != "" {
						t.Errorf("(-want +got):\n%s", d)
					}
				}
				a = submit(t.Context(), x, b.batched(5))
				if a.err != nil || len(a.resp.Params) != 0 {
					t.Fatalf("%v, or parameters %v", a.err, a.resp.Params)
				}
				if d := cmp.Diff(map[string][]float32{"out": {6}}, a.tensors()); d != "" {
					t.Errorf("without a failure (-want +got):\n%s", d)
				}
			}
		})
	}
}

// TestFaultTimeout checks that a step which takes too long is replaced while it still executes, and that what it returns later is not used.
func TestFaultTimeout(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"queued", "inline"} { // a model of six letters executes on the goroutine that enqueues its tasks
		t.Run(slow, func(t *testing.T) {
			t.Parallel()
			b, late := newHostBench(t), make(chan struct{})
			e := newBranching(8, "out")
			e.model("spare", 1, plus(100))
			e.step(strings.TrimSuffix(slow, "ued"), "score", func(in []float32) (float32, error) {
				if in[0] == 0 {
					<-late
				}
				return in[0], nil
			}, "INPUT0")
			e.step("last", "out", plus(1), "score")
			e.param("step.0.timeout_ms", "20")
			e.param("step.0.fallback", "spare")
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			a := submit(t.Context(), x, b.batched(0)) // returns while the model executes
			if a.err != nil {
				t.Error(a.err)
			} else if d := cmp.Diff(map[string][]float32{"out": {101}}, a.tensors()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if err := x.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			close(late)
		})
	}
}

// TestFaultRetries checks that the response says how often a step was repeated.
func TestFaultRetries(t *testing.T) {
	t.Parallel()
	b, left := newHostBench(t), 2
	e := faulty(func(in []float32) (float32, error) {
		if left--; left >= 0 {
			return 0, status.Errorf(status.Unavailable, "busy")
		}
		return in[0], nil
	})
	e.models["quick"] = plan.Model{Signature: e.models["quick"].Signature, Idempotent: true}
	e.param("step.quick.retries", "3")
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	a := submit(t.Context(), x, b.batched(7))
	if a.err != nil {
		t.Fatal(a.err)
	}
	if p := a.resp.Params; len(p) != 1 || p[0].Key != "retries.quick" || p[0].Int != 2 {
		t.Errorf("parameters %v", p)
	}
	if d := cmp.Diff(map[string][]float32{"out": {8}}, a.tensors()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestFaultLoad checks that retries of a model that is not marked as idempotent are refused.
func TestFaultLoad(t *testing.T) {
	t.Parallel()
	e := faulty(plus(0))
	e.param("step.quick.retries", "3")
	if _, err := e.executor(t, newHostBench(t)); err == nil || !strings.Contains(err.Error(), "not marked as idempotent") {
		t.Error(err)
	}
}

// TestFaultsOfItems checks that a step inside of a fan-out has its fallback for the groups of items for which it fails, and that the response says so
// once.
func TestFaultsOfItems(t *testing.T) {
	t.Parallel()
	b, e := newBench(t), newBranching(8)
	e.explode("crop", 8, modulo(5), func(v float32) int { return 1 + int(v)%2 }) // two groups: items of one element and of two
	e.addSplit("crop", "item", "n", "INPUT0", true)
	e.sum("length", 8, -1)
	addStep(e.cfg, "length", "size", "item")
	e.step("add", "more", func(in []float32) (float32, error) {
		if in[0] >= 10 { // the sum of two elements
			return 0, status.Errorf(status.Unavailable, "broken")
		}
		return in[0] + 100, nil
	}, "size")
	e.models["add"].Signature.MaxBatch = 8
	e.model("spare", 1, plus(1000))
	e.models["spare"].Signature.MaxBatch = 8
	e.param("step.add.fallback", "spare")
	e.param("ensemble.gather", `{"out": {"of": "more"}}`)
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a := submit(t.Context(), x, b.batched(4))
		if a.err != nil {
			t.Fatal(a.err)
		}
		told := map[string]string{}
		for i := range a.resp.Params {
			told[a.resp.Params[i].Key] = a.resp.Params[i].Text()
		}
		got := resultOf(t, a)
		if d := cmp.Diff([]float32{104, 1010, 106, 1014}, got.Out); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]string{"fallback.add": "spare"}, told); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}
