//go:build !race

// Under the race detector pools drop what they are given at random.

package stringop_test

import "testing"

// TestAllocBudget: what RE2 finds groups with, and what case outside of ASCII takes, is
// allocated; nothing else.
func TestAllocBudget(t *testing.T) {
	for _, params := range []map[string]string{
		{"op": "lower"},
		{"op": "upper"},
		{"op": "strip"},
		{"op": "length"},
		{"op": "match", "pattern": "b+"},
		{"op": "join"},
		{"op": "split", "fields": "3"},
		{"op": "base64_encode"},
	} {
		f := run(t, params, "Abba a", "Ubel", "")
		if n := testing.AllocsPerRun(100, f); n > 0 {
			t.Errorf("%v: %v allocations", params, n)
		}
	}
}
