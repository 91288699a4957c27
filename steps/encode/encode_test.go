package encode_test

import (
	"bytes"
	stdimage "image"
	"image/color"
	_ "image/jpeg"
	_ "image/png"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	_ "golang.org/x/image/webp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/encode"
)

var channels = map[string]int{"gray": 1, "rgb": 3, "rgba": 4}

func mustStep(tb testing.TB, params map[string]string) (steps.Step, error) {
	tb.Helper()
	f := encode.NewFactory()
	resolved, err := f.Resolve(params)
	if err != nil {
		return nil, err
	}
	s := &steps.Settings{Model: "enc", MaxBatch: 8, Params: resolved}
	if _, err := f.Signature(s); err != nil {
		return nil, err
	}
	return f.New(s)
}

// encoded runs one batch of images through the step and returns the files.
func encoded(tb testing.TB, params map[string]string, dtype tensor.DType, shape tensor.Shape, data []byte) ([][]byte, []error) {
	tb.Helper()
	step, err := mustStep(tb, params)
	if err != nil {
		tb.Fatal(err)
	}
	a := tensortest.NewChecked(tb, nil)
	in, err := tensor.New(a, dtype, shape)
	if err != nil {
		tb.Fatal(err)
	}
	copy(in.Bytes(), data)
	b := &backends.Batch{Rows: int(shape.Dim(0)), In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: a}
	for i := range b.Rows {
		b.Requests = append(b.Requests, backends.Request{Ctx: tb.Context(), First: i, Rows: 1})
	}
	defer in.Release()
	if err := step.Run(tb.Context(), b); err != nil {
		return nil, []error{err}
	}
	defer b.Out[0].Release()
	var files [][]byte
	var errs []error
	rest := b.Out[0].Bytes()
	for i := range b.Requests {
		var file []byte
		var ok bool
		if file, rest, ok = tensor.NextBytes(rest); !ok {
			tb.Fatalf("%d files, want %d", i, b.Rows)
		}
		files, errs = append(files, bytes.Clone(file)), append(errs, b.Requests[i].Err)
	}
	return files, errs
}

// noise is an image with edges, runs and noise.
func noise(w, h, ch int) []byte {
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	out := make([]byte, w*h*ch)
	for i := range out {
		out[i] = byte(i / ch % w * 5)
		if i%7 == 0 || i > len(out)/2 && i < len(out)*3/4 {
			out[i] = byte(r.Uint32())
		}
	}
	return out
}

// TestLossless checks that decoding returns the encoded samples.
func TestLossless(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"png", "webp"} {
		for name, ch := range channels {
			for _, size := range [][2]int{{1, 1}, {3, 2}, {64, 48}, {61, 47}, {300, 5}, {5, 300}, {20, 999}} {
				t.Run(format+"/"+name+"/"+strconv.Itoa(size[0]), func(t *testing.T) {
					t.Parallel()
					w, h := size[0], size[1]
					want := noise(w, h, ch)
					files, errs := encoded(t, map[string]string{"format": format, "color": name}, tensor.Uint8, tensor.Of(1, int64(h), int64(w), int64(ch)), want)
					if errs[0] != nil {
						t.Fatal(errs[0])
					}
					check(t, files[0], want, w, ch)
				})
			}
		}
	}
}

func check(t *testing.T, file, want []byte, w, ch int) {
	t.Helper()
	img, _, err := stdimage.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(want) / ch {
		c, _ := color.NRGBAModel.Convert(img.At(i%w, i/w)).(color.NRGBA)
		if n, ok := img.(*stdimage.NRGBA); ok {
			c = n.NRGBAAt(i%w, i/w)
		}
		got := []byte{c.R, c.G, c.B, c.A}[:ch]
		if !bytes.Equal(got, want[i*ch:][:ch]) {
			t.Fatalf("pixel %d, %d is %v, want %v", i%w, i/w, got, want[i*ch:][:ch])
		}
	}
}

