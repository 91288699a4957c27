package telemetry

import dto "github.com/prometheus/client_model/go"

// arena is the memory of one family of a scrape, reused for the next. A nil arena allocates everything, for callers
// that retain the result.
type arena struct {
	classic bool // histograms have no native buckets
	buckets slab[dto.Bucket]
	refs    slab[*dto.Bucket]
	counts  slab[uint64]
	metrics slab[metric]
	list    []*dto.Metric
	tally   tally
	bins    []uint64
}

// metric is a metric with the values that it points to.
type metric struct {
	dto.Metric
	counter   dto.Counter
	gauge     dto.Gauge
	histogram dto.Histogram
	value     float64
	sum       float64
	count     uint64
	zero      uint64
}

// slab allocates slices of one array.
type slab[T any] struct {
	all  []T
	used int
}

// take returns n elements, which are not cleared. Elements that do not fit are allocated separately, and the array
// is larger for the next family.
func (s *slab[T]) take(n int) []T {
	from := s.used
	if s.used += n; s.used > len(s.all) {
		return make([]T, n)
	}
	return s.all[from:s.used:s.used]
}

func (s *slab[T]) reset() {
	if s.used > len(s.all) {
		s.all = make([]T, s.used)
	}
	s.used = 0
}

func (a *arena) reset() {
	if a != nil {
		a.buckets.reset()
		a.refs.reset()
		a.counts.reset()
		a.metrics.reset()
	}
}

// newTally returns an empty tally of a scale, valid until the next call.
func (a *arena) newTally(s *scale) *tally {
	n := s.high - s.low + 1
	if a == nil {
		return &tally{scale: s, counts: make([]uint64, n)}
	}
	if len(a.bins) < n {
		a.bins = make([]uint64, n)
	}
	a.tally = tally{scale: s, counts: a.bins[:n]}
	clear(a.tally.counts)
	return &a.tally
}

func (a *arena) newMetric(labels []*dto.LabelPair) *metric {
	var m *metric
	if a == nil {
		m = new(metric)
	} else {
		m = &a.metrics.take(1)[0]
		m.Counter, m.Gauge, m.Histogram, m.Summary = nil, nil, nil, nil
	}
	m.Label = labels
	return m
}

// number returns a counter or a gauge.
func (a *arena) number(kind dto.MetricType, v float64, labels []*dto.LabelPair) *dto.Metric {
	m := a.newMetric(labels)
	m.value = v
	if kind == counter {
		m.counter.Value = &m.value
		m.Counter = &m.counter
	} else {
		m.gauge.Value = &m.value
		m.Gauge = &m.gauge
	}
	return &m.Metric
}

// bucketsOf returns n buckets, the pointers to them and their counts.
func (a *arena) bucketsOf(n int) ([]dto.Bucket, []*dto.Bucket, []uint64) {
	if a == nil {
		return make([]dto.Bucket, n), make([]*dto.Bucket, n, n+1), make([]uint64, n)
	}
	return a.buckets.take(n), a.refs.take(n), a.counts.take(n)
}

// newList returns an empty list of metrics for about n models.
func (a *arena) newList(n int) []*dto.Metric {
	if a == nil {
		return make([]*dto.Metric, 0, n)
	}
	return a.list[:0]
}

// keep stores the memory of a list for the next family.
func (a *arena) keep(list []*dto.Metric) []*dto.Metric {
	if a != nil {
		a.list = list
	}
	return list
}
