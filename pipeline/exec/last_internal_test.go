package exec

import "testing"

// TestLast checks that a sub-run's response is the final one when no run that it came from has
// another active task.
func TestLast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		root, middle     int32
		outer, innermost bool
	}{
		{"nothing else", 1, 1, true, true},
		{"another sub-run, or the step goes on", 2, 1, false, false},
		{"another sub-run of the sub-run's own step", 1, 2, true, false},
	} {
		root, middle, inner := &run{sub: &subRun{}}, &run{sub: &subRun{}}, &run{sub: &subRun{}}
		root.active.Store(tc.root)
		middle.active.Store(tc.middle)
		middle.sub.parent, inner.sub.parent = root, middle
		if got := middle.isLast(); got != tc.outer {
			t.Errorf("%s: the outer sub-run is the last: %t, want %t", tc.name, got, tc.outer)
		}
		if got := inner.isLast(); got != tc.innermost {
			t.Errorf("%s: the inner sub-run is the last: %t, want %t", tc.name, got, tc.innermost)
		}
	}
}
