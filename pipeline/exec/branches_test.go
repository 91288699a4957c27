package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// branches is a random ensemble with conditions, and its interpreter. Each tensor has the conditions under which it exists.
type branches struct {
	*branching

	rng     *rand.Rand
	tensors []branchTensor
	program []func(v table, rows int) error // per step or join, in order: they write into the table
	faults  bool                            // steps fail, and some have fallbacks and optional results
}

// table has the values of the tensors by row; a row that a tensor does not have is absent.
type table map[string]map[int]float32

func (v table) set(name string, row int, x float32) {
	if v[name] == nil {
		v[name] = map[int]float32{}
	}
	v[name][row] = x
}

// row returns the values of the tensors that have a row.
func (v table) row(row int) map[string]float32 {
	values := map[string]float32{}
	for name, rows := range v {
		if x, ok := rows[row]; ok {
			values[name] = x
		}
	}
	return values
}

type branchTensor struct {
	name string
	path string // the conditions, each followed by ";"
}

// within returns the tensors that exist wherever those of path do.
func (f *branches) within(path string) (list []branchTensor) {
	for _, x := range f.tensors {
		if strings.HasPrefix(path, x.path) {
			list = append(list, x)
		}
	}
	return list
}

func (f *branches) pick(list []branchTensor) branchTensor { return list[f.rng.IntN(len(list))] }

func newBranches(rng *rand.Rand, steps int, broken, faults bool) *branches {
	f := &branches{branching: newBranching(8), rng: rng, tensors: []branchTensor{{name: "INPUT0"}}, faults: faults}
	var joins []string
	for i := range steps {
		if f.rng.IntN(4) == 0 && f.join(i, &joins) {
			continue
		}
		f.add(i, broken && i == steps/2)
	}
	for _, x := range f.tensors { // a tensor must have a reader
		if x.path != "" {
			f.joined("end_"+x.name, []string{x.name, "INPUT0"}, &joins)
		}
	}
	if joins != nil {
		f.param("ensemble.first_of", "{"+strings.Join(joins, ", ")+"}")
	}
	for _, x := range f.tensors[1:] {
		if x.path == "" {
			f.cfg.Output = append(f.cfg.Output, &modelconfig.ModelOutput{Name: x.name, DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{-1}})
		}
	}
	return f
}

// join adds a tensor that is the first of three others; one of them exists for every row.
func (f *branches) join(i int, joins *[]string) bool {
	list := []string{f.pick(f.tensors).name, f.pick(f.tensors).name, f.pick(f.within("")).name}
	if list[0] == list[1] || list[1] == list[2] || list[0] == list[2] {
		return false
	}
	f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	f.joined(fmt.Sprintf("j%d", i), list, joins)
	return true
}

func (f *branches) joined(out string, list []string, joins *[]string) {
	*joins = append(*joins, fmt.Sprintf(`"%s": ["%s"]`, out, strings.Join(list, `", "`)))
	f.tensors = append(f.tensors, branchTensor{name: out})
	f.program = append(f.program, func(v table, rows int) error {
		for row := range rows {
			for _, name := range list {
				if x, ok := v[name][row]; ok {
					v.set(out, row, x)
					break
				}
			}
		}
		return nil
	})
}

// add adds a step that reads tensors of one path, maybe with a condition and with values for other rows.
func (f *branches) add(i int, broken bool) {
	name, out := fmt.Sprintf("m%d", i), fmt.Sprintf("t%d", i)
	deepest := f.pick(f.tensors)
	can := f.within(deepest.path)
	in := []string{deepest.name}
	for range f.rng.IntN(3) {
		in = append(in, f.pick(can).name)
	}
	does := func(in []float32) (float32, error) {
		if broken && third(in[0]) {
			return 0, errBroken
		}
		return plus(float32(i))(in)
	}
	if f.rng.IntN(4) == 0 {
		does = f.nest(name, len(in), does)
		addStep(f.cfg, name, out, in...)
	} else {
		f.step(name, out, does, in...)
	}
	fails := f.fault(name, out, len(in), &does)
	path, holds, tested, otherwise := deepest.path, float32(0), "", false
	if f.rng.IntN(2) == 0 {
		tested, holds = f.pick(can).name, float32(f.rng.IntN(40))
		text := fmt.Sprintf("int(%s[0]) %% 41 < %d", tested, int(holds))
		f.param("step."+name+".when", text)
		path += text + ";"
	}
	value := float32(-i)
	if path != "" && f.rng.IntN(3) == 0 {
		otherwise = true
		f.param("step."+name+".otherwise", fmt.Sprintf(`{"%s": [%d]}`, out, -i))
		path = path[:strings.LastIndexByte(strings.TrimSuffix(path, ";"), ';')+1]
	}
	switch {
	case fails.lacks && otherwise:
		fails.optional = &value
	case fails.lacks:
		path += "'" + name + "' succeeded;"
	}
	f.tensors = append(f.tensors, branchTensor{out, path})
	conditions := conditionsOf(path)
	f.program = append(f.program, func(v table, rows int) error {
		ran := map[int][]float32{}
		for row := range rows {
			values, args, run := v.row(row), []float32{}, true
			for _, n := range in {
				x, ok := values[n]
				run, args = run && ok, append(args, x)
			}
			if tested != "" {
				x, ok := values[tested]
				run = run && ok && int(x)%41 < int(holds)
			}
			switch {
			case run:
				ran[row] = args
			case otherwise && conditions(values):
				v.set(out, row, value)
			}
		}
		return fails.run(v, out, ran)
	})
}

