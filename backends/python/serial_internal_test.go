package python

import (
	"testing"
	"time"
)

// TestSerialLimit checks how many requests one call may have: by the time that requests take, and one for a model that calls others, and while an
// instance has no worker.
func TestSerialLimit(t *testing.T) {
	t.Parallel()
	m := &model{serialTime: serialTime}
	check := func(after string, want int) {
		t.Helper()
		if n := m.Serial(); n != want {
			t.Errorf("%s: %d requests, want %d", after, n, want)
		}
	}
	times := func(d time.Duration, n int) {
		for range n {
			m.took(4*int64(d), 4)
		}
	}
	check("before an execution", 1)
	times(serialTime/4, 1)
	check("after an execution that took a quarter of the time", 4)
	times(time.Hour, 1)
	check("after an outlier", 2)
	times(time.Microsecond, 100)
	check("after short executions", mostSerial)
	times(time.Second, 100)
	check("after long executions", 1)
	times(time.Microsecond, 1000)
	check("after short executions again", mostSerial)
	down := &instance{m: m, life: t.Context(), restarter: time.NewTimer(time.Hour)}
	down.died("it exited", false)
	down.died("it exited", false)
	check("without a worker", 1)
	down.use(nil)
	check("with a worker again", mostSerial)
	s := &side{w: &worker{m: m}, ctx: t.Context()}
	s.openCall(1)
	check("after a call of another model", 1)
}
