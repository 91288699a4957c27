package image_test

import (
	"bytes"
	stdimage "image"
	_ "image/jpeg"
	_ "image/png"
	"path/filepath"
	"strconv"
	"testing"

	"tutti/core/tensor"
	"tutti/steps"
	"tutti/steps/image"
)

// FuzzDecode feeds the step arbitrary files. It must never panic, and it accepts
// a file only when the standard library sees an image of an allowed size.
func FuzzDecode(f *testing.F) {
	paths, err := filepath.Glob("testdata/in/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		f.Add(readFile(f, path))
	}
	const limit = 1 << 16
	step := mustStep(f, 5, 4, map[string]string{"max_pixels": "65536"})
	gray := mustStep(f, 5, 4, map[string]string{"max_pixels": "65536", "color": "gray"})
	f.Fuzz(func(t *testing.T, file []byte) {
		b := newBatch(t, tensor.NewPool(), file)
		defer release(b)
		if err := step.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		failed := b.Reqs[0].Err != nil
		if err := gray.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if failed {
			return
		}
		c, _, err := stdimage.DecodeConfig(bytes.NewReader(file))
		if err != nil || c.Width*c.Height > limit {
			t.Errorf("accepted a file of %d x %d pixels: %v", c.Width, c.Height, err)
		}
	})
}

// FuzzResize takes pictures of any size through every filter and fit: no panic, and
// samples that are all alike stay so, because weights add up to one.
func FuzzResize(f *testing.F) {
	filters := []string{"nearest", "area", "bilinear", "bicubic", "lanczos"}
	fits := []string{"exact", "short_side", "letterbox", "none"}
	f.Add(uint16(1), uint16(1), uint16(7), uint16(9), uint16(0), byte(0), float32(0), float32(0), float32(9), float32(9))
	f.Add(uint16(2000), uint16(3), uint16(20), uint16(70), uint16(33), byte(77), float32(-1), float32(1), float32(5), float32(1e30))
	crop := image.NewCropFactory()
	f.Fuzz(func(t *testing.T, w, h, width, height, short uint16, mode byte, x0, y0, x1, y1 float32) {
		inW, inH := int64(w%3000)+1, int64(h%3000)+1
		params := map[string]string{
			"width": strconv.Itoa(int(width%300) + 1), "height": strconv.Itoa(int(height%300) + 1), "input": "pixels", "fill": "200",
			"dtype": "uint8", "layout": "nhwc", "resize": filters[int(mode)%5], "fit": fits[int(mode/5)%4], "antialias": strconv.FormatBool(mode < 128),
		}
		if params["fit"] == "short_side" {
			params["short_side"] = strconv.Itoa(int(short % 2000))
		}
		resolved, err := crop.Resolve(params)
		if err != nil {
			t.Fatal(err)
		}
		step, err := crop.New(&steps.Settings{MaxBatch: 1, Params: resolved})
		if err != nil {
			t.Fatal(err)
		}
		if inW*inH > 1<<16 {
			inH = 1<<16/inW + 1
		}
		b := pixelBatch(t, tensor.NewPool(), []int64{inH, inW, 3}, bytes.Repeat([]byte{200}, int(inW*inH*3)),
			[][]float32{{x0, y0, x1, y1}, {0, 0, float32(inW), float32(inH)}})
		defer releaseAll(b)
		if err := step.Run(t.Context(), b); err != nil || b.Reqs[0].Err != nil {
			t.Fatal(err, b.Reqs[0].Err)
		}
		for i, v := range b.Out[0].Bytes() {
			if v != 200 {
				t.Fatalf("sample %d is %d", i, v)
			}
		}
	})
}
