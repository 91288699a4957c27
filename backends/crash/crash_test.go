package crash_test

import (
	"testing"
	"time"

	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/status"
)

func TestDelay(t *testing.T) {
	t.Parallel()
	for ended, want := range map[int32]time.Duration{
		0: 0, 1: 0, 2: 100 * time.Millisecond, 3: 200 * time.Millisecond, 10: 25600 * time.Millisecond, 11: 30 * time.Second, 1 << 30: 30 * time.Second,
	} {
		if got := crash.Delay(ended); got != want {
			t.Errorf("after %d ends: %v, want %v", ended, got, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	err := crash.Refusal("m", 2100*time.Millisecond, "signal: killed")
	const want = "model 'm': the process of the instance is started again in 3s, it ended: signal: killed; send the request again then"
	if status.CodeOf(err) != status.Unavailable || status.RetryAfter(err) != 3*time.Second || status.Text(err) != want {
		t.Errorf("%v: %q, to be sent again after %v; want %q", status.CodeOf(err), status.Text(err), status.RetryAfter(err), want)
	}
}
