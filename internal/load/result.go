package load

import (
	"math"
	"slices"
	"time"
)

// Result summarises one run of load against a server.
type Result struct {
	Requests int           // requests with a successful response
	Errors   int           // requests with an error, or without a response
	Elapsed  time.Duration // from the first arrival to the last response
	// Throughput is the number of successful requests per second.
	Throughput float64
	// Latencies of the successful requests, from arrival to the end of the response.
	Mean, P50, P99, P999 time.Duration
	Latencies            []time.Duration // each of them, ascending
	// Failures are the times from arrival to the error of the requests that were sent and failed, ascending.
	Failures []time.Duration
	// FailuresSent are the times of the same requests from when a client sent them, ascending: without the time in which the run was late.
	FailuresSent []time.Duration
	// First is an error of one of the failed requests, or nil.
	First error
}

// newResult summarises the clients' samples. It sorts samples.
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
	r.Latencies = samples
	r.Throughput = float64(len(samples)) / elapsed.Seconds()
	r.Mean = sum / time.Duration(len(samples))
	r.P50, r.P99, r.P999 = Percentile(samples, 0.5), Percentile(samples, 0.99), Percentile(samples, 0.999)
	return r
}

// Percentile returns the smallest sample that is not exceeded by a share q of all samples, which must be sorted.
// For example, q 0.99 gives p99.
func Percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// The subtraction undoes the rounding of q, so that a whole rank stays whole.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
