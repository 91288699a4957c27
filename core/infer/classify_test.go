package infer_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// numbers returns a tensor with the given bytes.
func numbers(t *testing.T, a tensor.Allocator, d tensor.DType, b []byte, dims ...int64) tensor.Tensor {
	t.Helper()
	x, err := tensor.New(a, d, tensor.Of(dims...))
	if err != nil {
		t.Fatal(err)
	}
	if copy(x.Bytes(), b) != x.Len {
		t.Fatalf("%d bytes for %d", len(b), x.Len)
	}
	return x
}

// packed encodes values in little-endian order.
func packed(t *testing.T, values any) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// elements returns the elements of a BYTES tensor as one text.
func elements(x *tensor.Tensor) string {
	var all []string
	for b := x.Bytes(); len(b) > 0; {
		elem, rest, ok := tensor.NextBytes(b)
		if !ok {
			return "not BYTES"
		}
		all, b = append(all, string(elem)), rest
	}
	return strings.Join(all, " ")
}

// TestClassify checks the texts of the highest values per data type.
// shows: infer.classification
func TestClassify(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	labels := []string{"cat", "", "dog"}
	tests := []struct {
		name   string
		dtype  tensor.DType
		values any
		dims   []int64
		batch  bool
		n      int
		labels []string
		shape  []int64
		want   string
	}{
		{"plain", tensor.FP32, []float32{.1, .7, .2}, []int64{3}, false, 2, nil, []int64{2}, "0.700000:1 0.200000:2"},
		{"labels", tensor.FP32, []float32{.1, .7, .2}, []int64{3}, false, 9, labels, []int64{3}, "0.700000:1 0.200000:2:dog 0.100000:0:cat"},
		{"fewer labels", tensor.Int32, []int32{1, 2, 3, 4}, []int64{4}, false, 2, labels, []int64{2}, "4:3 3:2:dog"},
		{"batch", tensor.Int64, []int64{1, 2, 4, 3}, []int64{2, 2}, true, 1, nil, []int64{2, 1}, "2:1 4:0"},
		{"no batch", tensor.Int64, []int64{1, 2, 4, 3}, []int64{2, 2}, false, 1, nil, []int64{1}, "4:2"},
		{"ties", tensor.Uint8, []uint8{5, 9, 9, 5}, []int64{4}, false, 4, nil, []int64{4}, "9:1 9:2 5:0 5:3"},
		{"not numbers", tensor.FP32, []float32{nan, -inf, 1, inf}, []int64{4}, false, 4, nil, []int64{4}, "inf:3 1.000000:2 -inf:1 nan:0"},
		{"two not numbers", tensor.FP32, []float32{nan, nan, -1}, []int64{3}, false, 2, nil, []int64{2}, "-1.000000:2 nan:0"},
		{"fp16", tensor.FP16, []uint16{0x3c00, 0xc000, 0x0001, 0x7bff, 0xfc00}, []int64{5}, false, 5, nil, []int64{5}, "65504.000000:3 1.000000:0 0.000000:2 -2.000000:1 -inf:4"},
		{"fp16 not a number", tensor.FP16, []uint16{0x7e00, 0x3555}, []int64{2}, false, 2, nil, []int64{2}, "0.333252:1 nan:0"},
		{"bf16", tensor.BF16, []uint16{0x3f80, 0xc000, 0x4049}, []int64{3}, false, 3, nil, []int64{3}, "3.140625:2 1.000000:0 -2.000000:1"},
		{"fp64", tensor.FP64, []float64{1e-7, 1e20}, []int64{2}, false, 2, nil, []int64{2}, "100000000000000000000.000000:1 0.000000:0"},
		{"int8", tensor.Int8, []int8{-128, 127, -1}, []int64{3}, false, 3, nil, []int64{3}, "127:1 -1:2 -128:0"},
		{"int16", tensor.Int16, []int16{-300, 300}, []int64{2}, false, 1, nil, []int64{1}, "300:1"},
		{"uint16", tensor.Uint16, []uint16{65535, 1}, []int64{2}, false, 1, nil, []int64{1}, "65535:0"},
		{"uint32", tensor.Uint32, []uint32{1, 1 << 31}, []int64{2}, false, 1, nil, []int64{1}, "2147483648:1"},
		{"uint64", tensor.Uint64, []uint64{math.MaxUint64, 1}, []int64{2}, false, 1, nil, []int64{1}, "18446744073709551615:0"},
		{"scalar", tensor.Int32, []int32{7}, nil, true, 3, nil, []int64{1}, "7:0"},
		{"only a batch", tensor.Int32, []int32{7, 8}, []int64{2}, true, 3, nil, []int64{2, 1}, "7:0 8:0"},
		{"empty", tensor.FP32, []float32{}, []int64{0}, false, 3, nil, []int64{0}, ""},
		{"empty rows", tensor.FP32, []float32{}, []int64{2, 0}, true, 3, nil, []int64{2, 0}, ""},
		{"no rows", tensor.FP32, []float32{}, []int64{0, 4}, true, 3, nil, []int64{0, 3}, ""},
		{"none wanted", tensor.FP32, []float32{1}, []int64{1}, false, -1, nil, []int64{0}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := tensortest.NewChecked(t, tensor.NewPool())
			x := numbers(t, a, tt.dtype, packed(t, tt.values), tt.dims...)
			defer x.Release()
			got, err := infer.Classify(a, &x, tt.batch, tt.n, tt.labels)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Release()
			if diff := cmp.Diff(tt.want, elements(&got)); diff != "" {
				t.Errorf("classes (-want +got):\n%s", diff)
			}
			if got.DType != tensor.Bytes || !got.Shape.Equal(tensor.Of(tt.shape...)) {
				t.Errorf("%s of shape %s, want BYTES of %v", got.DType, got.Shape, tt.shape)
			}
		})
	}
}

