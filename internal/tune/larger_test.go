package tune_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tune"
)

// TestSearchRaisesMaxBatch checks that a model whose time hardly grows with its rows gets a larger max_batch_size where its
// file takes one, and keeps its own where not.
func TestSearchRaisesMaxBatch(t *testing.T) {
	t.Parallel()
	const ms = float64(time.Millisecond)
	for _, largest := range []int32{4, 16} {
		n := oneModel(tune.NewCost(1, 10*ms, 0.05*ms), 4)
		n.Models[0].Largest = largest
		r, err := tune.Search(t.Context(), n, 1, 100*time.Millisecond, 0)
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Advice.Settings[0]; s.MaxBatch != largest {
			t.Errorf("a file that takes batches of %d: %s", largest, s.String())
		}
	}
}

// TestSameRows checks when a batch has the responses of its requests: numbers may differ by their rounding, nothing else.
func TestSameRows(t *testing.T) {
	t.Parallel()
	floats := func(list ...float32) client.Tensor {
		return client.Of("X", []int64{int64(len(list))}, list...)
	}
	nan := float32(math.NaN())
	for _, tt := range []struct {
		alone, batch client.Tensor
		times        int
		want         string
	}{
		{floats(1, 100), floats(1, 100, 1.01, 100.01), 2, ""},
		{floats(nan, 1), floats(nan, 1, nan, 1), 2, ""},
		{floats(1, 100), floats(1, 100, 2, 100), 2, "depends on the size of its batch"},
		{floats(1), floats(1, nan), 2, "depends on the size"},
		{floats(1), floats(1), 2, "has not 2 times as many bytes"},
		{client.Of("X", []int64{1}, int32(7)), client.Of("X", []int64{2}, int32(7), int32(8)), 2, "depends on the size"},
		{floats(1), client.Tensor{Name: "Y", DType: tensor.FP32}, 1, "has not 1 times"},
	} {
		err := tune.SameRows([]client.Tensor{tt.alone}, []client.Tensor{tt.batch}, tt.times)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v and %v: error '%v', want '%s'", tt.alone, tt.batch, err, tt.want)
		}
	}
}
