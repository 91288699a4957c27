package benchmark

import "time"

// Schedule returns the first n arrivals of a load, on a grid unless that is 0.
func Schedule(l *Load, n int, grid time.Duration) []time.Duration {
	began := time.Unix(0, 0)
	a := newArrivals(l, began, grid)
	var list []time.Duration
	for range n {
		_, at := a.take()
		list = append(list, at.Sub(began))
	}
	return list
}

// Tick is the grid of a fast open loop.
const Tick = tick

// Summary returns the distribution of latencies.
func Summary(latencies ...time.Duration) Latency {
	r := recorder{now: newRecord(time.Now())}
	for _, l := range latencies {
		r.success(l)
	}
	return r.cut().summary()
}

// KindOf names the kind of an error.
func KindOf(err error) string {
	kind, _ := kindOf(err)
	return kind
}

// StudentT is the 0.975 quantile of Student's distribution.
var StudentT = studentT
