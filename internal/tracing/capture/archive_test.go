package capture_test

import (
	"bytes"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// checkReadFile reads a file of one tensor. One that is whole must have these bytes.
func checkReadFile(t *testing.T, file, want []byte, whole bool) {
	t.Helper()
	f, err := capture.ReadFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		if whole || status.CodeOf(err) != status.InvalidArg {
			t.Fatal(err)
		}
		return
	}
	for i := range f.List {
		x := &f.List[i]
		data, fits, err := f.Content(i)
		if code := status.CodeOf(err); err != nil && (whole || code != status.InvalidArg && code != status.Unavailable) {
			t.Fatal(err)
		}
		if size := tensor.ParseDType(x.Type).Size(); fits && size > 0 && tensor.Of(x.Shape...).Elements()*int64(size) != int64(len(data)) {
			t.Errorf("%s of %s %v has %d bytes", x.Name, x.Type, x.Shape, len(data))
		}
		if fits && x.Type == tensor.Bytes.String() {
			if err := tensor.CheckBytes(data, tensor.Of(x.Shape...).Elements()); err != nil {
				t.Errorf("%s: %v", x.Name, err)
			}
		}
		if whole && !bytes.Equal(data, want) {
			t.Errorf("%s is %x, expected %x", x.Name, data, want)
		}
	}
}

// FuzzArchive writes a captured request to a file, damages it, and reads it as `tutti infer --data` and `tutti replay` do: there is an
// error with a code, or the tensors of a file that is whole are those of the request.
func FuzzArchive(f *testing.F) {
	f.Add(uint8(tensor.FP32), int64(2), int64(1), []byte("abcdefgh"), uint16(0), byte(0), uint16(0))
	f.Add(uint8(tensor.Bytes), int64(1), int64(2), []byte("\x02\x00\x00\x00ab\x00\x00\x00\x00"), uint16(40), byte(1), uint16(0))
	f.Add(uint8(tensor.Int64), int64(3), int64(0), []byte{}, uint16(0), byte(0), uint16(22))
	f.Add(uint8(tensor.Uint8), int64(5), int64(1), []byte("12345"), uint16(130), byte(255), uint16(3))
	alloc := tensor.NewPool()
	f.Fuzz(func(t *testing.T, d uint8, rows, width int64, data []byte, at uint16, flip byte, cut uint16) {
		dtype := tensor.DType(d % uint8(tensor.BF16+1))
		shape := tensor.Of(rows, width)
		s, trace := keep(t, raw(t, alloc, dtype, shape, data))
		write, err := s.NPZ(trace)
		if err != nil {
			return // there is no room for it
		}
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		file := b.Bytes()
		file[int(at)%len(file)] ^= flip
		file = file[:len(file)-int(cut)%len(file)]
		checkReadFile(t, file, data, flip == 0 && int(cut)%b.Len() == 0 && dtype != tensor.Invalid && shape.Elements() >= 0)
		list, err := dataset.ReadArrays(file)
		if code := status.CodeOf(err); err != nil && code != status.InvalidArg && code != status.Unsupported {
			t.Fatalf("%v: %v", code, err)
		}
		for _, a := range list {
			if n := tensor.Of(a.Shape...).Elements() * int64(a.DType.Size()); n != int64(len(a.Data)) {
				t.Errorf("'%s' of %s %v has %d bytes", a.Name, a.DType, a.Shape, len(a.Data))
			}
		}
		whole := flip == 0 && int(cut)%b.Len() == 0 && dtype.Size() > 0 && dtype != tensor.BF16 && shape.Elements()*int64(dtype.Size()) == int64(len(data))
		if whole && (err != nil || len(list) != 2 || list[1].DType != dtype || !bytes.Equal(list[1].Data, data)) {
			t.Errorf("%s %v with %x was written, and %v read: %v", dtype, shape, data, list, err)
		}
	})
}
