package image_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/steps/image"
)

// TestAllocsPerRow holds the steps to no allocation a row once their scratch has
// grown: files of the formats that the program decodes itself, pixels and boxes.
func TestAllocsPerRow(t *testing.T) { //nolint:paralleltest // others would be counted
	if racetest.Enabled {
		t.Skip("pools drop at random under the race detector")
	}
	all := formats(t)
	files, resize, crop := image.NewFactory(), image.NewResizeFactory(), image.NewCropFactory()
	pix := make([]byte, 40*30*3)
	boxes := [][]float32{{1, 2, 30, 20}, {-4, 0, 9, 90}, {5, 5, 5, 5}}
	given := map[string]string{"width": "12", "height": "9", "jpeg_decoder": "go"}
	for _, tc := range []struct {
		name  string
		batch *backends.Batch
	}{
		{"turn6.jpg", nil},
		{"turn6gray.jpg", nil},
		{"interlaced.gif", nil},
		{"rle8.bmp", nil},
		{"resize", pixelBatch(t, tensor.NewPool(), []int64{30, 40, 3}, pix, nil)},
		{"resize cv_linear", pixelBatch(t, tensor.NewPool(), []int64{30, 40, 3}, pix, nil)},
		{"resize cv_cubic", pixelBatch(t, tensor.NewPool(), []int64{30, 40, 3}, pix, nil)},
		{"resize cv_area", pixelBatch(t, tensor.NewPool(), []int64{30, 40, 3}, pix, nil)},
		{"resize in two steps", pixelBatch(t, tensor.NewPool(), []int64{30, 40, 3}, pix, nil)},
		{"crop", pixelBatch(t, tensor.NewPool(), []int64{30, 40, 3}, pix, boxes)},
	} {
		f, b, params := &files, tc.batch, maps.Clone(given)
		switch {
		case b == nil:
			b = newBatch(t, tensor.NewPool(), all[tc.name], all[tc.name], all[tc.name], all[tc.name])
		case len(b.In) == 1:
			f = &resize
			delete(params, "jpeg_decoder")
			if _, filter, ok := strings.Cut(tc.name, " cv_"); ok {
				params["resize"] = "cv_" + filter
			} else if tc.name == "resize in two steps" {
				params["reducing_gap"] = "1"
			}
		default:
			f = &crop
			params["input"] = "pixels"
		}
		step := makeStep(t, f, params)
		// A collection may empty the pool of workers in between: seldom, hence the average.
		n := testing.AllocsPerRun(200, func() {
			if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
				t.Fatal(err, b.Requests[0].Err)
			}
		})
		if n >= 1 {
			t.Errorf("%s: %v allocations in a batch of %d rows", tc.name, n, b.Rows)
		}
		releaseAll(b)
	}
}
