//go:build !race

// Under the race detector pools drop what they are given at random.

package ocr_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestAllocBudget holds the step to no allocation once its scratch has grown.
func TestAllocBudget(t *testing.T) {
	g := readGold(t)
	m := g.Maps[1]
	step := newBoxes(t, nil)
	b := mapBatch(t, m.W, m.H, floats(m.Values), [2]float32{200, 100})
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
