//go:build !race

// Under the race detector pools drop what they are given at random.

package crop_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestAllocBudget holds the step to no allocation once its scratch has grown.
func TestAllocBudget(t *testing.T) {
	step := newStep(t, map[string]string{"count": "false", "turn": "1.5", "line_height": "48"}, 0)
	b := batch(t, 40, 30, make([]byte, 3600), [][8]float32{{1, 2, 30, 5, 29, 20, 0, 17}, {5, 5, 9, 5, 9, 25, 5, 25}}, 3)
	b.Allocator = tensor.NewPool()
	n := testing.AllocsPerRun(100, func() {
		if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
