package infer

import (
	"strconv"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// TimeLimitHeader is the key of the gRPC metadata, and the name of the HTTP header, that says within how many milliseconds a request must
// have its response, for example "150" or "2.5". A request that cannot is refused.
const TimeLimitHeader = "tutti-timeout-ms"

// longestLimit is the longest time limit in milliseconds, a day. A longer one is none: no request takes so long.
const longestLimit = 24 * 3600 * 1000

// SetTimeLimit follows the values of TimeLimitHeader, of which the least counts. now is on the clock of telemetry.Now. A value that is no
// number above 0 is InvalidArg.
func (m *Meta) SetTimeLimit(values []string, now int64) error {
	for _, v := range values {
		ms, err := strconv.ParseFloat(v, 64)
		if err != nil || !(ms > 0) {
			return status.Errorf(status.InvalidArg, "header '%s' is %.40q, expected milliseconds above 0, for example 150", TimeLimitHeader, v)
		}
		if ms > longestLimit {
			continue
		}
		if d := now + int64(ms*float64(time.Millisecond)); m.Deadline == 0 || d < m.Deadline {
			m.Deadline = max(d, 1)
		}
	}
	return nil
}
