package normalize_test

import (
	"math"
	"testing"

	"tutti/steps/normalize"
	"tutti/steps/steptest"
)

func TestStep(t *testing.T) {
	t.Parallel()
	one := func(v ...float32) []steptest.Value {
		return []steptest.Value{steptest.F32([]int64{1, int64(len(v))}, v...)}
	}
	nan := float32(math.NaN())
	steptest.Run(t, normalize.NewFactory(),
		steptest.Case{Name: "rows", MaxBatch: 8, Tolerance: 1e-7, Requests: []steptest.Request{
			{Inputs: one(3, -4), Want: one(0.6, -0.8)},
			{Inputs: one(0, 0), Want: one(0, 0)},
			{Inputs: one(1e30, 0), Want: one(1, 0)},
			{Inputs: one(nan, 1), Want: one(nan, nan)},
			{Inputs: one(1, 1, 1, 1), Want: one(0.5, 0.5, 0.5, 0.5)},
		}},
		steptest.Case{Name: "no batch", Requests: []steptest.Request{{
			Inputs: []steptest.Value{steptest.F32([]int64{2}, 0, -2)}, Want: []steptest.Value{steptest.F32([]int64{2}, 0, -1)},
		}}},
	)
}
