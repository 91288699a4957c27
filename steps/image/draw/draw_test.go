package draw_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/draw"
	"github.com/tutti-server/tutti/steps/steptest"
)

func newStep(tb testing.TB, params map[string]string) steps.Step {
	tb.Helper()
	f := draw.NewFactory()
	resolved, err := f.Resolve(params)
	if err != nil {
		tb.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "m", MaxBatch: 1, Params: resolved})
	if err != nil {
		tb.Fatal(err)
	}
	return step
}

func value[T any](tb testing.TB, alloc tensor.Allocator, d tensor.DType, v []T, dims ...int64) tensor.Tensor {
	tb.Helper()
	t, err := tensor.New(alloc, d, tensor.Of(dims...))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := binary.Encode(t.Bytes(), binary.LittleEndian, v); err != nil {
		tb.Fatal(err)
	}
	return t
}

// batch is one black image with boxes.
func batch(tb testing.TB, alloc tensor.Allocator, w, h int, boxes, scores []float32, classes []int32) *backends.Batch {
	tb.Helper()
	n := int64(len(classes))
	b := &backends.Batch{
		Rows: 1, Out: make([]tensor.Tensor, 1), Allocator: alloc, Requests: []backends.Request{{Ctx: tb.Context(), Rows: 1}},
		In: []tensor.Tensor{
			value(tb, alloc, tensor.Uint8, make([]byte, 3*w*h), 1, int64(h), int64(w), 3),
			value(tb, alloc, tensor.FP32, boxes, 1, n, 4), value(tb, alloc, tensor.FP32, scores, 1, n), value(tb, alloc, tensor.Int32, classes, 1, n),
		},
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
}

// TestImage compares a small image with its drawing in characters: class 0 has the first colour (#), its
// text is black (.).
func TestImage(t *testing.T) {
	t.Parallel()
	step := newStep(t, map[string]string{"input": "pixels", "output": "pixels"})
	b := batch(t, tensortest.NewChecked(t, nil), 30, 18, []float32{-3, 13, 12.4, 17}, []float32{0.5}, []int32{0})
	if err := step.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	pix := b.Out[0].Bytes()
	for i := 0; i < len(pix); i += 3 {
		if i%90 == 0 {
			got.WriteByte('\n')
		}
		switch [3]byte(pix[i:]) {
		case [3]byte{}:
			got.WriteByte('.')
		case [3]byte{255, 96, 96}:
			got.WriteByte('#')
		default:
			got.WriteByte('?')
		}
	}
	if got.String() != drawing {
		t.Error(got.String())
	}
}

const drawing = `
##############################
##############################
###..############..##########.
##.##.##########.##.#########.
#.####.########.####.########.
#.####.########.####.########.
#.####.########.####.########.
#.####.########.####.#########
#.####.########.####.#########
##.##.##########.##.#####.###.
###..############..#####...###
#########################.####
##############################
############..................
...........#..................
...........#..................
############..................
..............................`

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewRGBA(image.Rect(0, 0, 20, 10))); err != nil {
		t.Fatal(err)
	}
	text := func(s string) []steptest.Value {
		classes := steptest.Value{DType: tensor.Int32, Dims: []int64{1, 1}, Data: make([]byte, 4)}
		return []steptest.Value{steptest.Text([]int64{1, 1}, s), steptest.F32([]int64{1, 1, 4}, 2, 2, 5, 5), steptest.F32([]int64{1, 1}, 0.5), classes}
	}
	two := text(file.String())
	two[2] = steptest.F32([]int64{1, 2}, 1, 1)
	steptest.Run(
		t, draw.NewFactory(),
		steptest.Case{
			Name: "file", MaxBatch: 4, Params: map[string]string{"labels_file": "l"}, Files: map[string][]byte{"l": []byte("é\n")},
			Requests: []steptest.Request{
				{Inputs: text(file.String())},
				{Inputs: text("no image"), WantErr: "input 'IMAGE': "},
				{Inputs: text(file.String())},
			},
		},
		steptest.Case{Name: "jpeg", MaxBatch: 4, Params: map[string]string{"output": "jpeg"}, Requests: []steptest.Request{{Inputs: text(file.String())}}},
		steptest.Case{Name: "pixels of files", Params: map[string]string{"output": "pixels"}, WantNewErr: "expected png or jpeg with input file"},
		steptest.Case{Name: "quality", Params: map[string]string{"quality": "101"}, WantNewErr: "'quality' of model 'tested' is 101, expected at most 100"},
	)
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	step := newStep(t, map[string]string{"input": "pixels", "max_boxes": "1", "max_pixels": "100"})
	for want, b := range map[string]*backends.Batch{
		"expected at most 1 (max_boxes), found 2": batch(t, tensortest.NewChecked(t, nil), 1, 1, make([]float32, 8), make([]float32, 2), make([]int32, 2)),
		"(max_pixels), found 11 x 10":             batch(t, tensortest.NewChecked(t, nil), 11, 10, make([]float32, 4), make([]float32, 1), make([]int32, 1)),
		"(max_pixels), found 0 x 10":              batch(t, tensortest.NewChecked(t, nil), 0, 10, make([]float32, 4), make([]float32, 1), make([]int32, 1)),
	} {
		if err := step.Run(t.Context(), b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzDraw checks that no box makes the step panic, and that the output is an image.
func FuzzDraw(f *testing.F) {
	f.Add(float32(1), float32(2), float32(3), float32(4), float32(0.5), int32(3), uint8(9), uint8(20), uint8(0))
	f.Add(float32(math.Inf(-1)), float32(math.NaN()), float32(3e38), float32(4), float32(math.NaN()), int32(-3), uint8(1), uint8(1), uint8(200))
	f.Add(float32(-3e38), float32(-3e38), float32(3e38), float32(3e38), float32(math.Inf(1)), int32(math.MaxInt32), uint8(40), uint8(3), uint8(255))
	f.Fuzz(func(t *testing.T, x0, y0, x1, y1, score float32, class int32, w, h, thick uint8) {
		if w == 0 || h == 0 {
			return
		}
		step := newStep(t, map[string]string{"input": "pixels", "thickness": strconv.Itoa(int(thick)), "text_scale": strconv.Itoa(int(thick % 5))})
		b := batch(t, tensortest.NewChecked(t, nil), int(w), int(h), []float32{x0, y0, x1, y1}, []float32{score}, []int32{class})
		if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		data, _, _ := tensor.NextBytes(b.Out[0].Bytes())
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil || img.Bounds() != image.Rect(0, 0, int(w), int(h)) {
			t.Fatal(img.Bounds(), err)
		}
	})
}

// BenchmarkDraw draws 20 boxes on 640 x 480 pixels.
func BenchmarkDraw(b *testing.B) {
	step := newStep(b, map[string]string{"input": "pixels", "output": "pixels"})
	boxes, classes := make([]float32, 0, 80), make([]int32, 20)
	for i := range classes {
		x, y := float32(i*29), float32(i*20)
		boxes, classes[i] = append(boxes, x, y, x+90, y+80), int32(i)
	}
	batch := batch(b, tensor.NewPool(), 640, 480, boxes, make([]float32, 20), classes)
	b.ReportAllocs()
	for b.Loop() {
		if err := step.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
