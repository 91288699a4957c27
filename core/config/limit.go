package config

import (
	"strconv"
	"time"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// limitParam is the parameter of an ensemble that says within how many milliseconds of its arrival a request must have its response. For
// example:
//
//	parameters { key: "ensemble.slo_ms" value { string_value: "150" } }
const limitParam = "ensemble.slo_ms"

// maxLimit is the longest limit in milliseconds: a day.
const maxLimit = 24 * 3600 * 1000

// timeLimit reads the limit.
func (b *branches) timeLimit() {
	v := b.value(limitParam)
	if ms, err := strconv.ParseFloat(v, 64); err != nil || !(ms > 0 && ms <= maxLimit) {
		b.fail(limitParam, "is %s, expected milliseconds above 0 and up to %d (a day), for example 150", quoteShort(v), maxLimit)
	}
}

// Limit returns how long after its arrival a request of an ensemble must have its response; 0 for any time.
func Limit(cfg *modelconfig.ModelConfig) time.Duration {
	ms, err := strconv.ParseFloat(cfg.GetParameters()[limitParam].GetStringValue(), 64)
	if err != nil || !(ms > 0 && ms <= maxLimit) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}
