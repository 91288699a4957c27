package tensorop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/tensorop"
)

func port(name string, d tensor.DType, dims ...int64) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
}

func i32(dims []int64, v ...int32) steptest.Value {
	out := steptest.Value{DType: tensor.Int32, Dims: dims}
	for _, x := range v {
		out.Data = append(out.Data, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return out
}

func values(v ...steptest.Value) []steptest.Value { return v }

func params(op string, pairs ...string) map[string]string {
	out := map[string]string{"op": op}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func TestContract(t *testing.T) {
	t.Parallel()
	f, d := steptest.F32, []int64{1, 2}
	text, three := steptest.Text, []int64{1, 3}
	steptest.Run(t, tensorop.NewFactory(),
		steptest.Case{
			Name: "default", Params: params("negative"), Requests: []steptest.Request{
				{Inputs: values(f([]int64{2}, 1, -2)), Want: values(f([]int64{2}, -1, 2))},
			},
		},
		steptest.Case{
			Name: "add", Params: params("add"), MaxBatch: 4,
			Inputs: []config.Port{port("A", tensor.FP32, 2), port("B", tensor.FP32, 1)}, Outputs: []config.Port{port("SUM", tensor.FP32, 2)},
			Requests: []steptest.Request{
				{Inputs: values(f(d, 1, 2), f([]int64{1, 1}, 10)), Want: values(f(d, 11, 12))},
				{Inputs: values(f([]int64{2, 2}, 1, 2, 3, 4), f([]int64{2, 1}, 1, 2)), Want: values(f([]int64{2, 2}, 2, 3, 5, 6))},
			},
		},
		steptest.Case{
			Name: "division by zero", Params: params("floor_divide"), MaxBatch: 8,
			Inputs: []config.Port{port("A", tensor.Int32, 2), port("B", tensor.Int32, 2)},
			Requests: []steptest.Request{
				{Inputs: values(i32(d, 7, -7), i32(d, 2, 2)), Want: values(i32(d, 3, -4))},
				{Inputs: values(i32(d, 7, -7), i32(d, 1, 0)), WantErr: "divides an integer by 0"},
				{Inputs: values(i32(d, 7, -7), i32(d, -2, -2)), Want: values(i32(d, -4, 3))},
			},
		},
		steptest.Case{
			Name: "cast refuses", Params: params("cast", "dtype", "TYPE_UINT8"), MaxBatch: 8, Inputs: []config.Port{port("A", tensor.FP32, 2)},
			Requests: []steptest.Request{
				{Inputs: values(f(d, 255.9, -0.9)), Want: values(steptest.U8(d, 255, 0))},
				{Inputs: values(f(d, 0, 256)), WantErr: "has a number that UINT8 does not have"},
				{Inputs: values(f(d, 1, 2)), Want: values(steptest.U8(d, 1, 2))},
			},
		},
		steptest.Case{
			Name: "cast to text", Params: params("cast", "dtype", "BYTES"), MaxBatch: 8, Inputs: []config.Port{port("A", tensor.FP32, 2)},
			Requests: []steptest.Request{{Inputs: values(f(d, 0.1, -3)), Want: values(text(d, "0.1", "-3"))}},
		},
		steptest.Case{
			Name: "cast of text", Params: params("cast", "dtype", "INT32"), MaxBatch: 8, Inputs: []config.Port{port("A", tensor.Bytes, 2)},
			Requests: []steptest.Request{
				{Inputs: values(text(d, "12", "-3")), Want: values(i32(d, 12, -3))},
				{Inputs: values(text(d, "1", "1.5")), WantErr: "expected a number of type INT32"},
			},
		},
		steptest.Case{
			Name: "gather", Params: params("gather"), MaxBatch: 8,
			Inputs: []config.Port{port("A", tensor.Bytes, 3), port("I", tensor.Int64, 2)},
			Requests: []steptest.Request{
				{Inputs: values(text(three, "a", "", "cc"), steptest.I64(d, -1, 0)), Want: values(text(d, "cc", "a"))},
				{Inputs: values(text(three, "a", "", "cc"), steptest.I64(d, 3, 0)), WantErr: "index 3 is outside"},
				{Inputs: values(text(three, "d", "e", "f"), steptest.I64(d, 1, 1)), Want: values(text(d, "e", "e"))},
			},
		},
		steptest.Case{
			Name: "reshape", Params: params("reshape", "dims", "[-1, 2]"), MaxBatch: 8, Inputs: []config.Port{port("A", tensor.FP32, -1)},
			Requests: []steptest.Request{
				{Inputs: values(f([]int64{1, 4}, 1, 2, 3, 4)), Want: values(f([]int64{1, 2, 2}, 1, 2, 3, 4))},
			},
		},
		steptest.Case{
			Name: "split", Params: params("split", "sizes", "1,2"), MaxBatch: 8, Inputs: []config.Port{port("A", tensor.FP32, 3)},
			Outputs: []config.Port{port("X", tensor.FP32, 1), port("Y", tensor.FP32, 2)},
			Requests: []steptest.Request{
				{Inputs: values(f(three, 1, 2, 3)), Want: values(f([]int64{1, 1}, 1), f(d, 2, 3))},
			},
		},
		steptest.Case{
			Name: "one_hot", Params: params("one_hot", "depth", "2"), MaxBatch: 8, Inputs: []config.Port{port("A", tensor.Int64, 1)},
			Requests: []steptest.Request{
				{Inputs: values(steptest.I64([]int64{1, 1}, 1)), Want: values(f([]int64{1, 1, 2}, 0, 1))},
				{Inputs: values(steptest.I64([]int64{1, 1}, 2)), WantErr: "index 2 is outside"},
			},
		},
		steptest.Case{
			Name: "half", Params: params("add", "value", "1"), Inputs: []config.Port{port("A", tensor.BF16, -1)},
			Requests: []steptest.Request{{
				Inputs: values(steptest.Value{DType: tensor.BF16, Dims: []int64{1}, Data: []byte{0x80, 0x3f}}),
				Want:   values(steptest.Value{DType: tensor.BF16, Dims: []int64{1}, Data: []byte{0, 0x40}}),
			}},
		},
	)
}

func TestConstant(t *testing.T) {
	t.Parallel()
	steptest.Run(t, tensorop.NewConstantFactory(),
		steptest.Case{Name: "scalar", Requests: []steptest.Request{{Inputs: values(steptest.F32([]int64{1}, 9)), Want: values(steptest.F32(nil, 0))}}},
		steptest.Case{
			Name: "rows", Params: map[string]string{"value": `[["a", ""], ["b", "c"]]`, "dtype": "BYTES"}, MaxBatch: 4,
			Requests: []steptest.Request{{
				Inputs: values(steptest.F32([]int64{2, 1}, 1, 2)),
				Want:   values(steptest.Text([]int64{2, 2, 2}, "a", "", "b", "c", "a", "", "b", "c")),
			}},
		},
		steptest.Case{
			Name: "bool", Params: map[string]string{"value": "[true, false]", "dtype": "BOOL"},
			Requests: []steptest.Request{{Inputs: values(steptest.F32([]int64{1}, 1)), Want: values(steptest.Value{DType: tensor.Bool, Dims: []int64{2}, Data: []byte{1, 0}})}},
		},
		steptest.Case{Name: "uneven", Params: map[string]string{"value": "[[1], 2]"}, WantNewErr: "uneven arrays"},
		steptest.Case{Name: "no JSON", Params: map[string]string{"value": "[1"}, WantNewErr: "expected JSON"},
		steptest.Case{Name: "null", Params: map[string]string{"value": "[null]"}, WantNewErr: "no number"},
		steptest.Case{Name: "type", Params: map[string]string{"dtype": "FLOAT"}, WantNewErr: "expected a type such as"},
		steptest.Case{Name: "range", Params: map[string]string{"value": "256", "dtype": "UINT8"}, WantNewErr: "expected one of type UINT8"},
	)
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	f := func(dims ...int64) []config.Port { return []config.Port{port("A", tensor.FP32, dims...)} }
	two := func(a, b config.Port) []config.Port { return []config.Port{a, b} }
	tests := []struct {
		want   string
		params map[string]string
		in     []config.Port
	}{
		{"there is one operand", params("add"), nil},
		{"parameter 'axis' is none of this operation, expected one of: value, swap", params("add", "axis", "1"), nil},
		{"cannot be broadcast together", params("add"), two(port("A", tensor.FP32, 2), port("B", tensor.FP32, 3))},
		{"input 'B' is TYPE_FP64, expected TYPE_FP32", params("add"), two(port("A", tensor.FP32, 2), port("B", tensor.FP64, 2))},
		{`parameter 'value' is "x", expected a number of type FP32`, params("add", "value", "x"), nil},
		{"expected numbers", params("add", "value", "1"), []config.Port{port("A", tensor.Bool, 2)}},
		{"cast it before", params("exp"), []config.Port{port("A", tensor.Int32, 2)}},
		{"expected signed numbers", params("negative"), []config.Port{port("A", tensor.Uint8, 2)}},
		{"such as FP32", params("cast", "dtype", "float"), nil},
		{"saturate, refuse", params("cast", "dtype", "INT8", "overflow", "x"), nil},
		{"have 6 elements", params("reshape", "dims", "4"), f(2, 3)},
		{"have 6 elements", params("reshape", "dims", "4,-1"), f(2, 3)},
		{"one at most is -1", params("reshape", "dims", "-1,-1"), nil},
		{"expected all 2 axes", params("transpose", "axes", "0"), f(2, 3)},
		{"different axes of 2", params("transpose", "axes", "0,0"), f(2, 3)},
		{"expected integers", params("transpose", "axes", "a"), f(2, 3)},
		{"start:stop:step", params("slice", "slice", "1:2:0"), f(2, 3)},
		{"start:stop:step", params("slice", "slice", "..., ..."), f(2, 3)},
		{"is needed, such as", params("slice"), f(2, 3)},
		{"at most 2 axes", params("slice", "slice", "1,1,1"), f(2, 3)},
		{"index 2 is outside of axis 0, which has 2", params("slice", "slice", "2"), f(2, 3)},
		{"outside of axis 1", params("concat", "axis", "1"), two(port("A", tensor.FP32, 2, 1), port("B", tensor.FP32, 3, 1))},
		{"expected an axis of 1 dimensions", params("concat", "axis", "1"), nil},
		{"has dims [3], expected [2]", params("stack"), two(port("A", tensor.FP32, 2), port("B", tensor.FP32, 3))},
		{"a sum of 3", params("split", "sizes", "1,1"), f(3)},
		{"divides 3", params("split", "sizes", "2"), f(3)},
		{"there are no indices", params("gather"), nil},
		{"index 3 is outside", params("gather", "indices", "3"), f(3)},
		{"expected TYPE_INT32 or TYPE_INT64", params("gather"), two(port("A", tensor.FP32, 2), port("B", tensor.FP32, 2))},
		{"3 to 3", params("where"), nil},
		{"before and after each axis", params("pad", "pads", "1"), nil},
		{"constant, edge, reflect", params("pad", "pads", "1,1", "mode", "wrap"), nil},
		{"parameter 'depth'", params("one_hot"), []config.Port{port("A", tensor.Int32, 1)}},
		{"parameter 'low' or 'high'", params("clip"), nil},
		{"at most 8", params("negative"), f(1, 1, 1, 1, 1, 1, 1, 1, 1)},
		{"at most 8", params("stack"), f(1, 1, 1, 1, 1, 1, 1, 1)},
		{"is optional", params("negative"), []config.Port{{Name: "A", DType: tensor.FP32, Optional: true}}},
		{"true or false", params("sum", "keep_dims", "yes"), nil},
	}
	for _, tt := range tests {
		_, _, err := makeStep(tt.params, 0, tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %s", tt.params, err, tt.want)
		}
	}
}

// batch returns a function that runs the step of a model on a batch of inputs.
func batch(tb testing.TB, p map[string]string, rows int, in ...config.Port) func() {
	tb.Helper()
	step, sig, err := makeStep(p, rows, in)
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	b := &backends.Batch{Rows: rows, Allocator: pool, Out: make([]tensor.Tensor, len(sig.Outputs))}
	for i := range in {
		x, err := tensor.New(pool, in[i].DType, in[i].Dims.Prepend(int64(rows)))
		if err != nil {
			tb.Fatal(err)
		}
		fill(&x)
		b.In = append(b.In, x)
	}
	for i := range rows {
		b.Requests = append(b.Requests, backends.Request{First: i, Rows: 1})
	}
	return func() {
		if err := step.Run(context.Background(), b); err != nil {
			tb.Fatal(err)
		}
	}
}

// fill sets elements to numbers from 1 to 4, of BOOL to 0 and 1.
func fill(x *tensor.Tensor) {
	for i := range int(x.Shape.Elements()) {
		v := 1 + i%4
		switch x.DType {
		case tensor.FP32:
			tensor.Slice[float32](x)[i] = float32(v) / 2
		case tensor.Int32:
			tensor.Slice[int32](x)[i] = int32(v)
		case tensor.Int64:
			tensor.Slice[int64](x)[i] = int64(v)
		case tensor.Uint8:
			x.Bytes()[i] = byte(v)
		case tensor.Bool:
			x.Bytes()[i] = byte(v & 1)
		default:
			tensor.Slice[uint16](x)[i] = 0x3c00
		}
	}
}

// FuzzShapes runs operations of any parameters on inputs of any shape. The result must be an error or
// outputs as declared.
func FuzzShapes(f *testing.F) {
	f.Add(uint8(0), uint8(4), []byte{2, 3, 4}, []byte{3, 1}, []byte("abcdefgh"), "1", "-1, 2", "0:1, ...")
	f.Add(uint8(30), uint8(10), []byte{0, 3}, []byte{}, []byte{0xff, 0x80}, "-1", "1,0", "::-1, 2")
	names := tensorop.NewFactory().Params[0].Values
	f.Fuzz(func(t *testing.T, op, kind uint8, one, two, data []byte, number, list, cut string) {
		p := params(names[int(op)%len(names)])
		for _, d := range tensorop.NewFactory().Params {
			switch d.Key {
			case "value", "low", "high", "depth", "axis":
				p[d.Key] = number
			case "axes", "dims", "indices", "pads", "sizes":
				p[d.Key] = list
			case "slice":
				p[d.Key] = cut
			}
		}
		fuzzOne(t, p, kind, [][]byte{one, two}, data)
	})
}

// fuzzOne removes parameters until the step can be made.
func fuzzOne(t *testing.T, p map[string]string, kind uint8, shapes [][]byte, data []byte) {
	t.Helper()
	for key := range p {
		alone := map[string]string{"op": p["op"], key: p[key], "dtype": "INT8"}
		if p["op"] != "cast" && p["op"] != "one_hot" {
			delete(alone, "dtype")
		}
		for n := range len(shapes) + 1 {
			fuzzRun(t, alone, tensor.DType(1+int(kind)%14), n, int(kind)/14%3, shapes, data)
		}
	}
}

func fuzzRun(t *testing.T, p map[string]string, d tensor.DType, n, maxBatch int, shapes [][]byte, data []byte) {
	t.Helper()
	pool := tensortest.NewChecked(t, nil)
	b := &backends.Batch{Rows: max(1, maxBatch), Allocator: pool, Requests: []backends.Request{{Rows: max(1, maxBatch)}}}
	defer func() { tensor.ReleaseAll(b.In); tensor.ReleaseAll(b.Out) }()
	var ports []config.Port
	for i := range n {
		full, open := []int64(nil), []int64(nil)
		if maxBatch > 0 {
			full = append(full, int64(maxBatch))
		}
		for _, v := range shapes[i][:min(len(shapes[i]), 4)] {
			full, open = append(full, int64(v%5)), append(open, -1)
		}
		shape := tensor.Of(full...)
		c := goldTensor{DType: d.String(), Dims: full}
		for k := range int(shape.Elements()) * max(1, d.Size()) {
			if v := data; d == tensor.Bytes {
				c.Data = tensor.AppendBytes(c.Data, v[:min(len(v), k%5)])
			} else if len(v) > 0 {
				c.Data = append(c.Data, v[k%len(v)])
			} else {
				c.Data = append(c.Data, 0)
			}
		}
		x, err := tensor.NewBytes(pool, shape, len(c.Data))
		if err != nil {
			t.Fatal(err)
		}
		copy(x.Bytes(), c.Data)
		x.DType = d
		b.In = append(b.In, x)
		ports = append(ports, port(fmt.Sprint("IN", i), d, open...))
	}
	step, sig, err := makeStep(p, maxBatch, ports)
	if err != nil || len(ports) == 0 {
		return
	}
	b.Out = make([]tensor.Tensor, len(sig.Outputs))
	if step.Run(context.Background(), b) != nil {
		return
	}
	for i := range b.Out {
		o := &b.Out[i]
		if !o.Present() || o.DType != sig.Outputs[i].DType || !o.Shape.Matches(sig.Outputs[i].FullDims(maxBatch)) {
			t.Errorf("%v: output %d is %s %s, declared %v", p, i, o.DType, o.Shape, sig.Outputs[i])
		} else if o.DType == tensor.Bytes && tensor.CheckBytes(o.Bytes(), o.Shape.Elements()) != nil {
			t.Errorf("%v: output %d is no list of %d texts", p, i, o.Shape.Elements())
		}
	}
}

// FuzzConstant parses arbitrary values.
func FuzzConstant(f *testing.F) {
	f.Add("[[1, 2], [3, 4]]", "INT8")
	f.Add(`["a", []]`, "BYTES")
	f.Fuzz(func(t *testing.T, value, dtype string) {
		c := tensorop.NewConstantFactory()
		_, err := c.New(&steps.Settings{Model: "m", Params: map[string]string{"value": value, "dtype": dtype}})
		_, other := c.Signature(&steps.Settings{Model: "m", Params: map[string]string{"value": value, "dtype": dtype}})
		if (err == nil) != (other == nil) {
			t.Errorf("made: %v, declared: %v", err, other)
		}
	})
}