// TestClassifyMany compares the two algorithms for the highest values: partial selection and sorting.
func TestClassifyMany(t *testing.T) {
	t.Parallel()
	a := tensortest.NewChecked(t, tensor.NewPool())
	values := make([]float32, 997)
	for i := range values {
		values[i] = float32(i * 7919 % 101)
	}
	x := numbers(t, a, tensor.FP32, packed(t, values), 997)
	defer x.Release()
	all, err := infer.Classify(a, &x, false, 997, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Release()
	for n := 1; n < 40; n++ {
		got, err := infer.Classify(a, &x, false, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Join(strings.Fields(elements(&all))[:n], " ")
		if diff := cmp.Diff(want, elements(&got)); diff != "" {
			t.Errorf("best %d (-want +got):\n%s", n, diff)
		}
		got.Release()
	}
}

func TestClassifyRefuses(t *testing.T) {
	t.Parallel()
	const unsupported = "class result not available for output due to unsupported type '"
	tests := []struct {
		dtype tensor.DType
		dims  []int64
		batch bool
		code  status.Code
		text  string
	}{
		{tensor.Bytes, []int64{1}, false, status.InvalidArg, unsupported + "BYTES'"},
		{tensor.Bool, []int64{1}, false, status.InvalidArg, unsupported + "BOOL'"},
		{tensor.Invalid, []int64{1}, false, status.InvalidArg, unsupported + "<invalid>'"},
		{tensor.Int8, []int64{1_000_001}, false, status.InvalidArg, "classification output tensor too large"},
		{tensor.Int8, []int64{-1}, false, status.Internal, "cannot classify an output of shape [-1]: it has 64 bytes"},
		{tensor.Int8, []int64{-1, 4}, true, status.Internal, "cannot classify an output of shape [-1,4]: it has 64 bytes"},
		{tensor.Int8, []int64{3, 4}, true, status.Internal, "cannot classify an output of shape [3,4]: it has 64 bytes"},
		{tensor.Int8, []int64{65}, false, status.Internal, "cannot classify an output of shape [65]: it has 64 bytes"},
	}
	a := tensortest.NewChecked(t, tensor.NewPool())
	for _, tt := range tests {
		x := numbers(t, a, tensor.Int8, make([]byte, 64), 64)
		x.DType, x.Shape = tt.dtype, tensor.Of(tt.dims...)
		_, err := infer.Classify(a, &x, tt.batch, 1, nil)
		if err == nil || status.CodeOf(err) != tt.code || err.Error() != tt.text {
			t.Errorf("%s %v: %v (%v), want %s", tt.dtype, tt.dims, err, status.CodeOf(err), tt.text)
		}
		x.Release()
	}
}
