package python

import (
	"testing"
	"time"
)

// TestFailures checks that a burst of failures is logged, and then one per interval with the number of suppressed
// ones.
func TestFailures(t *testing.T) {
	t.Parallel()
	var f failureLog
	now := time.Unix(1, 0)
	for i := range failureBurst {
		if ok, hidden := f.admit(now); !ok || hidden != 0 {
			t.Fatalf("failure %d: logged %v, %d hidden", i, ok, hidden)
		}
	}
	for range 3 {
		if ok, _ := f.admit(now); ok {
			t.Error("more failures are logged at once than may be")
		}
	}
	now = now.Add(failureEvery)
	if ok, hidden := f.admit(now); !ok || hidden != 3 {
		t.Errorf("after a while: logged %v, %d hidden", ok, hidden)
	}
	if ok, _ := f.admit(now); ok {
		t.Error("another one at the same time is logged")
	}
	now = now.Add(time.Hour)
	for i := range failureBurst {
		if ok, hidden := f.admit(now); !ok || hidden != min(1-i, 1)*max(1-i, 0) {
			t.Fatalf("failure %d after long: logged %v, %d hidden", i, ok, hidden)
		}
	}
	if ok, _ := f.admit(now); ok {
		t.Error("rest adds up without limit")
	}
}
