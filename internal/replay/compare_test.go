package replay

import (
	"encoding/binary"
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
	return &tensordiff.Tensor{DType: d, Shape: shape, Data: data, Whole: true}
}

// TestOrder checks that the order of tensors of nested streams does not count, but that of the first stream does.
func TestOrder(t *testing.T) {
	t.Parallel()
	stream := func(first int32, values ...int32) *group {
		g := &group{step: "s", tensor: "OUT"}
		for i, v := range values {
			c := numbersOf(t, tensor.Int32, []int64{1}, v)
			g.list = append(g.list, instance{first + int32(i), func() (*tensordiff.Tensor, error) { return c, nil }})
		}
		return g
	}
	r := &replayer{Settings: &Settings{}}
	for _, c := range []struct {
		name      string
		want, got *group
		kinds     []string
	}{
		{"the first stream", stream(1, 1, 2), stream(1, 2, 1), []string{tensordiff.KindValues, tensordiff.KindValues}},
		{"a nested one", stream(2, 1, 2, 3), stream(2, 3, 1, 2), nil},
		{"a nested one with another tensor", stream(2, 1, 2, 3), stream(2, 3, 1, 9), []string{tensordiff.KindValues}},
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
