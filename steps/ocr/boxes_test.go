package ocr_test

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/ocr"
	"github.com/tutti-server/tutti/steps/steptest"
)

// gold is testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	Maps []struct {
		W, H   int64
		Values []byte
	}
	Cases []struct {
		Map    int
		Size   [2]float32
		Params map[string]string
		Boxes  [][8]float32
		Scores []float32
	}
}

func readGold(tb testing.TB) (g gold) {
	tb.Helper()
	f, err := os.Open("testdata/gold.json.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		tb.Fatal(err)
	}
	return g
}

func newBoxes(tb testing.TB, params map[string]string) steps.Step {
	tb.Helper()
	f := ocr.NewBoxesFactory()
	resolved, err := f.Resolve(params)
	if err != nil {
		tb.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "m", Params: resolved})
	if err != nil {
		tb.Fatal(err)
	}
	return step
}

// mapBatch has one request with a map of w x h values, for an image of the given size.
func mapBatch(tb testing.TB, w, h int64, values []float32, size [2]float32) *backends.Batch {
	tb.Helper()
	alloc := tensortest.NewChecked(tb, nil)
	b := &backends.Batch{Rows: 1, Requests: []backends.Request{{Rows: 1}}, In: make([]tensor.Tensor, 2), Out: make([]tensor.Tensor, 3), Allocator: alloc}
	for i, shape := range []tensor.Shape{tensor.Of(1, h, w), tensor.Of(6)} {
		var err error
		if b.In[i], err = tensor.New(alloc, tensor.FP32, shape); err != nil {
			tb.Fatal(err)
		}
	}
	copy(tensor.Slice[float32](&b.In[0]), values)
	copy(tensor.Slice[float32](&b.In[1]), []float32{1, 1, 0, 0, size[0], size[1]})
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
}

func floats(g []byte) []float32 {
	out := make([]float32, len(g))
	for i, v := range g {
		out[i] = float32(v) / 255
	}
	return out
}

// TestBoxesGold compares boxes, in whole pixels, and scores with those of OpenCV and pyclipper.
func TestBoxesGold(t *testing.T) {
	t.Parallel()
	all := readGold(t)
	for i, g := range all.Cases {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			m := all.Maps[g.Map]
			b := mapBatch(t, m.W, m.H, floats(m.Values), g.Size)
			if err := newBoxes(t, g.Params).Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
				t.Fatal(err, b.Requests[0].Err)
			}
			var found [][8]float32
			for box := range slices.Chunk(tensor.Slice[float32](&b.Out[0]), 8) {
				found = append(found, [8]float32(box))
			}
			if !slices.Equal(found, g.Boxes) {
				t.Errorf("boxes %v, expected %v", found, g.Boxes)
			}
			near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-6 }
			if scores := tensor.Slice[float32](&b.Out[1]); !slices.EqualFunc(scores, g.Scores, near) {
				t.Errorf("scores %v, expected %v", scores, g.Scores)
			}
			if count := tensor.Slice[int32](&b.Out[2])[0]; int(count) != len(g.Boxes) {
				t.Errorf("count %d, expected %d", count, len(g.Boxes))
			}
		})
	}
}

// TestBoxesContract runs the suite that every step passes.
func TestBoxesContract(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	request := func(rows int, size float32, values ...float32) []steptest.Value {
		n := int64(len(values) / rows)
		var g []float32
		for range rows {
			g = append(g, 1, 1, 0, 0, size, size)
		}
		return []steptest.Value{steptest.F32([]int64{int64(rows), 1, 8, n / 8}, values...), steptest.F32([]int64{int64(rows), 6}, g...)}
	}
	square := make([]float32, 64) // 6 x 6 pixels of text
	for i := range square {
		if x, y := i%8, i/8; x > 0 && x < 7 && y > 0 && y < 7 {
			square[i] = 0.9
		}
	}
	broken := slices.Repeat([]float32{nan}, 64)
	one := []steptest.Value{steptest.F32([]int64{1, 1, 4, 2}, 0, 0, 8, 0, 8, 8, 0, 8), steptest.F32([]int64{1, 1}, 0.9), i32([]int64{1, 1}, 1)}
	none := []steptest.Value{steptest.F32([]int64{1, 0, 4, 2}), steptest.F32([]int64{1, 0}), i32([]int64{1, 1}, 0)}
	steptest.Run(
		t, ocr.NewBoxesFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 16, Params: map[string]string{"dilate": "false", "max_pixels": "64"}, Tolerance: 1e-6,
			Requests: []steptest.Request{
				{Inputs: request(1, 9, square...), Want: one},
				{Inputs: request(1, 9, make([]float32, 64)...), Want: none},
				{Inputs: request(1, 9, broken...), Want: none},
				{Inputs: request(1, 3, square...), Want: none}, // sides of 2 pixels
				{Inputs: request(2, 9, append(make([]float32, 64), square...)...), Want: []steptest.Value{
					steptest.F32([]int64{2, 1, 4, 2}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 8, 8, 0, 8), steptest.F32([]int64{2, 1}, 0, 0.9), i32([]int64{2, 1}, 0, 1),
				}},
				{Inputs: request(1, nan, square...), WantErr: "input 'geometry': expected elements 4 and 5, the size of the image, from 1 to 65535, found [NaN NaN]"},
			},
		},
		steptest.Case{
			Name: "large", MaxBatch: 4, Params: map[string]string{"max_pixels": "63"},
			Requests: []steptest.Request{{Inputs: request(1, 9, square...), WantErr: "input 'MAP': expected from 1 to 63 pixels (max_pixels), found 8 x 8"}},
		},
		steptest.Case{Name: "ratio", Params: map[string]string{"unclip_ratio": "-1"}, WantNewErr: "parameter 'unclip_ratio' of model 'tested' is '-1', expected a number above 0, at most 100"},
		steptest.Case{Name: "threshold", Params: map[string]string{"box_threshold": "x"}, WantNewErr: "parameter 'box_threshold'"},
		steptest.Case{Name: "candidates", Params: map[string]string{"max_candidates": "0"}, WantNewErr: "parameter 'max_candidates'"},
	)
}

// FuzzBoxes checks that for any map and parameters the boxes are whole pixels of the image.
func FuzzBoxes(f *testing.F) {
	f.Add([]byte{0, 255, 255, 255, 0, 255, 0, 255, 9, 255, 255, 255}, uint8(4), uint8(0))
	for _, m := range readGold(f).Maps[:6] {
		f.Add(m.Values, uint8(m.W), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, w, choice uint8) {
		if w == 0 || len(data) < int(w) {
			return
		}
		params := map[string]string{"min_size": strconv.Itoa(int(choice % 3)), "min_side": "0", "dilate": "false", "box_threshold": "0.1"}
		if choice&4 != 0 {
			params["dilate"], params["score"], params["unclip_ratio"] = "true", "slow", "99"
		}
		b := mapBatch(t, int64(w), int64(len(data)/int(w)), floats(data[:len(data)/int(w)*int(w)]), [2]float32{50, 40})
		if err := newBoxes(t, params).Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		for i, v := range tensor.Slice[float32](&b.Out[0]) {
			if !(v >= 0 && v <= []float32{49, 39}[i%2]) || v != float32(int(v)) {
				t.Fatalf("coordinate %v", v)
			}
		}
	})
}
