package classify_test

import (
	"math"
	"testing"

	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestNaNWithTemperature checks that a NaN score stays NaN when the scores are divided in the memory of the values.
func TestNaNWithTemperature(t *testing.T) {
	nan := float32(math.NaN())
	steptest.Run(t, classify.NewScoresFactory(), steptest.Case{
		Params: map[string]string{"temperature": "2"},
		Requests: []steptest.Request{{
			Inputs: []steptest.Value{steptest.F32([]int64{3}, 0, nan, 0)}, Want: []steptest.Value{steptest.F32([]int64{3}, 0.5, nan, 0.5)},
		}},
	})
}
