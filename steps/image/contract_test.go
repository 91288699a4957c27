package image_test

import (
	"testing"

	"tutti/steps/image"
	"tutti/steps/steptest"
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