// TestLayouts encodes the same image in every layout.
func TestLayouts(t *testing.T) {
	t.Parallel()
	const w, h = 9, 7
	want := noise(w, h, 3)
	planes, floats := make([]byte, len(want)), make([]byte, 0, 4*len(want))
	for i, v := range want {
		planes[i%3*w*h+i/3] = v
	}
	for _, v := range planes {
		bits := math.Float32bits(float32(v) / 255)
		floats = append(floats, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	files, errs := encoded(t, map[string]string{"format": "png", "layout": "nchw"}, tensor.Uint8, tensor.Of(1, 3, h, w), planes)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	check(t, files[0], want, w, 3)
	files, errs = encoded(t, map[string]string{"format": "png", "layout": "nchw", "dtype": "fp32"}, tensor.FP32, tensor.Of(1, 3, h, w), floats)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	check(t, files[0], want, w, 3)
}

// TestQuality checks that JPEG files are close to the image, and larger with a higher quality.
func TestQuality(t *testing.T) {
	t.Parallel()
	const w, h = 64, 48
	pix := make([]byte, w*h*3)
	for i := range pix {
		pix[i] = byte(128 + 100*math.Sin(float64(i/3%w)/9+float64(i/3/w)/7))
	}
	last := 0
	for _, q := range []string{"10", "75", "100"} {
		files, errs := encoded(t, map[string]string{"quality": q}, tensor.Uint8, tensor.Of(1, h, w, 3), pix)
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		if len(files[0]) <= last {
			t.Errorf("quality %s takes %d bytes, the one before %d", q, len(files[0]), last)
		}
		last = len(files[0])
		img, format, err := stdimage.Decode(bytes.NewReader(files[0]))
		if err != nil || format != "jpeg" {
			t.Fatal(format, err)
		}
		for i := range w * h {
			c, _ := color.NRGBAModel.Convert(img.At(i%w, i/w)).(color.NRGBA)
			if d := int(c.R) - int(pix[3*i]); d < -40 || d > 40 {
				t.Fatalf("quality %s: pixel %d is %d, want about %d", q, i, c.R, pix[3*i])
			}
		}
	}
}

// TestRefused covers bad inputs and parameters.
func TestRefused(t *testing.T) {
	t.Parallel()
	nan := []byte{0, 0, 0xc0, 0x7f}
	_, errs := encoded(t, map[string]string{"dtype": "fp32", "color": "gray"}, tensor.FP32, tensor.Of(2, 1, 1, 1), append([]byte{0, 0, 0, 0}, nan...))
	if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "expected finite numbers, found NaN at element 0") {
		t.Errorf("got %v", errs)
	}
	for _, tc := range []struct {
		params map[string]string
		shape  tensor.Shape
		want   string
	}{
		{nil, tensor.Of(1, 0, 5, 3), "expected an image, found 5 x 0 pixels"},
		{map[string]string{"max_pixels": "10"}, tensor.Of(1, 4, 5, 3), "expected at most 10 pixels (max_pixels), found 5 x 4 = 20"},
		{nil, tensor.Of(1, 1, 70000, 3), "expected sides of at most 65535 pixels for jpeg, found 70000 x 1"},
		{map[string]string{"format": "webp"}, tensor.Of(1, 1, 16385, 3), "expected sides of at most 16384 pixels for webp"},
	} {
		_, errs := encoded(t, tc.params, tensor.Uint8, tc.shape, nil)
		if errs[0] == nil || !strings.Contains(errs[0].Error(), tc.want) {
			t.Errorf("%v: got %v, want %q", tc.params, errs[0], tc.want)
		}
	}
	for key, tc := range map[string]struct {
		params map[string]string
		want   string
	}{
		"alpha":             {map[string]string{"color": "rgba"}, "which has no alpha"},
		"quality":           {map[string]string{"quality": "101"}, "expected at most 100"},
		"zero":              {map[string]string{"quality": "0"}, "expected an integer of at least 1"},
		"useless":           {map[string]string{"quality": "90", "format": "webp"}, "which is lossless"},
		"scale":             {map[string]string{"scale": "1"}, "expected none with dtype uint8"},
		"scale beyond FP32": {map[string]string{"scale": "255.000001"}, "expected none with dtype uint8"},
	} {
		if _, err := mustStep(t, tc.params); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", key, err, tc.want)
		}
	}
}
