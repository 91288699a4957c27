package tensorop_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/tensorop"
)

// goldTensor is a tensor as testdata/gold.py writes it, with the batch dimension.
type goldTensor struct {
	DType string
	Dims  []int64
	Data  []byte
}

type goldCase struct {
	Params   map[string]string
	Batch    bool
	In, Want []goldTensor
	Near     float64
}

func readGold(t *testing.T) (list []goldCase) {
	t.Helper()
	steptest.ReadGold(t, "gold.json.gz", &list)
	return list
}

// TestGold compares every operation with numpy, with dims that are known at load and with variable
// dims.
func TestGold(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i, c := range readGold(t) {
		seen[c.Params["op"]]++
		for _, open := range []bool{false, true} {
			name := fmt.Sprint(i, " ", open, " ", c.Params, c.In[0].DType, c.In[0].Dims)
			got, err := runGold(t, &c, open)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for k, want := range c.Want {
				if why := differs(&want, &got[k], c.Near); why != "" {
					t.Errorf("%s: output %d %s", name, k, why)
				}
			}
		}
	}
	if len(seen) < 42 {
		t.Errorf("gold has the operations %v, expected all", slices.Sorted(maps.Keys(seen)))
	}
}

// makeStep returns a step of declared inputs, and its signature.
func makeStep(params map[string]string, maxBatch int, in []config.Port) (steps.Step, *config.Signature, error) {
	f := tensorop.NewFactory()
	all, err := f.Resolve(params)
	if err != nil {
		return nil, nil, err
	}
	s := &steps.Settings{Model: "tested", MaxBatch: maxBatch, Params: all, Inputs: in}
	sig, err := f.Signature(s)
	if err != nil {
		return nil, nil, err
	}
	step, err := f.New(s)
	return step, sig, err
}

func runGold(t *testing.T, c *goldCase, open bool) ([]goldTensor, error) {
	t.Helper()
	pool := tensortest.NewChecked(t, nil)
	maxBatch := 0
	if c.Batch {
		maxBatch = 8
	}
	b := &backends.Batch{Rows: 1, Allocator: pool}
	var ports []config.Port
	for i, in := range c.In {
		dims := tensor.Of(in.Dims...)
		if c.Batch {
			b.Rows = int(in.Dims[0])
			dims = dims.Tail()
		}
		for k := range dims.Rank() {
			if open {
				dims.SetDim(k, -1)
			}
		}
		x, err := tensor.NewBytes(pool, tensor.Of(in.Dims...), len(in.Data))
		if err != nil {
			t.Fatal(err)
		}
		copy(x.Bytes(), in.Data)
		x.DType = tensor.ParseDType(in.DType)
		b.In = append(b.In, x)
		ports = append(ports, config.Port{Name: fmt.Sprint("IN", i), DType: x.DType, Dims: dims})
	}
	defer tensor.ReleaseAll(b.In)
	for i := range b.Rows {
		b.Requests = append(b.Requests, backends.Request{First: i, Rows: 1})
	}
	step, sig, err := makeStep(c.Params, maxBatch, ports)
	if err != nil {
		return nil, err
	}
	b.Out = make([]tensor.Tensor, len(sig.Outputs))
	defer tensor.ReleaseAll(b.Out)
	if err := step.Run(context.Background(), b); err != nil {
		return nil, err
	}
	var out []goldTensor
	for i := range b.Out {
		o := &b.Out[i]
		if full := sig.Outputs[i].FullDims(maxBatch); o.DType != sig.Outputs[i].DType || !o.Shape.Matches(full) {
			return nil, fmt.Errorf("output %d is %s %s, declared %s %s", i, o.DType, o.Shape, sig.Outputs[i].DType, full)
		}
		out = append(out, goldTensor{o.DType.String(), slices.Clone(o.Shape.Dims()), slices.Clone(o.Bytes())})
	}
	if len(out) != len(c.Want) {
		return nil, fmt.Errorf("%d outputs, want %d", len(out), len(c.Want))
	}
	for i := range b.Requests {
		if b.Requests[i].Err != nil {
			return nil, b.Requests[i].Err
		}
	}
	return out, nil
}

// differs describes how got differs from want: in type or shape, in bits where near is 0 (but for the
// sign of 0 and the bits of NaN), else by more than near relative to the number.
func differs(want, got *goldTensor, near float64) string {
	if want.DType != got.DType || !slices.Equal(want.Dims, got.Dims) || len(want.Data) != len(got.Data) {
		return fmt.Sprintf("is %s %v of %d bytes, want %s %v of %d", got.DType, got.Dims, len(got.Data), want.DType, want.Dims, len(want.Data))
	}
	d := tensor.ParseDType(want.DType)
	size := d.Size()
	if d != tensor.FP16 && d != tensor.BF16 && d != tensor.FP32 && d != tensor.FP64 {
		for i := range want.Data {
			if want.Data[i] != got.Data[i] {
				return fmt.Sprintf("differs at byte %d: %v, want %v", i, got.Data[i], want.Data[i])
			}
		}
		return ""
	}
	for i := 0; i < len(want.Data); i += size {
		w, g := number(d, want.Data[i:i+size]), number(d, got.Data[i:i+size])
		same := w == g || w != w && g != g
		if !same && !(math.Abs(w-g) <= near*math.Max(math.Abs(w), math.Abs(g))) {
			return fmt.Sprintf("has %v at %d, want %v", g, i/size, w)
		}
	}
	return ""
}

// number parses a floating-point number.
func number(d tensor.DType, data []byte) float64 {
	var bits uint64
	for i, v := range data {
		bits |= uint64(v) << (8 * i)
	}
	switch d {
	case tensor.FP64:
		return math.Float64frombits(bits)
	case tensor.FP32:
		return float64(math.Float32frombits(uint32(bits)))
	case tensor.BF16:
		return float64(math.Float32frombits(uint32(bits) << 16))
	}
	sign := 1.0
	if bits>>15 != 0 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&31), float64(bits&0x3ff)
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	default:
		return sign * math.Ldexp(fraction+1024, exponent-25)
	}
}
