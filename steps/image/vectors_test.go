package image_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/image"
)

// TestVectors compares the resize with vectors to the one in Go: every filter, sizes
// on both sides of what the groups of weights need, and crops at the edges.
func TestVectors(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	crop := image.NewCropFactory()
	for _, size := range [][4]int{
		{1, 1, 7, 9},
		{3, 5, 4, 4},
		{4, 4, 4, 4},
		{5, 900, 5, 3},
		{900, 5, 3, 5},
		{17, 33, 16, 8},
		{64, 48, 200, 150},
		{97, 61, 13, 31},
		{640, 480, 224, 224},
		{641, 479, 30, 200},
		{1000, 40, 7, 39},
	} {
		w, h := size[0], size[1]
		pix := make([]byte, 3*w*h)
		for i := range pix {
			pix[i] = byte(r.Uint32())
		}
		boxes := [][]float32{{0, 0, float32(w), float32(h)}}
		for range 4 {
			x, y := r.Float32()*float32(w), r.Float32()*float32(h)
			boxes = append(boxes, []float32{x, y, x + 1 + r.Float32()*float32(w), y + 1 + r.Float32()*float32(h)})
		}
		for _, filter := range []string{"nearest", "area", "bilinear", "hamming", "bicubic", "lanczos"} {
			params := map[string]string{
				"width": strconv.Itoa(size[2]), "height": strconv.Itoa(size[3]), "input": "pixels", "dtype": "uint8", "layout": "nhwc", "resize": filter,
			}
			name := fmt.Sprintf("%v, %s", size, filter)
			var got [2][]byte
			for i := range got {
				step := makeStep(t, &crop, params)
				if i == 1 {
					image.WithoutVectors(step)
				}
				b := pixelBatch(t, tensor.NewPool(), []int64{int64(h), int64(w), 3}, pix, boxes)
				if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
					t.Fatal(name, err, b.Requests[0].Err)
				}
				got[i] = bytes.Clone(b.Out[0].Bytes())
				releaseAll(b)
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Errorf("%s: vectors and Go differ", name)
			}
		}
	}
}
