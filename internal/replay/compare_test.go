package replay

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
)

// numbersOf returns a tensor of numbers.
func numbersOf[T any](t *testing.T, d tensor.DType, shape []int64, values ...T) *content {
	t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	return &content{d, shape, data, true}
}

func textsOf(shape []int64, values ...string) *content {
	c := &content{tensor.Bytes, shape, []byte{}, true}
	for _, v := range values {
		c.data = tensor.AppendBytes(c.data, v)
	}
	return c
}

func TestCompare(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	f32 := func(values ...float32) *content {
		return numbersOf(t, tensor.FP32, []int64{int64(len(values))}, values...)
	}
	for _, c := range []struct {
		name      string
		want, got *content
		diff      *Difference
	}{
		{"equal", f32(1, 2), f32(1, 2), nil},
		{"within the tolerance", f32(1, 0), f32(1.0001, 0.00001), nil},
		{"NaN", f32(nan, inf, -inf), f32(-nan, inf, -inf), nil},
		{"the largest of two", f32(1, 2, 4), f32(1.5, 3, 4), &Difference{Kind: KindValues, Captured: "2", Replayed: "3", Index: []int64{1}, Different: 2, Elements: 3, Absolute: new(1.0), Relative: new(0.5)}},
		{"from zero", f32(0), f32(1), &Difference{Kind: KindValues, Captured: "0", Replayed: "1", Index: []int64{0}, Different: 1, Elements: 1, Absolute: new(1.0)}},
		{"NaN instead", f32(1, 1), f32(3, nan), &Difference{Kind: KindValues, Captured: "1", Replayed: "NaN", Index: []int64{1}, Different: 2, Elements: 2, Relative: new(2.0)}},
		{"another infinity", f32(inf), f32(-inf), &Difference{Kind: KindValues, Captured: "+Inf", Replayed: "-Inf", Index: []int64{0}, Different: 1, Elements: 1}},
		{
			"FP16, one unit", numbersOf(t, tensor.FP16, []int64{1}, uint16(0x3c00)), numbersOf(t, tensor.FP16, []int64{1}, uint16(0x3c01)), nil,
		},
		{
			"FP16", numbersOf(t, tensor.FP16, []int64{1}, uint16(0x3c00)), numbersOf(t, tensor.FP16, []int64{1}, uint16(0x4000)),
			&Difference{Kind: KindValues, Captured: "1", Replayed: "2", Index: []int64{0}, Different: 1, Elements: 1, Absolute: new(1.0), Relative: new(1.0)},
		},
		{
			"large integers", numbersOf(t, tensor.Int64, []int64{1, 2}, int64(math.MaxInt64), int64(0)), numbersOf(t, tensor.Int64, []int64{1, 2}, int64(math.MaxInt64-1), int64(0)),
			&Difference{Kind: KindValues, Captured: "9223372036854775807", Replayed: "9223372036854775806", Index: []int64{0, 0}, Different: 1, Elements: 2, Absolute: new(1.0), Relative: new(1 / float64(math.MaxInt64))},
		},
		{
			"signed", numbersOf(t, tensor.Int8, []int64{1}, int8(-128)), numbersOf(t, tensor.Int8, []int64{1}, int8(127)),
			&Difference{Kind: KindValues, Captured: "-128", Replayed: "127", Index: []int64{0}, Different: 1, Elements: 1, Absolute: new(255.0), Relative: new(255.0 / 128)},
		},
		{
			"BOOL", numbersOf(t, tensor.Bool, []int64{2}, true, false), numbersOf(t, tensor.Bool, []int64{2}, true, true),
			&Difference{Kind: KindValues, Captured: "false", Replayed: "true", Index: []int64{1}, Different: 1, Elements: 2},
		},
		{
			"texts", textsOf([]int64{2, 2}, "a", "b", "c", "d"), textsOf([]int64{2, 2}, "a", "b", "x", "y"),
			&Difference{Kind: KindValues, Captured: `"c"`, Replayed: `"x"`, Index: []int64{1, 0}, Different: 2, Elements: 4},
		},
		{"shapes", f32(1, 2), numbersOf(t, tensor.FP32, []int64{2, 1}, float32(1), 2), &Difference{Kind: KindShape, Captured: "[2]", Replayed: "[2,1]"}},
		{"types", f32(1), numbersOf(t, tensor.Int32, []int64{1}, int32(1)), &Difference{Kind: KindDatatype, Captured: "FP32", Replayed: "INT32"}},
	} {
		got := compare(c.want, c.got, DefaultTolerance(c.want.dtype), false)
		if diff := cmp.Diff(c.diff, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if d := compare(f32(1, 2), numbersOf(t, tensor.FP32, []int64{1, 2}, float32(1), 2), Tolerance{}, true); d != nil {
		t.Errorf("the batch dimension of a response: %+v", d)
	}
}

// TestOrder checks that the order of tensors of nested streams does not count, but that of the first stream does.
func TestOrder(t *testing.T) {
	t.Parallel()
	stream := func(first int32, values ...int32) *group {
		g := &group{step: "s", tensor: "OUT"}
		for i, v := range values {
			c := numbersOf(t, tensor.Int32, []int64{1}, v)
			g.list = append(g.list, instance{first + int32(i), func() (*content, error) { return c, nil }})
		}
		return g
	}
	r := &replayer{Settings: &Settings{}}
	for _, c := range []struct {
		name      string
		want, got *group
		kinds     []string
	}{
		{"the first stream", stream(1, 1, 2), stream(1, 2, 1), []string{KindValues, KindValues}},
		{"a nested one", stream(2, 1, 2, 3), stream(2, 3, 1, 2), nil},
		{"a nested one with another tensor", stream(2, 1, 2, 3), stream(2, 3, 1, 9), []string{KindValues}},
		{"fewer", stream(1, 1, 2), stream(1, 1), []string{KindResponses}},
		{"none", stream(1, 1), &group{}, []string{KindMissing}},
	} {
		res := &Result{}
		if err := r.compareGroup(c.want, c.got, false, false, res); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, d := range res.Differences {
			kinds = append(kinds, d.Kind)
		}
		if diff := cmp.Diff(c.kinds, kinds); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	shared := stream(1, 7, 8)
	if err := r.spread(shared, stream(1, 7, 7, 8)); err != nil || len(shared.list) != 3 || shared.list[1].subRun != 1 || shared.list[2].subRun != 2 {
		t.Errorf("%+v, %v", shared.list, err)
	}
}
