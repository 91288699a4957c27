//go:build !race

// Under the race detector pools drop values at random.

package tensorop_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

func TestAllocBudget(t *testing.T) {
	f, i := port("A", tensor.FP32, 3, 5), port("I", tensor.Int32, 3, 5)
	row, h, c := port("B", tensor.FP32, 5), port("H", tensor.FP16, 3, 5), port("C", tensor.Bool, 5)
	for _, tt := range []struct {
		params map[string]string
		in     []config.Port
	}{
		{params("add"), []config.Port{f, row}},
		{params("multiply", "value", "2"), []config.Port{h}},
		{params("less"), []config.Port{f, row}},
		{params("exp"), []config.Port{f}},
		{params("clip", "low", "1"), []config.Port{i}},
		{params("sum", "axes", "0"), []config.Port{i}},
		{params("mean", "axes", "1"), []config.Port{h}},
		{params("argmax"), []config.Port{f}},
		{params("cast", "dtype", "FP64"), []config.Port{i}},
		{params("cast", "dtype", "INT8"), []config.Port{h}},
		{params("reshape", "dims", "15"), []config.Port{f}},
		{params("transpose"), []config.Port{f}},
		{params("slice", "slice", "1:, ::2"), []config.Port{f}},
		{params("concat", "axis", "1"), []config.Port{f, f, f, f, f}},
		{params("stack"), []config.Port{f, f}},
		{params("split", "sizes", "1,2"), []config.Port{f}},
		{params("gather"), []config.Port{f, port("I", tensor.Int32, 0)}},
		{params("where"), []config.Port{c, f, row}},
		{params("pad", "pads", "1,1,1,1"), []config.Port{f}},
		{params("one_hot", "depth", "9"), []config.Port{i}},
	} {
		run := batch(t, tt.params, 3, tt.in...)
		run()
		if n := testing.AllocsPerRun(100, run); n > 0 {
			t.Errorf("%v: %v allocations", tt.params, n)
		}
	}
}
