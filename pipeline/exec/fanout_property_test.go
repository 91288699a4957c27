package exec_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// fans is a random ensemble of steps, conditions and nested fan-outs, and its interpreter, which computes one row by recursion.
type fans struct {
	*branching

	rng     *rand.Rand
	n       int
	broken  int  // the number of the step that fails for some values, -1 for none
	faulty  bool // some steps always fail and are replaced
	gathers []string
	last    []string // the tensors of the last scope
	program []statement
}

// statement computes values of a row or of an item from others.
type statement func(values map[string]float32) error

// names returns further names.
func (f *fans) name(prefix string) string {
	f.n++
	return fmt.Sprintf("%s%d", prefix, f.n)
}

func newFans(rng *rand.Rand, size, broken int, faulty bool) *fans {
	f := &fans{branching: newBranching(8), rng: rng, broken: broken, faulty: faulty}
	f.program, _ = f.scope([]string{"INPUT0"}, size, 0)
	f.param("ensemble.gather", "{"+strings.Join(f.gathers, ", ")+"}")
	for _, t := range f.last {
		f.output(t, modelconfig.DataType_TYPE_FP32, -1)
	}
	return f
}

// scope adds statements that may read the given tensors, and returns them with the tensors of a row of the scope.
func (f *fans) scope(visible []string, size, depth int) (program []statement, own []string) {
	own = visible[len(visible)-1:]
	for range size {
		var s statement
		var out string
		if depth < 3 && (f.rng.IntN(3) == 0 || len(f.gathers) == 0) {
			s, out = f.fan(visible, own, depth)
		} else {
			s, out = f.compute(visible, own, depth)
		}
		program, own, visible = append(program, s), append(slices.Clip(own), out), append(slices.Clip(visible), out)
	}
	f.last = own[1:]
	return program, own
}

func (f *fans) pick(list []string) string { return list[f.rng.IntN(len(list))] }

// compute adds a step that reads a tensor of the scope and others that are visible, maybe under a condition.
func (f *fans) compute(visible, own []string, depth int) (statement, string) {
	in := []string{f.pick(own)}
	for range f.rng.IntN(3) {
		in = append(in, f.pick(visible))
	}
	model, out, add := f.name("m"), f.name("t"), float32(f.rng.IntN(9))
	broken := f.n/2 == f.broken
	does := func(in []float32) (float32, error) {
		if broken && int(in[0])%7 == 0 {
			return 0, errBroken
		}
		sum, err := plus(add)(in)
		return float32(int(sum) % 1000), err
	}
	instead := does // what the interpreter computes
	if f.faulty && f.rng.IntN(3) == 0 {
		does, instead = f.replace(model, out, len(in))
	}
	f.step(model, out, does, in...)
	if depth > 0 {
		f.models[model].Signature.MaxBatch = []int{0, 1, 2, 8}[f.rng.IntN(4)]
	}
	f.meets(model)
	tested, limit, otherwise := "", f.rng.IntN(41), float32(-f.n)
	if f.rng.IntN(3) == 0 {
		tested = f.pick(visible)
		f.param("step."+model+".when", fmt.Sprintf("int(%s[0]) %% 41 < %d", tested, limit))
		f.param("step."+model+".otherwise", fmt.Sprintf(`{"%s": [%v]}`, out, otherwise))
	}
	return func(values map[string]float32) (err error) {
		if tested != "" && int(values[tested])%41 >= limit {
			values[out] = otherwise
			return nil
		}
		var args []float32
		for _, t := range in {
			args = append(args, values[t])
		}
		values[out], err = instead(args)
		return err
	}, out
}

// replace lets a step fail always, with a fallback or an optional result, and returns what it does and what its output is instead.
func (f *fans) replace(model, out string, inputs int) (does, instead func(in []float32) (float32, error)) {
	does = func([]float32) (float32, error) { return 0, status.Errorf(status.Unavailable, "down") }
	if f.rng.IntN(2) == 0 {
		spare, add := f.name("spare"), float32(f.rng.IntN(9))
		instead = func(in []float32) (float32, error) {
			sum, err := plus(add)(in)
			return float32(int(sum) % 1000), err
		}
		f.model(spare, inputs, instead)
		f.param("step."+model+".fallback", spare)
		return does, instead
	}
	value := float32(f.rng.IntN(1000))
	f.param("step."+model+".optional_result", fmt.Sprintf(`{"%s": [%v]}`, out, value))
	return does, func([]float32) (float32, error) { return value, nil }
}

// meets has groups of items wait for each other at a model, of every three two. Half of them read items of one shape, of which a full batch
// does not wait.
func (f *fans) meets(model string) {
	m := f.models[model]
	m.Gathers = f.n%3 > 0
	if f.n%4 < 2 {
		for i := range m.Signature.Inputs {
			m.Signature.Inputs[i].Dims = tensor.Of(1)
		}
	}
	f.models[model] = m
}

