package crop_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/crop"
	"github.com/tutti-server/tutti/steps/steptest"
)

// gold is testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	Images []struct {
		W, H int64
		Pix  []byte
	}
	Cases []struct {
		Image  int
		Boxes  [][8]float32
		Shapes [][2]int32
		Sums   []string
		Widths []int32
	}
}

func readGold(t *testing.T) *gold {
	t.Helper()
	g := &gold{}
	steptest.ReadGold(t, "gold.json.gz", g)
	return g
}

func newStep(tb testing.TB, params map[string]string, maxBatch int) steps.Step {
	tb.Helper()
	f := crop.NewFactory()
	resolved, err := f.Resolve(params)
	if err != nil {
		tb.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "m", MaxBatch: maxBatch, Params: resolved})
	if err != nil {
		tb.Fatal(err)
	}
	return step
}

// batch has one request with an image and quadrilaterals.
func batch(tb testing.TB, w, h int64, pix []byte, boxes [][8]float32, outputs int) *backends.Batch {
	tb.Helper()
	alloc := tensortest.NewChecked(tb, nil)
	b := &backends.Batch{Rows: 1, Requests: []backends.Request{{Rows: 1}}, In: make([]tensor.Tensor, 2), Out: make([]tensor.Tensor, outputs), Allocator: alloc}
	var err error
	if b.In[0], err = tensor.New(alloc, tensor.Uint8, tensor.Of(h, w, 3)); err != nil {
		tb.Fatal(err)
	}
	copy(b.In[0].Bytes(), pix)
	if b.In[1], err = tensor.New(alloc, tensor.FP32, tensor.Of(int64(len(boxes)), 4, 2)); err != nil {
		tb.Fatal(err)
	}
	for i := range boxes {
		copy(tensor.Slice[float32](&b.In[1])[8*i:], boxes[i][:])
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
}

// TestGold compares every crop with the one that OpenCV cuts.
func TestGold(t *testing.T) {
	t.Parallel()
	g := readGold(t)
	step := newStep(t, map[string]string{"count": "false", "turn": "1.5", "line_height": "48"}, 0)
	for _, c := range g.Cases {
		img := g.Images[c.Image]
		b := batch(t, img.W, img.H, img.Pix, c.Boxes, 3)
		if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		if diff := cmp.Diff(c.Widths, tensor.Slice[int32](&b.Out[2])); diff != "" {
			t.Errorf("image %d, widths: %s", c.Image, diff)
		}
		shapes, rest := tensor.Slice[int32](&b.Out[1]), b.Out[0].Bytes()
		for i := range c.Boxes {
			var pix []byte
			pix, rest, _ = tensor.NextBytes(rest)
			if shape := [2]int32(shapes[3*i:]); shape != c.Shapes[i] {
				t.Errorf("image %d, box %v: shape %v, expected %v", c.Image, c.Boxes[i], shape, c.Shapes[i])
			} else if sum := sha256.Sum256(pix); hex.EncodeToString(sum[:]) != c.Sums[i] {
				t.Errorf("image %d, box %v: the samples of a crop of %v differ", c.Image, c.Boxes[i], shape)
			}
		}
		if len(rest) > 0 {
			t.Errorf("image %d: %d bytes after the last crop", c.Image, len(rest))
		}
	}
}
