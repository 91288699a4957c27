package capture_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// keep returns a store that has one request with these tensors, and its trace.
func keep(tb testing.TB, list ...tensor.Tensor) (*capture.Store, string) {
	tb.Helper()
	s := capture.New(capture.Settings{Bytes: 1 << 30, RequestBytes: 1 << 30})
	if _, err := s.StartCapture(inspect.CaptureRule{}); err != nil {
		tb.Fatal(err)
	}
	f := s.Select("m", "", id(1))
	for _, t := range list {
		shoot(f, edge("../a/step:1", "X"), t)
	}
	f.Finish(&tracing.Record{ID: id(1), Model: "m"})
	return s, id(1).String()
}

func TestNPY(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	for _, c := range []struct {
		t            tensor.Tensor
		header, data string
	}{
		{raw(t, alloc, tensor.FP32, tensor.Of(2, 1), []byte("abcdefgh")), "'<f4', 'fortran_order': False, 'shape': (2, 1), }", "abcdefgh"},
		{raw(t, alloc, tensor.BF16, tensor.Of(1), []byte("ab")), "'<u2', 'fortran_order': False, 'shape': (1,), }", "ab"},
		{raw(t, alloc, tensor.Bool, tensor.Of(), []byte("\x01")), "'|b1', 'fortran_order': False, 'shape': (), }", "\x01"},
		{raw(t, alloc, tensor.Int64, tensor.Of(0, 4), nil), "'<i8', 'fortran_order': False, 'shape': (0, 4), }", ""},
		{bytesOf(t, alloc, "one", "", "four"), "'|S4', 'fortran_order': False, 'shape': (3,), }", "one\x00\x00\x00\x00\x00four"},
		{bytesOf(t, alloc, ""), "'|S1', 'fortran_order': False, 'shape': (1,), }", "\x00"},
		{raw(t, alloc, tensor.FP32, tensor.Of(9), []byte("abc")), "'|u1', 'fortran_order': False, 'shape': (3,), }", "abc"},
		{raw(t, alloc, tensor.Bytes, tensor.Of(2), []byte("\xff\xff\xff\xffx")), "'|u1', 'fortran_order': False, 'shape': (5,), }", "\xff\xff\xff\xffx"},
	} {
		s, trace := keep(t, c.t)
		write, err := s.NPY(trace, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		head, ok := bytes.CutPrefix(b.Bytes(), []byte("\x93NUMPY\x01\x00"))
		if !ok {
			t.Fatalf("%q", b.Bytes())
		}
		n := int(binary.LittleEndian.Uint16(head))
		header, data := string(head[2:2+n]), string(head[2+n:])
		if (n+10)%64 != 0 || !strings.HasSuffix(header, "\n") || strings.TrimRight(header, " \n") != "{'descr': "+c.header || data != c.data {
			t.Errorf("%q %q, want %q %q", header, data, c.header, c.data)
		}
	}
}

func TestNPZ(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	long := strings.Repeat("x", 100_000)
	s, trace := keep(t, raw(t, alloc, tensor.Uint8, tensor.Of(1), []byte("a")), bytesOf(t, alloc, "ends with\x00"), bytesOf(t, alloc, long, "a", "b", "c"))
	if _, err := s.NPY(trace, 1); err == nil {
		t.Error("a text that ends with zeros has a file")
	}
	var b bytes.Buffer
	write, err := s.NPZ(trace)
	if err == nil {
		err = write(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	want := []string{"__capture__.npy", "_/a/step_1.X.npy"}
	for _, n := range []string{"~2", "~3"} {
		for _, p := range []string{"data", "offsets", "shape"} {
			want = append(want, "_/a/step_1.X"+n+"."+p+".npy")
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	alloc := tensortest.NewChecked(t, nil)
	floats := func(list ...float32) (b []byte) {
		for _, f := range list {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 600, 300))); err != nil {
		t.Fatal(err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s, trace := keep(t,
		raw(t, alloc, tensor.FP32, tensor.Of(2, 4), floats(0.5, 2, nan, -1, 9, inf, 0, 0)),
		raw(t, alloc, tensor.Uint64, tensor.Of(1), []byte("\xff\xff\xff\xff\xff\xff\xff\xff")),
		raw(t, alloc, tensor.Int8, tensor.Of(2), []byte("\xff\x01")),
		raw(t, alloc, tensor.FP16, tensor.Of(4), []byte("\x00\x3c\x00\xc0\x01\x00\x00\x7c")),
		raw(t, alloc, tensor.BF16, tensor.Of(1), []byte("\x80\x3f")),
		bytesOf(t, alloc, "plain\ntext", "\x00\xff"),
		raw(t, alloc, tensor.Uint8, tensor.Of(1, 10, 20, 3), make([]byte, 600)),
		bytesOf(t, alloc, file.String()),
	)
	list, err := s.Tensors(trace, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []inspect.PreviewView{
		{
			Kind: "numbers", Values: []string{"0.5", "2", "NaN", "-1", "9", "+Inf", "0", "0"}, Min: "-1", Max: "9", Mean: "1.75", Odd: 2,
			Top: []inspect.TopView{{Index: 1, Value: "2"}, {Index: 0, Value: "0.5"}, {Index: 3, Value: "-1"}},
		},
		{Kind: "numbers", Values: []string{"18446744073709551615"}, Min: "1.844674e+19", Max: "1.844674e+19", Mean: "1.844674e+19"},
		{Kind: "numbers", Values: []string{"-1", "1"}, Min: "-1", Max: "1", Mean: "0"},
		{
			Kind: "numbers", Values: []string{"1", "-2", "5.9604645e-08", "+Inf"}, Min: "-2", Max: "1", Mean: "-0.3333333", Odd: 1,
			Top: []inspect.TopView{{Index: 3, Value: "+Inf"}, {Index: 0, Value: "1"}, {Index: 2, Value: "5.9604645e-08"}, {Index: 1, Value: "-2"}},
		},
		{Kind: "numbers", Values: []string{"1"}, Min: "1", Max: "1", Mean: "1"},
		{Kind: "text", Values: []string{"plain\ntext", `"\x00\xff"`}},
		{Kind: "image", Width: 20, Height: 10},
		{Kind: "image", Width: 600, Height: 300},
	}
	for i := range want {
		got := *list.List[i].Preview
		if img := got.PNG; img != nil {
			c, err := png.DecodeConfig(bytes.NewReader(img))
			if err != nil || c.Width > 256 || c.Width*want[i].Height != c.Height*want[i].Width {
				t.Errorf("%d: %+v, %v", i, c, err)
			}
			got.PNG = nil
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
	}
	if list, err := s.Tensors(trace, false); err != nil || list.List[0].Preview != nil {
		t.Errorf("previews for everybody: %+v, %v", list, err)
	}
}

// FuzzContent checks previews and files of tensors whose content does not match their type and shape.
func FuzzContent(f *testing.F) {
	f.Add(uint8(tensor.Bytes), int64(1), int64(2), int64(3), []byte("\x02\x00\x00\x00ab"))
	f.Add(uint8(tensor.Uint8), int64(8), int64(8), int64(3), make([]byte, 200))
	f.Add(uint8(tensor.Uint8), int64(1), int64(0), int64(-3), []byte("\x89PNG\r\n\x1a\n123"))
	f.Add(uint8(tensor.FP16), int64(math.MaxInt64), int64(2), int64(4), []byte("\xff\xd8\xff123"))
	alloc := tensor.NewPool()
	f.Fuzz(func(t *testing.T, d uint8, a, b, c int64, data []byte) {
		dtype := tensor.DType(d % uint8(tensor.BF16+1))
		s, trace := keep(t, raw(t, alloc, dtype, tensor.Of(a, b, c), data), raw(t, alloc, dtype, tensor.Of(a), data))
		everything(t, s, trace)
		for n := range 2 {
			if write, err := s.NPY(trace, n); err == nil {
				if err := write(io.Discard); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
