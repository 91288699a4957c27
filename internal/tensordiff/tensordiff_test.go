package tensordiff_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tensordiff"
)

// numbersOf returns a tensor of numbers.
func numbersOf[T any](t *testing.T, d tensor.DType, shape []int64, values ...T) *tensordiff.Tensor {
	t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	return &tensordiff.Tensor{d, shape, data, true}
}

func textsOf(shape []int64, values ...string) *tensordiff.Tensor {
	c := &tensordiff.Tensor{tensor.Bytes, shape, []byte{}, true}
	for _, v := range values {
		c.Data = tensor.AppendBytes(c.Data, v)
	}
	return c
}

func TestCompare(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	f32 := func(values ...float32) *tensordiff.Tensor {
		return numbersOf(t, tensor.FP32, []int64{int64(len(values))}, values...)
	}
	for _, c := range []struct {
		name      string
		want, got *tensordiff.Tensor
		diff      *tensordiff.Difference
	}{
		{"equal", f32(1, 2), f32(1, 2), nil},
		{"within the tolerance", f32(1, 0), f32(1.0001, 0.00001), nil},
		{"NaN", f32(nan, inf, -inf), f32(-nan, inf, -inf), nil},
		{"the largest of two", f32(1, 2, 4), f32(1.5, 3, 4), &tensordiff.Difference{Kind: tensordiff.KindValues, Want: "2", Got: "3", Index: []int64{1}, Different: 2, Elements: 3, Absolute: new(1.0), Relative: new(0.5)}},
		{"from zero", f32(0), f32(1), &tensordiff.Difference{Kind: tensordiff.KindValues, Want: "0", Got: "1", Index: []int64{0}, Different: 1, Elements: 1, Absolute: new(1.0)}},
		{"NaN instead", f32(1, 1), f32(3, nan), &tensordiff.Difference{Kind: tensordiff.KindValues, Want: "1", Got: "NaN", Index: []int64{1}, Different: 2, Elements: 2, Relative: new(2.0)}},
		{"another infinity", f32(inf), f32(-inf), &tensordiff.Difference{Kind: tensordiff.KindValues, Want: "+Inf", Got: "-Inf", Index: []int64{0}, Different: 1, Elements: 1}},
		{
			"FP16, one unit", numbersOf(t, tensor.FP16, []int64{1}, uint16(0x3c00)), numbersOf(t, tensor.FP16, []int64{1}, uint16(0x3c01)), nil,
		},
		{
			"FP16", numbersOf(t, tensor.FP16, []int64{1}, uint16(0x3c00)), numbersOf(t, tensor.FP16, []int64{1}, uint16(0x4000)),
			&tensordiff.Difference{Kind: tensordiff.KindValues, Want: "1", Got: "2", Index: []int64{0}, Different: 1, Elements: 1, Absolute: new(1.0), Relative: new(1.0)},
		},
		{
			"large integers", numbersOf(t, tensor.Int64, []int64{1, 2}, int64(math.MaxInt64), int64(0)), numbersOf(t, tensor.Int64, []int64{1, 2}, int64(math.MaxInt64-1), int64(0)),
			&tensordiff.Difference{Kind: tensordiff.KindValues, Want: "9223372036854775807", Got: "9223372036854775806", Index: []int64{0, 0}, Different: 1, Elements: 2, Absolute: new(1.0), Relative: new(1 / float64(math.MaxInt64))},
		},
		{
			"signed", numbersOf(t, tensor.Int8, []int64{1}, int8(-128)), numbersOf(t, tensor.Int8, []int64{1}, int8(127)),
			&tensordiff.Difference{Kind: tensordiff.KindValues, Want: "-128", Got: "127", Index: []int64{0}, Different: 1, Elements: 1, Absolute: new(255.0), Relative: new(255.0 / 128)},
		},
		{
			"BOOL", numbersOf(t, tensor.Bool, []int64{2}, true, false), numbersOf(t, tensor.Bool, []int64{2}, true, true),
			&tensordiff.Difference{Kind: tensordiff.KindValues, Want: "false", Got: "true", Index: []int64{1}, Different: 1, Elements: 2},
		},
		{
			"texts", textsOf([]int64{2, 2}, "a", "b", "c", "d"), textsOf([]int64{2, 2}, "a", "b", "x", "y"),
			&tensordiff.Difference{Kind: tensordiff.KindValues, Want: `"c"`, Got: `"x"`, Index: []int64{1, 0}, Different: 2, Elements: 4},
		},
		{"shapes", f32(1, 2), numbersOf(t, tensor.FP32, []int64{2, 1}, float32(1), 2), &tensordiff.Difference{Kind: tensordiff.KindShape, Want: "[2]", Got: "[2,1]"}},
		{"types", f32(1), numbersOf(t, tensor.Int32, []int64{1}, int32(1)), &tensordiff.Difference{Kind: tensordiff.KindDatatype, Want: "FP32", Got: "INT32"}},
	} {
		got := tensordiff.Compare(c.want, c.got, tensordiff.DefaultTolerance(c.want.DType), false)
		if diff := cmp.Diff(c.diff, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if d := tensordiff.Compare(f32(1, 2), numbersOf(t, tensor.FP32, []int64{1, 2}, float32(1), 2), tensordiff.Tolerance{}, true); d != nil {
		t.Errorf("the batch dimension of a response: %+v", d)
	}
}

// TestString checks the text of a difference, with other tolerances than that of the type.
func TestString(t *testing.T) {
	t.Parallel()
	nan, inf, exact, wide := float32(math.NaN()), float32(math.Inf(1)), 0.0, 0.5
	float := func(values ...float32) *tensordiff.Tensor {
		return numbersOf(t, tensor.FP32, []int64{int64(len(values))}, values...)
	}
	for name, tc := range map[string]struct {
		want, got *tensordiff.Tensor
		absolute  *float64
		text      string
	}{
		"equal":          {float(1, 2), float(1, 2), nil, "<nil>"},
		"near":           {float(1, 2), float(1, 2.00001), nil, "<nil>"},
		"exact":          {float(0, 2), float(1e-6, 2), &exact, "differs in 1 of 2 elements, most at [0]: 1e-06, expected 0"},
		"wide":           {float(1, 2), float(1.4, 2), &wide, "<nil>"},
		"far":            {float(1, 2, 3), float(1, 3, 5), nil, "differs in 2 of 3 elements, most at [2]: 5, expected 3"},
		"NaN":            {float(nan), float(nan), nil, "<nil>"},
		"NaN for number": {float(1), float(nan), nil, "differs in 1 of 1 elements, most at [0]: NaN, expected 1"},
		"infinity":       {float(inf), float(inf), nil, "<nil>"},
		"shape":          {float(1), numbersOf(t, tensor.FP32, []int64{1, 1}, float32(1)), nil, "has the shape [1,1], expected [1]"},
		"type":           {float(1), numbersOf(t, tensor.Int32, []int64{1}, int32(1)), nil, "is INT32, expected FP32"},
		"integers":       {numbersOf(t, tensor.Uint8, []int64{2}, uint8(1), 2), numbersOf(t, tensor.Uint8, []int64{2}, uint8(1), 3), nil, "differs in 1 of 2 elements, most at [1]: 3, expected 2"},
		"texts":          {textsOf([]int64{1}, "a"), textsOf([]int64{1}, "b"), nil, `differs in 1 of 1 elements, most at [0]: "b", expected "a"`},
		"damaged":        {&tensordiff.Tensor{DType: tensor.FP32, Shape: []int64{1}, Data: []byte{1}}, float(1), nil, "has 4 other bytes, expected 1 bytes"},
	} {
		d := tensordiff.Compare(tc.want, tc.got, tensordiff.DefaultTolerance(tc.want.DType).With(tc.absolute, nil), false)
		if got := fmt.Sprint(d); got != tc.text {
			t.Errorf("%s: %q, want %q", name, got, tc.text)
		}
	}
}
