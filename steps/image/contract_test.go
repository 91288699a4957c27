package image_test

import (
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	rgb, gray := string(readFile(t, "testdata/in/rgb.png")), string(readFile(t, "testdata/in/gray.png"))
	jpg := string(readFile(t, "testdata/in/j420.jpg"))
	want, _, _ := gold(t, "testdata/out/rgb_png_1x1_rgb.png", false)
	wantGray, _, _ := gold(t, "testdata/out/gray_png_1x1_rgb.png", false)
	one, file := []int64{1, 1, 1, 3}, []int64{1, 1}
	params := map[string]string{"width": "1", "height": "1", "dtype": "uint8", "layout": "nhwc"}
	steptest.Run(
		t, image.NewFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 8, Params: params,
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.Text(file, rgb)}, Want: []steptest.Value{steptest.U8(one, want...)}},
				{Inputs: []steptest.Value{steptest.Text(file, "no image")}, WantErr: "input 'IMAGE': expected JPEG, PNG, GIF, WebP, BMP or TIFF"},
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, gray, "")}, WantErr: "input 'IMAGE' row 1: expected JPEG, PNG, GIF, WebP, BMP or TIFF, found no bytes"},
				{Inputs: []steptest.Value{steptest.Text(file, gray)}, Want: []steptest.Value{steptest.U8(one, wantGray...)}},
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, jpg, rgb)}},
			},
		},
		steptest.Case{
			Name: "unbatched", Params: map[string]string{"width": "5", "height": "4"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{steptest.Text([]int64{1}, jpg)}}},
		},
		steptest.Case{
			Name: "bad size", Params: map[string]string{"width": "5", "height": "x"}, WantNewErr: "parameter 'height'",
		},
	)
}

// TestResizeContract runs the suite on images that are not files.
func TestResizeContract(t *testing.T) {
	t.Parallel()
	params := map[string]string{"width": "2", "height": "2", "fit": "letterbox", "dtype": "uint8", "layout": "nhwc", "fill": "9", "geometry": "true"}
	black := make([]byte, 12)
	one := func(v ...byte) steptest.Value { return steptest.U8([]int64{1, 1, 2, 3}, v...) }
	geometry := steptest.F32([]int64{1, 6}, 1, 1, 0, 0, 2, 1)
	steptest.Run(
		t, image.NewResizeFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 8, Params: params,
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{one(1, 2, 3, 4, 5, 6)},
					Want:   []steptest.Value{steptest.U8([]int64{1, 2, 2, 3}, 1, 2, 3, 4, 5, 6, 9, 9, 9, 9, 9, 9), geometry},
				},
				{Inputs: []steptest.Value{steptest.U8([]int64{1, 1, 2, 1}, 7, 8)}},
				{Inputs: []steptest.Value{steptest.U8([]int64{2, 1, 3, 2}, black...)}, WantErr: "expected 1, 3 or 4 samples per pixel, found 2"},
				{Inputs: []steptest.Value{one(0, 0, 0, 0, 0, 0)}},
				{Inputs: []steptest.Value{steptest.U8([]int64{1, 0, 2, 3})}, WantErr: "impossible size 2 x 0"},
			},
		},
		steptest.Case{
			Name: "crop", Params: map[string]string{"width": "2", "height": "2", "crop": "1,0,3,9"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.U8([]int64{2, 2, 3}, black...)}},
				{Inputs: []steptest.Value{steptest.U8([]int64{4, 1, 3}, black...)}, WantErr: "lies outside the image of 1 x 4 pixels"},
			},
		},
		steptest.Case{Name: "side", Params: map[string]string{"width": "70000", "height": "1"}, WantNewErr: "expected sides of at most 65535"},
		steptest.Case{Name: "short", Params: map[string]string{"width": "7", "height": "1", "short_side": "5"}, WantNewErr: "none without fit short_side"},
		steptest.Case{Name: "box", Params: map[string]string{"width": "7", "height": "1", "crop": "1,2,1,5"}, WantNewErr: "a box that is not empty"},
		steptest.Case{Name: "box text", Params: map[string]string{"width": "7", "height": "1", "crop": "1,2"}, WantNewErr: "in pixels, separated by commas"},
		steptest.Case{Name: "gap", Params: map[string]string{"width": "7", "height": "1", "reducing_gap": "0.5"}, WantNewErr: "none or a number of at least 1"},
		steptest.Case{
			Name: "gap of OpenCV", Params: map[string]string{"width": "7", "height": "1", "reducing_gap": "2", "resize": "cv_area"},
			WantNewErr: "none with antialias false or a filter of OpenCV",
		},
		steptest.Case{Name: "fill", Params: map[string]string{"width": "7", "height": "1", "fill": "256"}, WantNewErr: "integers from 0 to 255"},
		steptest.Case{Name: "preset", Params: map[string]string{"preset": "alexnet"}, WantNewErr: "expected one of none, clip"},
		steptest.Case{Name: "none", Params: map[string]string{"preset": "none"}, WantNewErr: "needs parameter 'width'"},
	)
}

// TestCropContract runs the suite on boxes.
func TestCropContract(t *testing.T) {
	t.Parallel()
	params := map[string]string{"width": "1", "height": "1", "dtype": "uint8", "layout": "nhwc", "input": "pixels", "max_boxes": "3", "fill": "5"}
	input := steptest.U8([]int64{1, 1, 2, 3}, 1, 2, 3, 4, 5, 6)
	nan := float32(math.NaN())
	box := func(v ...float32) steptest.Value { return steptest.F32([]int64{1, int64(len(v) / 4), 4}, v...) }
	steptest.Run(
		t, image.NewCropFactory(),
		steptest.Case{
			Name: "pixels", MaxBatch: 8, Params: params,
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{input, box(1, 0, 2, 1, -4, 0, .5, 7)},
					Want:   []steptest.Value{steptest.U8([]int64{1, 2, 1, 1, 3}, 4, 5, 6, 1, 2, 3)},
				},
				{
					Inputs: []steptest.Value{input, box(nan, 0, 2, 1, 2, 0, 1, 1)},
					Want:   []steptest.Value{steptest.U8([]int64{1, 2, 1, 1, 3}, 5, 5, 5, 5, 5, 5)},
				},
				{Inputs: []steptest.Value{input, box()}, Want: []steptest.Value{steptest.U8([]int64{1, 0, 1, 1, 3})}},
			},
		},
		steptest.Case{
			Name: "files", MaxBatch: 2, Params: map[string]string{"preset": "resnet50", "width": "4", "height": "4", "short_side": "6"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.Text([]int64{1, 1}, string(readFile(t, "testdata/in/j420.jpg"))), box(9, 9, 30, 30)}},
				{Inputs: []steptest.Value{steptest.Text([]int64{1, 1}, "no image"), box(9, 9, 30, 30)}, WantErr: "input 'IMAGE': expected JPEG"},
			},
		},
	)
}

// TestTooManyBoxes checks that a request cannot ask for any amount of memory.
func TestTooManyBoxes(t *testing.T) {
	t.Parallel()
	f := image.NewCropFactory()
	step := makeStep(t, &f, map[string]string{"width": "1", "height": "1", "input": "pixels", "max_boxes": "1"})
	b := pixelBatch(t, tensortest.NewChecked(t, nil), []int64{1, 1, 3}, []byte{1, 2, 3}, [][]float32{{0, 0, 1, 1}, {0, 0, 1, 1}})
	defer releaseAll(b)
	if err := step.Run(t.Context(), b); err == nil || !strings.Contains(err.Error(), "expected at most 1 boxes (max_boxes), found 2") {
		t.Errorf("got %v", err)
	}
}
