package exec_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// adapted is one model that returns what it receives, behind an adapter.
func adapted(t *testing.T, b *bench, from, to config.Port, maxBatch int, formats ...modelconfig.ModelInput_Format) (*exec.Executor, error) {
	t.Helper()
	to.Name = "INPUT0"
	e := newBranching(int32(maxBatch), "out")
	e.cfg.Input[0].DataType, e.cfg.Input[0].Dims = modelconfig.DataType(from.DType), from.Dims.Dims()
	e.cfg.Output[0].DataType, e.cfg.Output[0].Dims = modelconfig.DataType(to.DType), to.Dims.Dims()
	sig := &config.Signature{Model: "m", Version: 1, MaxBatch: maxBatch, Inputs: []config.Port{to}, Outputs: []config.Port{to}}
	sig.Outputs[0].Name = "OUTPUT0"
	m := plan.Model{Signature: sig}
	if formats != nil {
		e.cfg.Input[0].Format = formats[0]
		m.Formats = map[string]modelconfig.ModelInput_Format{"INPUT0": formats[1]}
	}
	e.models["m"] = m
	addStep(e.cfg, "m", "out", "INPUT0")
	e.param("ensemble.adapt", "true")
	p, err := plan.Compile(e.cfg, 1, e)
	if err = errors.Join(err, config.Validate(e.cfg)); err != nil {
		return nil, err
	}
	return b.executor(p, b.targets(p, func(string) model { return share })...), nil
}

// adaptOne sends one tensor through the adapter and returns what the model got.
func adaptOne[S, D tensor.Number](t *testing.T, b *bench, x *exec.Executor, d tensor.DType, shape []int64, values []S) ([]D, tensor.Shape) {
	t.Helper()
	in, err := tensor.New(b.alloc, d, tensor.Of(shape...))
	if err != nil {
		t.Fatal(err)
	}
	copy(tensor.Slice[S](&in), values)
	req := b.request(0)
	req.Inputs[0].Tensor.Release()
	req.Inputs[0].Tensor = in
	a := submit(t.Context(), x, req)
	if a.err != nil {
		t.Fatal(a.err)
	}
	defer a.resp.Release()
	out := &a.resp.Outputs[0].Tensor
	return append([]D{}, tensor.Slice[D](out)...), out.Shape
}

// castCase checks the conversion of values from one type to another one.
func castCase[S, D tensor.Number](from, to tensor.DType, values []S, want ...D) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		t.Parallel()
		b := newBench(t)
		x, err := adapted(t, b, config.Port{DType: from, Dims: tensor.Of(-1)}, config.Port{DType: to, Dims: tensor.Of(-1)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, shape := adaptOne[S, D](t, b, x, from, []int64{int64(len(values))}, values)
		if d := cmp.Diff(want, got); d != "" || !shape.Equal(tensor.Of(int64(len(values)))) {
			t.Errorf("shape %s (-want +got):\n%s", shape, d)
		}
	}
}

