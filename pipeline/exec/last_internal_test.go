package exec

import "testing"

// TestLast checks when a wave's response is the final one: when nothing else is under way in any of the runs that it came
// from.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		root, middle     int32
		outer, innermost bool
	}{
		{"nothing else", 1, 1, true, true},
		{"another wave, or the step goes on", 2, 1, false, false},
		{"another wave of the wave's own step", 1, 2, true, false},
	} {
		root, middle, inner := &run{}, &run{}, &run{}
		root.underway.Store(tc.root)
		middle.underway.Store(tc.middle)
		middle.wave.up, inner.wave.up = root, middle
		if got := middle.last(); got != tc.outer {
			t.Errorf("%s: the outer wave is the last: %t, want %t", tc.name, got, tc.outer)
		}
		if got := inner.last(); got != tc.innermost {
			t.Errorf("%s: the inner wave is the last: %t, want %t", tc.name, got, tc.innermost)
		}
	}
}
