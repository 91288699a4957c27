package telemetry

import "time"

var start = time.Now()

// Now returns a monotonic time in nanoseconds, good for differences within the process only.
func Now() int64 { return int64(time.Since(start)) }

// At returns what Now returns, or returned, at t.
func At(t time.Time) int64 { return int64(t.Sub(start)) }
