package telemetry

import "time"

var start = time.Now()

// Now returns a monotonic time in nanoseconds. Only differences within the process have a meaning.
func Now() int64 { return int64(time.Since(start)) }

// At returns the value of Now at time t.
func At(t time.Time) int64 { return int64(t.Sub(start)) }
