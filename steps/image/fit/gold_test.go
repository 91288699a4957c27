package fit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/fit"
	"github.com/tutti-server/tutti/steps/steptest"
)

// gold is a case of testdata/gold.json.gz, made by testdata/make_gold.py.
type gold struct {
	W, H     int
	Params   map[string]string
	Shape    []int64
	Geometry []float32
	Sum      string
}

func readGold(t *testing.T) (list []gold) {
	t.Helper()
	steptest.ReadGold(t, "gold.json.gz", &list)
	return list
}

// TestGold compares outputs of the settings of a text reader with those of OpenCV and numpy: every bit agrees.
func TestGold(t *testing.T) {
	t.Parallel()
	for _, g := range readGold(t) {
		f := fit.NewFactory()
		g.Params["geometry"] = "true"
		resolved, err := f.Resolve(g.Params)
		if err != nil {
			t.Fatal(err)
		}
		step, err := f.New(&steps.Settings{Model: "m", Params: resolved})
		if err != nil {
			t.Fatal(err)
		}
		b := batch(t, g.W, g.H)
		if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		sum := sha256.Sum256(b.Out[0].Bytes())
		if dims := b.Out[0].Shape.Dims(); !slices.Equal(dims, g.Shape) || hex.EncodeToString(sum[:]) != g.Sum {
			t.Errorf("image of %d x %d, %v: %v, expected %v with other samples", g.W, g.H, g.Params, dims, g.Shape)
		}
		if got := tensor.Slice[float32](&b.Out[1]); !slices.Equal(got, g.Geometry) {
			t.Errorf("image of %d x %d, %v: geometry %v, expected %v", g.W, g.H, g.Params, got, g.Geometry)
		}
	}
}

// batch has one request with the image of make_gold.py.
func batch(t *testing.T, w, h int) *backends.Batch {
	t.Helper()
	alloc := tensortest.NewChecked(t, nil)
	b := &backends.Batch{Rows: 1, Requests: []backends.Request{{Rows: 1}}, In: make([]tensor.Tensor, 1), Out: make([]tensor.Tensor, 2), Allocator: alloc}
	var err error
	if b.In[0], err = tensor.New(alloc, tensor.Uint8, tensor.Of(int64(h), int64(w), 3)); err != nil {
		t.Fatal(err)
	}
	pix := b.In[0].Bytes()
	for i := range pix {
		x, y := i/3%w, i/3/w
		pix[i] = byte(7*x + 13*y + 50*(i%3) + x*y/3)
	}
	t.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	})
	return b
}
