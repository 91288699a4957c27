//go:build !race

package sequence_test

import "testing"

// TestAllocBudget checks the allocations of a request. It is not parallel: other tests' allocations would count.
func TestAllocBudget(t *testing.T) {
	for name, strategy := range map[string]string{"direct": "direct {}", "oldest": "oldest {}"} {
		t.Run(name, func(t *testing.T) {
			run := rounds(t, strategy, 8)
			run()
			if n := testing.AllocsPerRun(100, run); n != 0 {
				t.Errorf("%v allocations for 24 requests of 8 sequences, want none", n)
			}
		})
	}
}
