package ring

import (
	"math/bits"
	"sync"
	"time"
)

// buckets is how many classes of durations there are: four per power of two.
const buckets = 4 * 44

// model is what is known about the requests and steps of a model. All is guarded by mu.
type model struct {
	mu      sync.Mutex
	usual   int64 // an estimate of the 99th percentile of requests
	seen    uint32
	minute  int64
	slowest int64 // of the minute
	windows [windows]window
}

// windows is how many there are of windowNs each: the last minute and what is at hand.
const (
	windows  = 7
	windowNs = int64(10 * time.Second)
)

// window counts the durations of a stretch of time by class.
type window struct {
	number  int64
	classes [buckets]uint32
}

// learning is how many requests of a model are seen before any is slow by its usual
// duration.
const learning = 200

// slow notes the duration of one request and reports whether it is slow: the slowest of
// its minute so far, or beyond the 99th percentile as it is known.
func (m *model) slow(took, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	beyond := m.seen > learning && took > m.usual
	m.learn(took)
	minute := now / int64(time.Minute)
	if minute != m.minute {
		m.minute, m.slowest = minute, -1
	}
	if took <= m.slowest {
		return beyond
	}
	m.slowest = took
	return true
}

// learn moves the estimate: up by much when one in a hundred should, down by little
// otherwise, so that it rests where one in a hundred is beyond. Steps are a part of
// the estimate, wide at first.
func (m *model) learn(took int64) {
	if m.seen == 0 {
		m.usual = took
	}
	if m.seen <= learning {
		m.seen++
		m.usual = max(m.usual, took)
		return
	}
	step := max(m.usual/50, 1)
	if took > m.usual {
		m.usual += step
	} else {
		m.usual -= step / 99
	}
}

// observe counts the duration of one request or step.
func (m *model) observe(took, now int64) {
	number := now / windowNs
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &m.windows[number%windows]
	if w.number != number {
		*w = window{number: number}
	}
	w.classes[class(took)]++
}

// class returns the class of a duration.
func class(ns int64) int {
	if ns < 8 {
		return 0
	}
	e := bits.Len64(uint64(ns))
	return min((e-3)*4+int(uint64(ns)>>(e-3)&3), buckets-1)
}

// middle returns a duration in the middle of a class.
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

// quantile returns a duration that the given share does not exceed, to an eighth.
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