// nest adds an ensemble as a model: does, then, for even numbers, a step that adds 1000; -5 for others. It returns what it computes.
func (f *branches) nest(name string, inputs int, does func(in []float32) (float32, error)) func(in []float32) (float32, error) {
	inner := &branching{cfg: ensemble(name, inputs, "OUTPUT0")}
	for i := range inner.cfg.Input {
		inner.cfg.Input[i].Optional = false
	}
	f.model(name+"_first", inputs, does)
	f.model(name+"_second", 2, plus(1000))
	addStep(inner.cfg, name+"_first", "middle", []string{"INPUT0", "INPUT1", "INPUT2"}[:inputs]...)
	addStep(inner.cfg, name+"_second", "OUTPUT0", "middle", "INPUT0")
	inner.param("step."+name+"_second.when", "int(middle[0]) % 2 == 0")
	inner.param("step."+name+"_second.otherwise", `{"OUTPUT0": [-5]}`)
	f.models[name] = plan.Model{Signature: config.SignatureOf(inner.cfg), Ensemble: inner.cfg}
	return func(in []float32) (float32, error) {
		v, err := does(in)
		if err != nil || int(v)%2 != 0 {
			return -5, err
		}
		return v + in[0] + 1000, nil
	}
}

// conditionsOf returns a function that reports whether all conditions of a path hold.
func conditionsOf(path string) func(values map[string]float32) bool {
	texts := strings.Split(strings.TrimSuffix(path, ";"), ";")
	return func(values map[string]float32) bool {
		for _, text := range texts {
			if text == "" {
				continue
			}
			if name, fault := strings.CutSuffix(text, "' succeeded"); fault {
				if _, ok := values["t"+strings.TrimPrefix(name, "'m")]; !ok {
					return false
				}
				continue
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(text, "int("), "[")
			limit, err := strconv.Atoi(text[strings.LastIndexByte(text, ' ')+1:])
			v, ok := values[name]
			if err != nil || !ok || int(v)%41 >= limit {
				return false
			}
		}
		return true
	}
}

// interpret computes a request of one number a row; it has no value for a tensor that a row lacks.
func (f *branches) interpret(in []float32) (table, error) {
	v := table{}
	for row, x := range in {
		v.set("INPUT0", row, x)
	}
	for _, f := range f.program {
		if err := f(v, len(in)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// TestRandomConditions compares random ensembles with nested conditions, joins and failing models, under concurrent requests of
// 1 to 8 rows, with an interpreter of single rows.
func TestRandomConditions(t *testing.T) {
	t.Parallel()
	randomBranches(t, false)
}

// randomBranches compares random ensembles, with failures of steps or without, with their interpreter.
func randomBranches(t *testing.T, faults bool) {
	t.Helper()
	graphs := uint64(80)
	if testing.Short() || mode != "" {
		graphs = 20
	}
	for seed := range graphs {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible by seed
			b, f := newHostBench(t), newBranches(rng, 2+rng.IntN(30), !faults && seed%5 == 4, faults)
			x, err := f.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 30 {
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

// compare sends one request and compares its outputs with the interpreter's.
func (f *branches) compare(t *testing.T, b *bench, x *exec.Executor, in []float32) {
	t.Helper()
	want := map[string][]float32{}
	values, err := f.interpret(in)
	broken := err != nil
	for _, o := range f.cfg.Output {
		for row := range in {
			if x, ok := values[o.Name][row]; ok {
				want[o.Name] = append(want[o.Name], x)
			}
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
