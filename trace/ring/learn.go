package ring

import (
	"math/bits"
	"sync"
	"time"
)

// seconds is how far back a model's figures go.
const seconds = 60

// buckets is how many classes of durations there are: four per power of two.
const buckets = 4 * 44

// model is what is known about the requests and steps of a model. All is guarded by mu.
type model struct {
	mu      sync.Mutex
	usual   int64 // an estimate of the 99th percentile of requests
	seen    uint32
	minute  int64
	slowest int64 // of the minute
	slots   [seconds]slot
}

// slot is one second.
type slot struct {
	second         int64
	n, failed      uint32
	batches, rows  uint32
	queue, compute int64
	classes        [buckets]uint16
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

// observe counts one request or step.
func (m *model) observe(o *observation) {
	second := o.at / int64(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.slots[second%seconds]
	if s.second != second {
		*s = slot{second: second}
	}
	s.n++
	if o.failed {
		s.failed++
	}
	if o.rows > 0 {
		s.batches++
		s.rows += uint32(o.rows)
	}
	s.queue += o.queue
	s.compute += o.compute
	if c := &s.classes[class(o.took)]; *c < 1<<16-1 {
		*c++
	}
}

// observation is what one request or step is to its model's figures.
type observation struct {
	at, took, queue, compute int64
	rows                     int32
	failed                   bool
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

// Figures are those of a model's requests and steps in the last minute, rates by second.
type Figures struct {
	Rate, Errors, BatchRows          float64
	P50Ns, P99Ns, QueueNs, ComputeNs int64
	// Rates is that of each second, the oldest first; the second at hand is not in it.
	Rates []float64
}

// figures sums the last minute up.
func (m *model) figures(now int64) Figures {
	second := now / int64(time.Second)
	f := Figures{Rates: make([]float64, seconds-1)}
	var n, failed, batches, rows uint64
	var queue, compute int64
	var classes [buckets]uint64
	m.mu.Lock()
	for i := range f.Rates {
		s := &m.slots[(second-int64(seconds)+1+int64(i)+seconds)%seconds]
		if s.second != second-int64(seconds)+1+int64(i) {
			continue
		}
		f.Rates[i] = float64(s.n)
		n, failed, batches, rows = n+uint64(s.n), failed+uint64(s.failed), batches+uint64(s.batches), rows+uint64(s.rows)
		queue, compute = queue+s.queue, compute+s.compute
		for c, k := range s.classes {
			classes[c] += uint64(k)
		}
	}
	m.mu.Unlock()
	if n == 0 {
		return f
	}
	f.Rate, f.Errors = float64(n)/(seconds-1), float64(failed)/(seconds-1)
	if batches > 0 {
		f.BatchRows = float64(rows) / float64(batches)
	}
	f.QueueNs, f.ComputeNs = queue/int64(n), compute/int64(n)
	f.P50Ns, f.P99Ns = quantile(&classes, 0.5), quantile(&classes, 0.99)
	return f
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
