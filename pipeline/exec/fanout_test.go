package exec_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// fanned is an ensemble that divides a number v into v modulo 5 items, adds 100 and the number to each, and collects them with their counts.
func fanned(maxBatch int32, ragged bool) *branching {
	e := newBranching(maxBatch)
	width := func(float32) int { return 1 }
	if !ragged {
		width = nil
	}
	e.explode("crop", int(maxBatch), modulo(5), width)
	e.addSplit("crop", "item", "n", "INPUT0", ragged)
	e.step("add", "more", plus(100), "item", "INPUT0")
	e.models["add"].Signature.MaxBatch = 8
	e.param("ensemble.gather", `{"out": {"of": "more", "pad": -1, "counts": "count"}}`)
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
	e.output("count", modelconfig.DataType_TYPE_INT32, 1)
	if maxBatch == 0 {
		e.cfg.Input[0].Dims = []int64{1}
	}
	return e
}

// result is a response in Go values.
type result struct {
	Out, Shape []float32
	Counts     []int32
}

func resultOf(t *testing.T, a *responseSink) (r result) {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	defer a.resp.Release()
	if o := a.resp.Output("out"); o != nil {
		r.Out = slices.Clone(tensor.Slice[float32](o))
		for _, d := range o.Shape.Dims() {
			r.Shape = append(r.Shape, float32(d))
		}
	}
	if o := a.resp.Output("count"); o != nil {
		r.Counts = slices.Clone(tensor.Slice[int32](o))
	}
	return r
}

// TestFanOut checks counts, order and padding of the items of one and several rows, and that items of one shape are one task.
func TestFanOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   []float32
		want result
		ran  int64
	}{
		"one row":   {[]float32{3}, result{[]float32{106, 107, 108}, []float32{1, 3, 1}, []int32{3}}, 3},
		"no items":  {[]float32{5}, result{nil, []float32{1, 0, 0}, []int32{0}}, 0},
		"rows":      {[]float32{2, 5, 1}, result{[]float32{104, 105, -1, -1, 102, -1}, []float32{3, 2, 1}, []int32{2, 0, 1}}, 3},
		"all empty": {[]float32{0, 5}, result{nil, []float32{2, 0, 0}, []int32{0, 0}}, 0},
		"many":      {[]float32{4, 9, 14}, result{[]float32{108, 109, 110, 111, 118, 119, 120, 121, 128, 129, 130, 131}, []float32{3, 4, 1}, []int32{4, 4, 4}}, 12},
	} {
		for _, ragged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s ragged=%v", name, ragged), func(t *testing.T) {
				t.Parallel()
				b, e := newBench(t), fanned(8, ragged)
				x, err := e.executor(t, b)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					got := resultOf(t, submit(t.Context(), x, b.batched(tc.in...)))
					if d := cmp.Diff(tc.want, got); d != "" {
						t.Errorf("(-want +got):\n%s", d)
					}
				}
				if n := e.rows["add"].Load(); n != 3*tc.ran {
					t.Errorf("'add' executed %d rows, want %d", n, 3*tc.ran)
				}
			})
		}
	}
}

// TestDepths checks that the steps of a fan-out are later ones of the same graph than those before it.
func TestDepths(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, err := fanned(4, false).executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	depths, graphs := exec.Depths(x)
	if diff := cmp.Diff(map[string]int{"crop": 0, "add": 2}, depths); diff != "" || len(graphs) != 1 || graphs[0] {
		t.Errorf("graphs %v, depths (-want +got):\n%s", graphs, diff)
	}
}

