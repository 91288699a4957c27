package benchmark

import "time"

// Schedule returns the first n arrivals of a load.
func Schedule(l *Load, n int) []time.Duration {
	began := time.Unix(0, 0)
	a := newArrivals(l, began)
	var list []time.Duration
	for range n {
		_, at := a.take()
		list = append(list, at.Sub(began))
	}
	return list
}

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