// TestCasts checks every conversion that loses nothing, at the ends of its type.
func TestCasts(t *testing.T) {
	t.Parallel()
	i8, i16, i32 := []int8{-128, -1, 127}, []int16{-32768, -1, 32767}, []int32{-2147483648, -1, 2147483647}
	u8, u16, u32 := []uint8{0, 255}, []uint16{0, 65535}, []uint32{0, 4294967295}
	f16, bf16, f32 := []uint16{0xfbff, 0x0001, 0x3c01}, []uint16{0xff7f, 0x0001, 0x3f81}, []float32{-3.4028234663852886e38, 1e-45, 16777217}
	for name, run := range map[string]func(t *testing.T){
		"int8 int16":    castCase[int8, int16](tensor.Int8, tensor.Int16, i8, -128, -1, 127),
		"int8 int32":    castCase[int8, int32](tensor.Int8, tensor.Int32, i8, -128, -1, 127),
		"int8 int64":    castCase[int8, int64](tensor.Int8, tensor.Int64, i8, -128, -1, 127),
		"int8 fp32":     castCase[int8, float32](tensor.Int8, tensor.FP32, i8, -128, -1, 127),
		"int8 fp64":     castCase[int8, float64](tensor.Int8, tensor.FP64, i8, -128, -1, 127),
		"int16 int32":   castCase[int16, int32](tensor.Int16, tensor.Int32, i16, -32768, -1, 32767),
		"int16 int64":   castCase[int16, int64](tensor.Int16, tensor.Int64, i16, -32768, -1, 32767),
		"int16 fp32":    castCase[int16, float32](tensor.Int16, tensor.FP32, i16, -32768, -1, 32767),
		"int16 fp64":    castCase[int16, float64](tensor.Int16, tensor.FP64, i16, -32768, -1, 32767),
		"int32 int64":   castCase[int32, int64](tensor.Int32, tensor.Int64, i32, -2147483648, -1, 2147483647),
		"int32 fp64":    castCase[int32, float64](tensor.Int32, tensor.FP64, i32, -2147483648, -1, 2147483647),
		"uint8 uint16":  castCase[uint8, uint16](tensor.Uint8, tensor.Uint16, u8, 0, 255),
		"uint8 uint32":  castCase[uint8, uint32](tensor.Uint8, tensor.Uint32, u8, 0, 255),
		"uint8 uint64":  castCase[uint8, uint64](tensor.Uint8, tensor.Uint64, u8, 0, 255),
		"uint8 int16":   castCase[uint8, int16](tensor.Uint8, tensor.Int16, u8, 0, 255),
		"uint8 int32":   castCase[uint8, int32](tensor.Uint8, tensor.Int32, u8, 0, 255),
		"uint8 int64":   castCase[uint8, int64](tensor.Uint8, tensor.Int64, u8, 0, 255),
		"uint8 fp32":    castCase[uint8, float32](tensor.Uint8, tensor.FP32, u8, 0, 255),
		"uint8 fp64":    castCase[uint8, float64](tensor.Uint8, tensor.FP64, u8, 0, 255),
		"uint16 uint32": castCase[uint16, uint32](tensor.Uint16, tensor.Uint32, u16, 0, 65535),
		"uint16 uint64": castCase[uint16, uint64](tensor.Uint16, tensor.Uint64, u16, 0, 65535),
		"uint16 int32":  castCase[uint16, int32](tensor.Uint16, tensor.Int32, u16, 0, 65535),
		"uint16 int64":  castCase[uint16, int64](tensor.Uint16, tensor.Int64, u16, 0, 65535),
		"uint16 fp32":   castCase[uint16, float32](tensor.Uint16, tensor.FP32, u16, 0, 65535),
		"uint16 fp64":   castCase[uint16, float64](tensor.Uint16, tensor.FP64, u16, 0, 65535),
		"uint32 uint64": castCase[uint32, uint64](tensor.Uint32, tensor.Uint64, u32, 0, 4294967295),
		"uint32 int64":  castCase[uint32, int64](tensor.Uint32, tensor.Int64, u32, 0, 4294967295),
		"uint32 fp64":   castCase[uint32, float64](tensor.Uint32, tensor.FP64, u32, 0, 4294967295),
		"fp16 fp32":     castCase[uint16, float32](tensor.FP16, tensor.FP32, f16, -65504, 5.960464477539063e-08, 1.0009765625),
		"fp16 fp64":     castCase[uint16, float64](tensor.FP16, tensor.FP64, f16, -65504, 5.960464477539063e-08, 1.0009765625),
		"bf16 fp32":     castCase[uint16, float32](tensor.BF16, tensor.FP32, bf16, -3.3895313892515355e38, 9.183549615799121e-41, 1.0078125),
		"bf16 fp64":     castCase[uint16, float64](tensor.BF16, tensor.FP64, bf16, -3.3895313892515355e38, 9.183549615799121e-41, 1.0078125),
		"fp32 fp64":     castCase[float32, float64](tensor.FP32, tensor.FP64, f32, -3.4028234663852886e38, 1.401298464324817e-45, 16777216),
	} {
		t.Run(name, run)
	}
}

// TestCastsComplete checks that every pair of types either has a case above or is refused, and that no pair that loses values is among them.
func TestCastsComplete(t *testing.T) {
	t.Parallel()
	types := []tensor.DType{tensor.Bool, tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64, tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64, tensor.Bytes}
	n := 0
	for _, from := range types {
		for _, to := range types {
			if _, err := adapted(t, newHostBench(t), config.Port{DType: from, Dims: tensor.Of(-1)}, config.Port{DType: to, Dims: tensor.Of(-1)}, 0); err == nil && from != to {
				n++
			}
		}
	}
	if n != 33 {
		t.Errorf("%d conversions, but TestCasts has 33", n)
	}
}