// TestFanOutWithoutBatches checks a fan-out of an ensemble whose requests have no batch dimension.
func TestFanOutWithoutBatches(t *testing.T) {
	t.Parallel()
	for _, ragged := range []bool{false, true} {
		b, e := newBench(t), fanned(0, ragged)
		e.cfg.Output[0].Dims = []int64{-1, -1}
		x, err := e.executor(t, b)
		if err != nil {
			t.Fatal(err)
		}
		req := b.request(3)
		req.Inputs[0].Tensor.Shape = tensor.Of(1)
		if d := cmp.Diff(result{[]float32{106, 107, 108}, []float32{3, 1}, []int32{3}}, resultOf(t, submit(t.Context(), x, req))); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

// TestFanOutShapes checks that items of different widths are groups of their own, and the same rows after a step that makes them equal.
func TestFanOutShapes(t *testing.T) {
	t.Parallel()
	b, e := newBench(t), newBranching(8)
	e.explode("crop", 8, modulo(9), func(v float32) int { return 1 + int(v)%3 })
	e.addSplit("crop", "item", "shapes", "INPUT0", true)
	e.sum("sum", 8, -1)
	var widths sync.Map
	inner := e.batch["sum"]
	e.batch["sum"] = func(batch *backends.Batch) error {
		widths.Store(batch.In[0].Shape.String(), true)
		return inner(batch)
	}
	addStep(e.cfg, "sum", "s", "item")
	e.param("ensemble.gather", `{"out": "s"}`)
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	got := resultOf(t, submit(t.Context(), x, b.batched(8)))
	want := []float32{8 * 3, 9, 10 * 2, 11 * 3, 12, 13 * 2, 14 * 3, 15}
	if d := cmp.Diff(want, got.Out); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var seen []string
	widths.Range(func(k, _ any) bool { seen = append(seen, k.(string)); return true }) //nolint:forcetypeassert // it is one
	slices.Sort(seen)
	if d := cmp.Diff([]string{"[2,2]", "[3,1]", "[3,3]"}, seen); d != "" && mode == "" {
		t.Errorf("shapes of batches (-want +got):\n%s", d)
	}
}

// TestFanOutErrors checks what fails a request, and that the next one succeeds.
func TestFanOutErrors(t *testing.T) {
	t.Parallel()
	counted := func(n int32) model {
		return func(b *backends.Batch) error {
			if err := explodePlain(b, tensor.Slice[float32](&b.In[0]), 2, func(float32) int { return 2 }); err != nil {
				return err
			}
			for i, v := range tensor.Slice[float32](&b.In[0]) {
				if v == 1 {
					tensor.Slice[int32](&b.Out[1])[i] = n
				}
			}
			return nil
		}
	}
	shaped := func(n int32) model {
		return func(b *backends.Batch) error {
			if err := explodeRagged(b, tensor.Slice[float32](&b.In[0]), 2, func(float32) int { return 2 }, func(float32) int { return 1 }); err != nil {
				return err
			}
			for i, v := range tensor.Slice[float32](&b.In[0]) {
				if v == 1 {
					tensor.Slice[int32](&b.Out[1])[2*i] = n
				}
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		ragged bool
		crop   model
		change func(e *branching)
		want   string
	}{
		"counts beyond":    {false, counted(3), nil, "in ensemble 'e', 'crop.demux': row 0 counts 3 items, expected 0 to 2, as many as it has"},
		"negative count":   {false, counted(-1), nil, "in ensemble 'e', 'crop.demux': row 0 counts -1 items, expected 0 to 2, as many as it has"},
		"negative extent":  {true, shaped(-1), nil, "in ensemble 'e', 'crop.demux': tensor 'n': item 0 has the extent -1, expected 0 or more"},
		"shape and bytes":  {true, shaped(2), nil, "in ensemble 'e', 'crop.demux': tensor 'item_data': item 0 of row 0 has 4 bytes, expected those of FP32 [2]"},
		"empty in between": {true, shaped(0), nil, "in ensemble 'e', 'crop.demux': tensor 'item_data': item 0 of row 0 is empty, but a later one is not"},
		"too many":         {false, counted(2), func(e *branching) { e.param("ensemble.max_items", "3") }, "in ensemble 'e', 'crop.demux': the request has more than 3 items, the limit of ensemble.max_items"},
		"no pad": {
			false, counted(1), func(e *branching) { e.param("ensemble.gather", `{"out": {"of": "more", "counts": "count"}}`) },
			"in ensemble 'e', tensor 'more' has 1 items in row 0 and 2 in row 1, expected the same count: give ensemble.gather a value for 'pad', or send the rows in requests of their own",
		},
		"step": {false, counted(2), func(e *branching) {
			e.does["add"] = func(in []float32) (float32, error) {
				if in[1] == 1 {
					return 0, errBroken
				}
				return 0, nil
			}
		}, "in ensemble 'e', " + errBroken.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, e := newBench(t), fanned(8, tc.ragged)
			if e.batch["crop"] = tc.crop; tc.change != nil {
				tc.change(e)
			}
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			if a := submit(t.Context(), x, b.batched(1, 2)); a.err == nil || a.err.Error() != tc.want {
				t.Errorf("%v, want %s", a.err, tc.want)
			}
			resultOf(t, submit(t.Context(), x, b.batched(2)))
		})
	}
}

// TestFanOutInFlight checks that no more items are in flight than the ensemble allows, that all requests succeed, and that one of more items than
// that runs alone.
func TestFanOutInFlight(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), newBranching(8)
	e.explode("crop", 8, modulo(9), nil)
	e.addSplit("crop", "item", "n", "INPUT0", false)
	var now, most atomic.Int64
	e.step("add", "more", func(in []float32) (float32, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		return in[0], nil
	}, "item")
	e.models["add"].Signature.MaxBatch = 2
	e.param("ensemble.gather", `{"out": {"of": "more", "pad": 0}}`)
	e.param("ensemble.max_items_in_flight", "2")
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			in := float32(i)
			a := submit(context.Background(), x, b.batched(in))
			if a.err != nil {
				t.Error(a.err)
				return
			}
			got := a.tensors()["out"]
			for k, v := range got {
				if v != in+float32(k) {
					t.Errorf("%v: %v", in, got)
				}
			}
			if len(got) != i%9 {
				t.Errorf("%v: %d items", in, len(got))
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > 2 {
		t.Errorf("%d items at a time, want at most 2", n)
	}
	if err := x.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFanOutOutputs checks that a request which names an output runs only what that needs inside of a fan-out.
func TestFanOutOutputs(t *testing.T) {
	t.Parallel()
	b, e := newBench(t), fanned(8, false)
	e.step("other", "less", plus(-100), "item")
	e.param("ensemble.gather", `{"out": {"of": "more", "pad": -1, "counts": "count"}, "less_out": {"of": "less", "pad": 0}}`)
	e.output("less_out", modelconfig.DataType_TYPE_FP32, -1, -1)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"out", "count", "less_out"} {
		req := b.batched(2, 3)
		req.Outputs = []string{out}
		a := submit(t.Context(), x, req)
		if a.err != nil || len(a.resp.Outputs) != 1 {
			t.Fatal(a.err, a.resp)
		}
		a.resp.Release()
	}
	if more, less := e.rows["add"].Load(), e.rows["other"].Load(); more != 10 || less != 5 {
		t.Errorf("'add' executed %d rows and 'other' %d, want 10 and 5", more, less)
	}
}

// TestFanOutAllocs checks that a fan-out allocates nothing in the steady state, with items of one shape and of several. It is not parallel: it
// counts the allocations of the process.
func TestFanOutAllocs(t *testing.T) {
	bn := budgetBench(t)
	for _, ragged := range []bool{false, true} {
		x, err := fixed(ragged).executor(t, bn)
		if err != nil {
			t.Fatal(err)
		}
		if n := allocations(t, bn, x); n != 0 {
			t.Errorf("ragged=%v: %v allocations a request, want none", ragged, n)
		}
	}
}

// fixed is an ensemble of models that allocate nothing, which divides 2 numbers or, with shapes, 3 items of two shapes.
func fixed(ragged bool) *branching {
	e := newBranching(8)
	sig := &config.Signature{Model: "cut", MaxBatch: 8, Inputs: []config.Port{port("INPUT0", tensor.FP32, -1)}, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, -1)}}
	crop := model(share)
	if ragged {
		sig.Outputs = []config.Port{port("OUTPUT0", tensor.Bytes, -1), port("OUTPUT1", tensor.Int32, -1, 1)}
		crop = threeItems
	}
	e.batch["cut"] = crop
	e.models["cut"] = plan.Model{Signature: sig}
	add := &config.Signature{Model: "add", MaxBatch: 8, Inputs: []config.Port{port("INPUT0", tensor.FP32, -1)}, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, 1)}}
	e.models["add"] = plan.Model{Signature: add}
	e.batch["add"] = func(b *backends.Batch) error {
		_, err := b.Alloc(0, tensor.FP32, tensor.Of(int64(b.Rows), 1))
		return err
	}
	if e.addSplit("cut", "item", "shapes", "INPUT0", ragged); !ragged {
		delete(e.cfg.Parameters, "step.cut.counts")
		delete(e.cfg.GetEnsembleScheduling().Step[0].OutputMap, "OUTPUT1")
	}
	addStep(e.cfg, "add", "more", "item")
	e.param("ensemble.gather", `{"out": "more"}`)
	e.output("out", modelconfig.DataType_TYPE_FP32, -1, 1)
	return e
}

