package tensor_test

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func TestDType(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{
		"BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
		"FP16": 2, "FP32": 4, "FP64": 8, "BYTES": 0, "BF16": 2,
	}
	if len(sizes) != len(modelconfig.DataType_name)-1 {
		t.Errorf("%d types, config.pbtxt knows %d", len(sizes), len(modelconfig.DataType_name)-1)
	}
	for number, name := range modelconfig.DataType_name {
		d := tensor.DType(number)
		if d.ConfigName() != name {
			t.Errorf("type %d is %s, want %s", number, d.ConfigName(), name)
		}
		if d == tensor.Invalid {
			continue
		}
		wire := strings.Replace(strings.TrimPrefix(name, "TYPE_"), "STRING", "BYTES", 1)
		size, known := sizes[wire]
		if d.String() != wire || !known || d.Size() != size || tensor.ParseDType(wire) != d {
			t.Errorf("%s is %s of %d bytes and parses as %s, want %s of %d", name, d, d.Size(), tensor.ParseDType(wire), wire, size)
		}
	}
	for _, name := range []string{"", "fp32", "STRING", "TYPE_FP32", "<invalid>"} {
		if d := tensor.ParseDType(name); d != tensor.Invalid {
			t.Errorf("%q parses as %s", name, d)
		}
	}
	for _, d := range []tensor.DType{tensor.Invalid, tensor.BF16 + 1, 255} {
		if d.String() != "<invalid>" || d.ConfigName() != "TYPE_INVALID" || d.Size() != 0 {
			t.Errorf("type %d is %s, %s, of %d bytes", d, d, d.ConfigName(), d.Size())
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		dtype tensor.DType
		dims  []int64
		len   int
		err   string
	}{
		{"scalar", tensor.FP64, nil, 8, ""},
		{"empty", tensor.FP32, []int64{0, 7}, 0, ""},
		{"matrix", tensor.Int16, []int64{3, 5}, 30, ""},
		{"strings", tensor.Bytes, []int64{1}, 0, "cannot allocate a BYTES tensor of shape [1]"},
		{"no type", tensor.Invalid, []int64{1}, 0, "cannot allocate a <invalid> tensor of shape [1]"},
		{"any extent", tensor.FP32, []int64{-1}, 0, "cannot allocate a FP32 tensor of shape [-1]"},
		{"too many", tensor.FP32, []int64{1 << 62, 4}, 0, "cannot allocate a FP32 tensor of shape [4611686018427387904,4]"},
		{"too large", tensor.FP32, []int64{1 << 44, 2}, 0, "cannot allocate a FP32 tensor of shape [17592186044416,2]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x, err := tensor.New(tensortest.NewChecked(t, nil), tt.dtype, tensor.Of(tt.dims...))
			if err != nil || tt.err != "" {
				if err == nil || err.Error() != tt.err || x.Present() {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if x.Len != tt.len || len(x.Bytes()) != tt.len || !x.Present() || x.DType != tt.dtype {
				t.Errorf("%d bytes of %s, want %d of %s", len(x.Bytes()), x.DType, tt.len, tt.dtype)
			}
			x.Release()
		})
	}
	if x, err := tensor.NewBytes(tensor.NewPool(), tensor.Of(1), -1); err == nil || x.Present() {
		t.Error("a BYTES tensor of -1 bytes")
	}
}

func TestTensorReferences(t *testing.T) {
	t.Parallel()
	c := tensortest.NewChecked(t, nil)
	x, err := tensor.NewBytes(c, tensor.Of(1), 9)
	if err != nil {
		t.Fatal(err)
	}
	copy(x.Bytes(), "abcdefghi")
	row := x.Retain()
	row.Off, row.Len = 3, 4
	if got := row.Bytes(); string(got) != "defg" || cap(got) != 4 || row.Pointer() != unsafe.Pointer(&got[0]) {
		t.Errorf("the view has %q and room for %d", got, cap(got))
	}
	moved := x.Move()
	if x.Present() || x.Len != 0 || x.DType != tensor.Invalid || !moved.Present() {
		t.Error("Move leaves the tensor behind")
	}
	x.Release()
	moved.Release()
	if c.Held() != 1 || string(row.Bytes()) != "defg" {
		t.Error("the view does not hold the memory")
	}
	row.Release()
	row.Release() // absent by now
	absent := row.Retain()
	if c.Held() != 0 || row.Present() || absent.Present() {
		t.Errorf("%d buffers are held at the end", c.Held())
	}
}

func TestSlice(t *testing.T) {
	t.Parallel()
	x, err := tensor.New(tensortest.NewChecked(t, nil), tensor.Int32, tensor.Of(4))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	copy(tensor.Slice[int32](&x), []int32{1, -1, 3, 4})
	view := func(off, n int, d tensor.DType) *tensor.Tensor {
		return &tensor.Tensor{DType: d, Buf: x.Buf, Off: off, Len: n}
	}
	if diff := cmp.Diff([]uint32{1<<32 - 1, 3}, tensor.Slice[uint32](view(4, 8, tensor.Uint32))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := tensor.Slice[int32](view(1, 0, tensor.Int32)); got != nil {
		t.Errorf("no elements are %v", got)
	}
	tests := []struct {
		name string
		f    func()
		want string
	}{
		{"size", func() { tensor.Slice[int64](&x) }, "tensor: INT32 elements seen as int64"},
		{"strings", func() { tensor.Slice[uint8](view(0, 8, tensor.Bytes)) }, "tensor: BYTES elements seen as uint8"},
		{"part of an element", func() { tensor.Slice[int32](view(0, 6, tensor.Int32)) }, "tensor: INT32 elements seen as int32"},
		{"alignment", func() { tensor.Slice[int32](view(2, 8, tensor.Int32)) }, "tensor: elements are not aligned"},
		{"beyond", func() { tensor.Slice[int32](view(12, 8, tensor.Int32)) }, "slice bounds out of range"},
	}
	for _, tt := range tests {
		if got := panicOf(tt.f); !strings.Contains(got, tt.want) {
			t.Errorf("%s: panic %q, want %q", tt.name, got, tt.want)
		}
	}
}