// fan adds a fan-out of a tensor of the scope, maybe under a condition, whose inner tensors are added up. It returns the sum.
func (f *fans) fan(visible, own []string, depth int) (statement, string) {
	from, split, item, second := f.pick(own), f.name("split"), f.name("item"), f.name("n")
	count, ragged := modulo(1+f.rng.IntN(5)), f.rng.IntN(2) == 0
	var width func(v float32) int
	batch := 8
	if ragged {
		w := modulo(1 + f.rng.IntN(3))
		width = func(v float32) int { return 1 + w(v) }
	}
	if depth > 0 && f.rng.IntN(4) == 0 {
		batch = 0
	}
	f.explode(split, batch, count, width)
	f.addSplit(split, item, second, from, ragged)
	tested, limit := "", f.rng.IntN(41)
	if f.rng.IntN(3) == 0 {
		tested = f.pick(visible)
		f.param("step."+split+".when", fmt.Sprintf("int(%s[0]) %% 41 < %d", tested, limit))
	}
	head := item
	if ragged { // of one width
		head = f.name("head")
		f.sum(f.name("sum"), 2, -1)
		addStep(f.cfg, fmt.Sprintf("sum%d", f.n), head, item)
	}
	program, inner := f.scope(append(slices.Clip(visible), head), 1+f.rng.IntN(3), depth+1)
	given := f.pick(inner[1:])
	gathered, total, model := f.name("all"), f.name("total"), f.name("reduce")
	f.gathers = append(f.gathers, fmt.Sprintf(`"%s": {"of": "%s", "pad": 0}`, gathered, given))
	f.sum(model, 8, -1, -1)
	addStep(f.cfg, model, total, gathered)
	f.ends(inner[1:], given, model)
	if tested != "" {
		f.param("step."+model+".otherwise", fmt.Sprintf(`{"%s": [-3]}`, total))
	}
	return func(values map[string]float32) error {
		if tested != "" && int(values[tested])%41 >= limit {
			values[total] = -3
			return nil
		}
		sum := float32(0)
		for k := range count(values[from]) {
			inside := maps.Clone(values)
			v := values[from] + float32(k)
			if inside[head] = v; ragged {
				inside[head] = v * float32(width(v))
			}
			for _, s := range program {
				if err := s(inside); err != nil {
					return err
				}
			}
			sum += inside[given]
		}
		values[total] = sum
		return nil
	}, total
}

// ends gives the inner tensors that are not gathered a reader: the reducing step takes a gather of each that it ignores.
func (f *fans) ends(inner []string, given, model string) {
	sig := f.models[model].Signature
	steps := f.cfg.GetEnsembleScheduling().Step
	for _, t := range inner {
		if t == given {
			continue
		}
		gathered := f.name("unused")
		f.gathers = append(f.gathers, fmt.Sprintf(`"%s": {"of": "%s", "pad": 0}`, gathered, t))
		in := fmt.Sprintf("INPUT%d", len(sig.Inputs))
		sig.Inputs = append(sig.Inputs, config.Port{Name: in, DType: sig.Inputs[0].DType, Dims: sig.Inputs[0].Dims})
		steps[len(steps)-1].InputMap[in] = gathered
	}
}

// TestRandomFanOuts compares random ensembles with nested fan-outs, conditions, models that fail and fallbacks, under concurrent requests of 1 to 8 rows, with
// an interpreter of single rows.
func TestRandomFanOuts(t *testing.T) {
	t.Parallel()
	graphs := uint64(120)
	if testing.Short() || mode != "" {
		graphs = 30
	}
	for seed := range graphs {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // reproducible by seed
			broken := -1
			if seed%5 == 4 {
				broken = rng.IntN(12)
			}
			b, f := newHostBench(t), newFans(rng, 1+rng.IntN(5), broken, seed%2 == 1)
			if seed%3 == 0 {
				f.param("ensemble.max_items_in_flight", strconv.Itoa(1+rng.IntN(6)))
			}
			f.nest(seed)
			x, err := f.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 20 {
				in := make([]float32, 1+rng.IntN(8))
				for i := range in {
					in[i] = float32(rng.IntN(200))
				}
				wg.Go(func() { f.compare(t, b, x, in) })
			}
			wg.Wait()
			if err := x.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// nest puts the whole ensemble into another one, for every fourth seed.
func (f *fans) nest(seed uint64) {
	if seed%4 != 3 {
		return
	}
	inner := f.cfg
	inner.Name = "inner"
	f.models["inner"] = plan.Model{Signature: config.SignatureOf(inner), Ensemble: inner}
	f.cfg = ensemble("e", 1)
	f.cfg.Output = inner.Output
	addStep(f.cfg, "inner", inner.Output[0].Name, "INPUT0")
	step := f.cfg.GetEnsembleScheduling().Step[0]
	step.OutputMap = map[string]string{}
	for _, o := range inner.Output {
		step.OutputMap[o.Name] = o.Name
	}
}

// compare sends one request and compares its outputs with the interpreter's.
func (f *fans) compare(t *testing.T, b *bench, x *exec.Executor, in []float32) {
	t.Helper()
	want, broken := map[string][]float32{}, false
	for _, v := range in {
		values := map[string]float32{"INPUT0": v}
		for _, s := range f.program {
			if err := s(values); err != nil {
				broken = true
				break
			}
		}
		for _, o := range f.cfg.Output {
			want[o.Name] = append(want[o.Name], values[o.Name])
		}
	}
	a := submit(context.Background(), x, b.batched(in...))
	switch {
	case a.err != nil && errors.Is(a.err, errBroken) && broken:
		return
	case a.err != nil:
		t.Errorf("%v: %v", in, a.err)
		return
	case broken:
		t.Errorf("%v did not fail", in)
		a.resp.Release()
		return
	}
	if d := cmp.Diff(want, a.tensors()); d != "" {
		t.Errorf("%v (-want +got):\n%s", in, d)
	}
}
