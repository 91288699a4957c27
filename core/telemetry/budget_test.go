//go:build !race

package telemetry_test

import (
	"testing"

	"tutti/core/telemetry"
)

// TestModelAllocBudget is not parallel, for the runtime counts everybody's allocations.
func TestModelAllocBudget(t *testing.T) {
	m := &telemetry.Model{}
	times := &telemetry.Times{Start: 1, InputEnd: 2, InferEnd: 4, End: 7}
	sums := &telemetry.Sums{Infer: 1}
	if got := testing.AllocsPerRun(100, func() {
		for _, rows := range []int{1, 63, 64, 500} {
			m.Queued(1)
			m.Executed(rows, times)
			m.Succeeded(rows, telemetry.Now(), times)
			m.SucceededSum(rows, 1, 2, sums)
			m.Failed(telemetry.Backend, 1)
		}
	}); got != 0 {
		t.Errorf("%v allocations, want none once every batch size was seen", got)
	}
}
