package ring

import (
	"math/bits"
	"sync"
	"time"
)

// buckets is the number of classes of durations: four per power of two.
const buckets = 4 * 44

// model holds the durations of a model's requests and steps. All is guarded by mu.
type model struct {
	mu      sync.Mutex
	p99     int64 // an estimate of the 99th percentile of requests
	seen    uint32
	minute  int64
	slowest int64 // slowest of the minute
	windows [windows]window
}

// A model has windows of windowNs each: the last minute and the current one.
const (
	windows  = 7
	windowNs = int64(10 * time.Second)
)

// window counts the durations of one interval by class.
type window struct {
	number  int64
	classes [buckets]uint32
}

// learning is the number of requests of a model before its 99th percentile is used.
const learning = 200

// slow counts the duration of one request and reports whether it is slow: the slowest of its minute so far, or
// above the estimated 99th percentile.
func (m *model) slow(duration, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	beyond := m.seen > learning && duration > m.p99
	m.learn(duration)
	minute := now / int64(time.Minute)
	if minute != m.minute {
		m.minute, m.slowest = minute, -1
	}
	if duration <= m.slowest {
		return beyond
	}
	m.slowest = duration
	return true
}

// learn updates the estimate: up by a large step after a longer duration, down by a 99th of that step otherwise. It
// is therefore stable where one in a hundred durations is longer. For example, an estimate of 100 ms moves up by 2
// ms and down by 0.02 ms.
func (m *model) learn(duration int64) {
	if m.seen == 0 {
		m.p99 = duration
	}
	if m.seen <= learning {
		m.seen++
		m.p99 = max(m.p99, duration)
		return
	}
	step := max(m.p99/50, 1)
	if duration > m.p99 {
		m.p99 += step
	} else {
		m.p99 -= step / 99
	}
}

// observe counts the duration of one request or step.
func (m *model) observe(duration, now int64) {
	number := now / windowNs
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &m.windows[number%windows]
	if w.number != number {
		*w = window{number: number}
	}
	w.classes[class(duration)]++
}

// class returns the class of a duration.
func class(ns int64) int {
	if ns < 8 {
		return 0
	}
	e := bits.Len64(uint64(ns))
	return min((e-3)*4+int(uint64(ns)>>(e-3)&3), buckets-1)
}

// middle returns the middle of a class.
func middle(c int) int64 {
	e := c/4 + 3
	low := int64(4+c%4) << (e - 3)
	return low + int64(1)<<(e-3)/2
}

// quantiles returns the median and the 99th percentile of the last minute.
func (m *model) quantiles(now int64) (p50, p99 int64) {
	number := now / windowNs
	var classes [buckets]uint64
	m.mu.Lock()
	for i := range m.windows {
		w := &m.windows[i]
		if w.number <= number-windows {
			continue
		}
		for c, n := range w.classes {
			classes[c] += uint64(n)
		}
	}
	m.mu.Unlock()
	return quantile(&classes, 0.5), quantile(&classes, 0.99)
}

// quantile returns the duration that the given share does not exceed, with an error of at most an eighth.
func quantile(classes *[buckets]uint64, share float64) int64 {
	total := uint64(0)
	for _, k := range classes {
		total += k
	}
	want, sum := uint64(share*float64(total)), uint64(0)
	for c, k := range classes {
		if sum += k; sum > want {
			return middle(c)
		}
	}
	return 0
}
