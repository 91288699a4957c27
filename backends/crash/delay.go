// Package crash is what the backends that run models in processes share: when a process is started again after it has ended, and which requests
// end processes. The backends python, isolate and tritonlib use it.
//
//	delay.go     when a process is started again
//	keeper.go    starts a process again whenever it ends
//	requests.go  the requests that end processes, and their report
//	counters.go  metrics of processes
package crash

import (
	"time"

	"github.com/tutti-server/tutti/core/status"
)

const (
	firstDelay = 100 * time.Millisecond
	mostDelay  = 30 * time.Second
	// Patience is how long a request waits for a start that has not begun. With more to wait it fails.
	Patience = time.Second
)

// Delay returns the time to wait before a process is started again. ended is how many have ended since the last request that succeeded.
// There is no delay after the first, then 100 ms, and twice as long each time, up to 30 s.
func Delay(ended int32) time.Duration {
	if ended < 2 {
		return 0
	}
	return min(firstDelay<<min(ended-2, 16), mostDelay)
}

// Refusal returns the error of a request that does not wait for a start in the given time. why is the end of the last process.
func Refusal(model string, left time.Duration, why string) error {
	left = left.Round(time.Second) + time.Second
	return &status.Error{
		Code: status.Unavailable, Reason: status.InstanceLost, RetryAfter: left,
		Msg: "model '" + model + "': the process of the instance is started again in " + left.String() + ", it ended: " + why + "; send the request again then",
	}
}
