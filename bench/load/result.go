package load

import (
	"math"
	"slices"
	"time"
)

// Result is how a server bore a load.
type Result struct {
	Requests int           // answered well
	Errors   int           // answered otherwise, or not at all
	Elapsed  time.Duration // from the first arrival to the last answer
	// Throughput is the well answered requests per second.
	Throughput float64
	// The times from a request's arrival to the end of its answer, of the well answered ones.
	Mean, P50, P99, P999 time.Duration
	// First is one of the errors.
	First error
}

// newResult sums up what workers saw; it sorts the samples.
func newResult(samples []time.Duration, elapsed time.Duration) Result {
	r := Result{Requests: len(samples), Elapsed: elapsed}
	if len(samples) == 0 {
		return r
	}
	var sum time.Duration
	for _, s := range samples {
		sum += s
	}
	slices.Sort(samples)
	r.Throughput = float64(len(samples)) / elapsed.Seconds()
	r.Mean = sum / time.Duration(len(samples))
	r.P50, r.P99, r.P999 = Percentile(samples, 0.5), Percentile(samples, 0.99), Percentile(samples, 0.999)
	return r
}

// Percentile returns the smallest of the sorted samples that at least the share q of them do not exceed.
func Percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// A rank that is whole but for the rounding of q is meant to be whole.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