// TestLayouts compares changes of layout, with a conversion, batches and a leading dimension, with an index computed for each element.
func TestLayouts(t *testing.T) {
	t.Parallel()
	const n, h, w, c = 2, 4, 5, 3
	for _, tc := range []struct {
		name     string
		from, to []int64
		batched  bool
		shape    []int64
		want     func(i, y, x, k int) int // where the element of an image's row, column and channel is in the result
		was      func(i, y, x, k int) int
	}{
		{"to NCHW", []int64{h, w, c}, []int64{c, h, w}, true, []int64{n, c, h, w}, planar(h, w, c), packed(h, w, c)},
		{"to NHWC", []int64{c, h, w}, []int64{h, w, c}, true, []int64{n, h, w, c}, packed(h, w, c), planar(h, w, c)},
		{"one image", []int64{h, w, c}, []int64{c, h, w}, false, []int64{c, h, w}, planar(h, w, c), packed(h, w, c)},
		{"with a leading dimension", []int64{h, w, c}, []int64{1, c, h, w}, false, []int64{1, c, h, w}, planar(h, w, c), packed(h, w, c)},
		{"without it", []int64{1, h, w, c}, []int64{c, h, w}, true, []int64{n, c, h, w}, planar(h, w, c), packed(h, w, c)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, maxBatch, images, shape := newBench(t), 0, 1, tc.from
			if tc.batched {
				maxBatch, images, shape = 8, n, append([]int64{n}, tc.from...)
			}
			x, err := adapted(t, b, config.Port{DType: tensor.Uint8, Dims: tensor.Of(tc.from...)}, config.Port{DType: tensor.FP32, Dims: tensor.Of(tc.to...)}, maxBatch)
			if err != nil {
				t.Fatal(err)
			}
			in, want := make([]uint8, images*h*w*c), make([]float32, images*h*w*c)
			for i := range images {
				for y := range h {
					for xx := range w {
						for k := range c {
							v := i*100 + y*20 + xx*3 + k
							in[tc.was(i, y, xx, k)], want[tc.want(i, y, xx, k)] = uint8(v), float32(v)
						}
					}
				}
			}
			got, s := adaptOne[uint8, float32](t, b, x, tensor.Uint8, shape, in)
			if d := cmp.Diff(want, got); d != "" || !s.Equal(tensor.Of(tc.shape...)) {
				t.Errorf("shape %s (-want +got):\n%s", s, d)
			}
		})
	}
}

func packed(h, w, c int) func(i, y, x, k int) int {
	return func(i, y, x, k int) int { return ((i*h+y)*w+x)*c + k }
}

func planar(h, w, c int) func(i, y, x, k int) int {
	return func(i, y, x, k int) int { return ((i*c+k)*h+y)*w + x }
}

// TestLayoutFormats checks that declared formats decide where the dims leave it open, and that nothing is guessed without them.
func TestLayoutFormats(t *testing.T) {
	t.Parallel()
	const nchw, nhwc = modelconfig.ModelInput_FORMAT_NCHW, modelconfig.ModelInput_FORMAT_NHWC
	cube := config.Port{DType: tensor.FP32, Dims: tensor.Of(2, 2, 2)}
	for _, formats := range [][]modelconfig.ModelInput_Format{{nhwc, nchw}, {nchw, nhwc}, {nchw, nchw}} {
		t.Run(fmt.Sprint(formats), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			x, err := adapted(t, b, cube, cube, 0, formats...)
			if err != nil {
				t.Fatal(err)
			}
			want := []float32{0, 2, 4, 6, 1, 3, 5, 7} // of packed to planar
			if formats[0] == nchw {
				want = []float32{0, 4, 1, 5, 2, 6, 3, 7}
			}
			if formats[0] == formats[1] {
				want = []float32{0, 1, 2, 3, 4, 5, 6, 7}
			}
			got, _ := adaptOne[float32, float32](t, b, x, tensor.FP32, []int64{2, 2, 2}, []float32{0, 1, 2, 3, 4, 5, 6, 7})
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
