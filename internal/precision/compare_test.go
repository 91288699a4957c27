package precision_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/precision"
)

// floats returns an FP32 output.
func floats(shape []int64, values ...float32) []precision.Tensor {
	t := precision.Tensor{Name: "y", DType: tensor.FP32, Shape: shape}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return []precision.Tensor{t}
}

func near(p *float64, want float64) bool { return p != nil && math.Abs(*p-want) < 1e-9 }

// TestCompare checks the figures of two rows of which one differs.
func TestCompare(t *testing.T) {
	t.Parallel()
	var c precision.Comparison
	// The first row is the same; the second one is turned by 90 degrees, and its largest element moves.
	if err := c.Add(floats([]int64{2, 2}, 3, 4, 1, 0), floats([]int64{2, 2}, 3, 4, 0, 1), true); err != nil {
		t.Fatal(err)
	}
	if err := c.Add(floats([]int64{2, 2}, 1, 2, 0, 0), floats([]int64{2, 2}, 1, 2, 0, 0), true); err != nil {
		t.Fatal(err)
	}
	o := c.Outputs()[0]
	if o.Rows != 4 || !near(o.Cosine, 0) || !near(o.MeanCosine, 0.75) || !near(o.Difference, 1) || !near(o.Top1, 0.75) || c.Requests != 2 {
		t.Errorf("%+v: cosine %v, mean %v, difference %v, top-1 %v", o, *o.Cosine, *o.MeanCosine, *o.Difference, *o.Top1)
	}
	for bound, missed := range map[string]string{
		"cosine=0":       "",
		"cosine=0.1":     "output 'y' has a cosine of 0, expected at least 0.1",
		"mean_cosine=.8": "output 'y' has a mean_cosine of 0.75, expected at least 0.8",
		"top1=0.76":      "output 'y' has a top1 of 0.75, expected at least 0.76",
		"difference=.5":  "output 'y' has a difference of 1, expected at most 0.5",
		"difference=1":   "",
	} {
		b, err := precision.ParseBound(bound)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Check(c.Outputs()); (err == nil) != (missed == "") || err != nil && err.Error() != missed {
			t.Errorf("%s: %v, want %q", bound, err, missed)
		}
	}
}

// TestCompareUnbatched checks that all elements of a request are one row where the model does not batch.
func TestCompareUnbatched(t *testing.T) {
	t.Parallel()
	var c precision.Comparison
	if err := c.Add(floats([]int64{2, 2}, 1, 0, 0, 1), floats([]int64{2, 2}, 1, 0, 0, 1.5), false); err != nil {
		t.Fatal(err)
	}
	if o := c.Outputs()[0]; o.Rows != 1 || !near(o.Cosine, 2.5/math.Sqrt(2)/math.Sqrt(3.25)) || !near(o.Top1, 1) {
		t.Errorf("%+v", o)
	}
}

// TestCompareNotFinite checks that a NaN misses every bound, and that one which the reference has too does not.
func TestCompareNotFinite(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	b, err := precision.ParseBound("cosine=-1")
	if err != nil {
		t.Fatal(err)
	}
	var same, broken precision.Comparison
	if err := same.Add(floats([]int64{1, 3}, nan, inf, 2), floats([]int64{1, 3}, nan, inf, 2), true); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(same.Outputs()); err != nil || !near(same.Outputs()[0].Cosine, 1) {
		t.Errorf("%v, %+v", err, same.Outputs()[0])
	}
	if err := broken.Add(floats([]int64{1, 3}, 1, inf, 2), floats([]int64{1, 3}, nan, -inf, 2), true); err != nil {
		t.Fatal(err)
	}
	want := "output 'y' has 2 elements that are NaN or infinite where the reference has numbers"
	if err := b.Check(broken.Outputs()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCompareOthers checks integers and strings: the share of rows that are equal.
func TestCompareOthers(t *testing.T) {
	t.Parallel()
	texts := func(list ...string) []byte {
		var data []byte
		for _, s := range list {
			data = tensor.AppendBytes(data, s)
		}
		return data
	}
	var c precision.Comparison
	want := []precision.Tensor{{Name: "label", DType: tensor.Bytes, Shape: []int64{2, 2}, Data: texts("a", "b", "c", "d")}, {Name: "n", DType: tensor.Int16, Shape: []int64{2, 1}, Data: []byte{1, 0, 2, 0}}}
	got := []precision.Tensor{{Name: "n", DType: tensor.Int16, Shape: []int64{2, 1}, Data: []byte{1, 0, 2, 0}}, {Name: "label", DType: tensor.Bytes, Shape: []int64{2, 2}, Data: texts("a", "bb", "c", "d")}}
	if err := c.Add(want, got, true); err != nil {
		t.Fatal(err)
	}
	list := c.Outputs()
	if !near(list[0].Top1, 0.5) || list[0].Cosine != nil || !near(list[1].Top1, 1) || list[1].Rows != 2 {
		t.Errorf("%+v", list)
	}
}

// TestCompareMismatch checks outputs that cannot be compared.
func TestCompareMismatch(t *testing.T) {
	t.Parallel()
	for name, got := range map[string][]precision.Tensor{
		"expected 1 outputs, found 0":  nil,
		"output 'y' is missing":        {{Name: "z"}},
		"output 'y' is INT32 [2]":      {{Name: "y", DType: tensor.Int32, Shape: []int64{2}, Data: make([]byte, 8)}},
		"output 'y' is FP32 [1]":       floats([]int64{1}, 1),
		"expected FP32 [2] as the ref": floats([]int64{1}, 1),
	} {
		var c precision.Comparison
		if err := c.Add(floats([]int64{2}, 1, 2), got, false); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var c precision.Comparison
	if err := c.Add(floats([]int64{0, 4}), floats([]int64{0, 4}), true); err != nil || c.Outputs()[0].Rows != 0 {
		t.Errorf("no rows: %v, %+v", err, c.Outputs())
	}
}
