package image_test

import (
	"bytes"
	stdimage "image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
)

// newStep makes the step with width, height and the given parameters.
func newStep(w, h int, params map[string]string) (steps.Step, *steps.Settings, error) {
	given := map[string]string{"width": strconv.Itoa(w), "height": strconv.Itoa(h)}
	maps.Copy(given, params)
	f := image.NewFactory()
	resolved, err := f.Resolve(given)
	if err != nil {
		return nil, nil, err
	}
	s := &steps.Settings{Model: "pre", MaxBatch: 8, Params: resolved}
	step, err := f.New(s)
	return step, s, err
}

func mustStep(tb testing.TB, w, h int, params map[string]string) steps.Step {
	tb.Helper()
	step, _, err := newStep(w, h, params)
	if err != nil {
		tb.Fatal(err)
	}
	return step
}

// newBatch holds one request per file.
func newBatch(tb testing.TB, a tensor.Allocator, files ...[]byte) *backends.Batch {
	tb.Helper()
	var text []byte
	b := &backends.Batch{Rows: len(files), Out: make([]tensor.Tensor, 1), Allocator: a}
	for i, f := range files {
		text = tensor.AppendBytes(text, f)
		b.Requests = append(b.Requests, backends.Request{Ctx: tb.Context(), First: i, Rows: 1})
	}
	in, err := tensor.NewBytes(a, tensor.Of(int64(len(files)), 1), len(text))
	if err != nil {
		tb.Fatal(err)
	}
	copy(in.Bytes(), text)
	b.In = []tensor.Tensor{in}
	return b
}

func release(b *backends.Batch) {
	b.In[0].Release()
	b.Out[0].Release()
}

// pixels runs one file through the step as packed bytes.
func pixels(tb testing.TB, file []byte, w, h int, params map[string]string) ([]byte, error) {
	tb.Helper()
	all := map[string]string{"dtype": "uint8", "layout": "nhwc"}
	maps.Copy(all, params)
	b := newBatch(tb, tensortest.NewChecked(tb, nil), file)
	defer release(b)
	if err := mustStep(tb, w, h, all).Run(tb.Context(), b); err != nil {
		return nil, err
	}
	return bytes.Clone(b.Out[0].Bytes()), b.Requests[0].Err
}

func readFile(tb testing.TB, path ...string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// gold reads an image that Pillow made, as packed samples.
func gold(tb testing.TB, path string, gray bool) (samples []byte, w, h int) {
	tb.Helper()
	img, err := png.Decode(bytes.NewReader(readFile(tb, path)))
	if err != nil {
		tb.Fatal(err)
	}
	b := img.Bounds()
	for y := range b.Dy() {
		for x := range b.Dx() {
			c, _ := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			samples = append(samples, c.R)
			if !gray {
				samples = append(samples, c.G, c.B)
			}
		}
	}
	return samples, b.Dx(), b.Dy()
}

// TestGold compares every bit with Pillow.
func TestGold(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/out/*.png")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no gold files: %v", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".png")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := strings.Split(name, "_") // NAME_EXT_WxH_COLOR.
			want, w, h := gold(t, path, part[3] == "gray")
			got, err := pixels(t, readFile(t, "testdata/in", part[0]+"."+part[1]), w, h, map[string]string{"color": part[3]})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDeep checks that 16-bit samples give their high byte and that alpha does
// not darken them.
func TestDeep(t *testing.T) {
	t.Parallel()
	r := stdimage.Rect(0, 0, 2, 1)
	gray, rgb, alpha := stdimage.NewGray16(r), stdimage.NewRGBA64(r), stdimage.NewNRGBA64(r)
	for x := range 2 {
		gray.SetGray16(x, 0, color.Gray16{Y: 0x12ff})
		rgb.SetRGBA64(x, 0, color.RGBA64{R: 0x01ff, G: 0x7fff, B: 0xfe00, A: 0xffff})
		alpha.SetNRGBA64(x, 0, color.NRGBA64{R: 0x01ff, G: 0x7fff, B: 0xfe00, A: 0x1000})
	}
	for _, tc := range []struct {
		name string
		img  stdimage.Image
		want []byte
	}{
		{"gray", gray, []byte{0x12, 0x12, 0x12, 0x12, 0x12, 0x12}},
		{"rgb", rgb, []byte{0x01, 0x7f, 0xfe, 0x01, 0x7f, 0xfe}},
		{"alpha", alpha, []byte{0x01, 0x7f, 0xfe, 0x01, 0x7f, 0xfe}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var file bytes.Buffer
			if err := png.Encode(&file, tc.img); err != nil {
				t.Fatal(err)
			}
			got, err := pixels(t, file.Bytes(), 2, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLayout checks order, normalisation and signature on one tiny image.
func TestLayout(t *testing.T) {
	t.Parallel()
	img := stdimage.NewNRGBA(stdimage.Rect(0, 0, 2, 1))
	img.SetNRGBA(0, 0, color.NRGBA{R: 10, G: 20, B: 30, A: 255})
	img.SetNRGBA(1, 0, color.NRGBA{R: 40, G: 50, B: 60, A: 255})
	var file bytes.Buffer
	if err := png.Encode(&file, img); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		params map[string]string
		shape  tensor.Shape
		want   []float32
	}{
		{"planes", map[string]string{"scale": "1"}, tensor.Of(1, 3, 1, 2), []float32{10, 40, 20, 50, 30, 60}},
		{"packed", map[string]string{"scale": "1", "layout": "nhwc"}, tensor.Of(1, 1, 2, 3), []float32{10, 20, 30, 40, 50, 60}},
		{"scaled", nil, tensor.Of(1, 3, 1, 2), []float32{10. / 255, 40. / 255, 20. / 255, 50. / 255, 30. / 255, 60. / 255}},
		{"normalised", map[string]string{"scale": "0.1", "mean": "1, 2, 3", "std": "1,2,0.5"}, tensor.Of(1, 3, 1, 2), []float32{0, 3, 0, 1.5, 0, 6}},
		{"one for all", map[string]string{"scale": "1", "mean": "10", "std": "2"}, tensor.Of(1, 3, 1, 2), []float32{0, 15, 5, 20, 10, 25}},
		{"gray", map[string]string{"scale": "1", "color": "gray", "mean": "8"}, tensor.Of(1, 1, 1, 2), []float32{10, 40}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			step, s, err := newStep(2, 1, tc.params)
			if err != nil {
				t.Fatal(err)
			}
			sig, err := image.NewFactory().Signature(s)
			if err != nil || !sig.Outputs[0].Dims.Equal(tc.shape.Tail()) {
				t.Errorf("signature %+v, %v", sig, err)
			}
			b := newBatch(t, tensortest.NewChecked(t, nil), file.Bytes())
			defer release(b)
			if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
				t.Fatal(err, b.Requests[0].Err)
			}
			if !b.Out[0].Shape.Equal(tc.shape) {
				t.Errorf("shape %v, want %v", b.Out[0].Shape, tc.shape)
			}
			if diff := cmp.Diff(tc.want, tensor.Slice[float32](&b.Out[0])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnbatched checks that without batching the output has no batch dimension.
func TestUnbatched(t *testing.T) {
	t.Parallel()
	f := image.NewFactory()
	params, err := f.Resolve(map[string]string{"width": "8", "height": "9"})
	if err != nil {
		t.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Params: params})
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(t, tensortest.NewChecked(t, nil), readFile(t, "testdata/in/rgb.png"))
	defer release(b)
	if err := step.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !b.Out[0].Shape.Equal(tensor.Of(3, 9, 8)) {
		t.Errorf("shape %v", b.Out[0].Shape)
	}
}