// threeItems writes items of 1, 2 and 1 numbers.
func threeItems(b *backends.Batch) error {
	lengths := [3]int32{1, 2, 1}
	data, err := b.AllocBytes(0, tensor.Of(1, 3), 4*3+4*4)
	if err != nil {
		return err
	}
	dst := data.Bytes()
	clear(dst)
	for _, n := range lengths {
		binary.LittleEndian.PutUint32(dst, uint32(4*n)) //nolint:gosec // small
		dst = dst[4+4*n:]
	}
	shapes, err := b.Alloc(1, tensor.Int32, tensor.Of(1, 3, 1))
	if err == nil {
		copy(tensor.Slice[int32](shapes), lengths[:])
	}
	return err
}

// BenchmarkFanOut measures what a demux and a gather of 16 items of one shape add to a step.
func BenchmarkFanOut(bb *testing.B) {
	for _, fan := range []bool{false, true} {
		bb.Run(map[bool]string{false: "step", true: "fan-out"}[fan], func(bb *testing.B) {
			b, e := newHostBench(bb), newBranching(8)
			b.alloc = tensor.NewPool()
			sig := &config.Signature{Model: "cut", MaxBatch: 8, Inputs: []config.Port{port("INPUT0", tensor.FP32, -1)}, Outputs: []config.Port{port("OUTPUT0", tensor.FP32, -1)}}
			e.custom(sig, share)
			add := *sig
			add.Model, add.MaxBatch = "add", 16
			e.custom(&add, share)
			addStep(e.cfg, "cut", "item", "INPUT0")
			if fan {
				addStep(e.cfg, "add", "more", "item")
				e.param("step.cut.demux", "item")
				e.param("ensemble.gather", `{"out": "more"}`)
				e.output("out", modelconfig.DataType_TYPE_FP32, -1, -1)
			} else {
				addStep(e.cfg, "add", "out", "item")
				e.output("out", modelconfig.DataType_TYPE_FP32, -1)
			}
			x, err := e.executor(bb, b)
			if err != nil {
				bb.Fatal(err)
			}
			bb.ReportAllocs()
			for bb.Loop() {
				req := infer.NewRequest()
				in := b.floats(make([]float32, 16))
				in.Shape = tensor.Of(1, 16)
				req.Inputs = append(req.Inputs, infer.Named{Name: "INPUT0", Tensor: in})
				a := submit(bb.Context(), x, req)
				if a.err != nil {
					bb.Fatal(a.err)
				}
				a.resp.Release()
			}
		})
	}
}
