package telemetry

import (
	"math"
	"slices"
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"
)

// The buckets of distributions are those of Prometheus' native histograms of schema 2:
// bucket k holds the values above 2^((k-1)/4) up to 2^(k/4). For example, bucket 4 holds those above 1.68 up to 2.
const (
	nativeSchema = 2
	perOctave    = 1 << nativeSchema
)

// The mantissas of 2^(1/4), 2^(2/4) and 2^(3/4), as they are in the bits of a float.
const (
	mantissaBits = 52
	mantissaMask = 1<<mantissaBits - 1
	exponentBias = 1023
)

var quarters = [perOctave - 1]uint64{
	math.Float64bits(math.Exp2(0.25)) & mantissaMask,
	math.Float64bits(math.Exp2(0.5)) & mantissaMask,
	math.Float64bits(math.Exp2(0.75)) & mantissaMask,
}

// bucketOf returns the number of the bucket of v, which must be positive.
//
// hot: without a branch, for the values of a queue cannot be foreseen.
func bucketOf(v float64) int {
	const sign = 63 // the bit that says that a difference is negative
	bits := math.Float64bits(v)
	m := bits & mantissaMask
	more := -m>>sign + (quarters[0]-m)>>sign + (quarters[1]-m)>>sign + (quarters[2]-m)>>sign
	return (int(bits>>mantissaBits)-exponentBias)*perOctave + int(more)
}

// scale is the bucket layout of a kind of distributions.
type scale struct {
	// low and high are the numbers of the lowest and the highest bucket. Values beyond them count in these.
	low, high int
	// classic are the ascending numbers of the buckets whose upper bounds are classic bounds, below high; bounds
	// are their values.
	classic []int
	bounds  []float64
	zero    bool // adds a classic bucket for values of 0 or less
}

// newScale returns the scale of powers of two with classic bounds at the given exponents. It ends two octaves above
// the highest, so that larger values are still distinguished.
func newScale(zero bool, exponents ...int) *scale {
	const below, above = 4, 2
	s := &scale{low: (exponents[0] - below) * perOctave, high: (exponents[len(exponents)-1] + above) * perOctave, zero: zero}
	if zero {
		s.bounds = append(s.bounds, 0)
	}
	for _, e := range exponents {
		s.classic = append(s.classic, e*perOctave)
		s.bounds = append(s.bounds, math.Exp2(float64(e)))
	}
	return s
}

// newRatioScale returns the scale of ratios around 1, from 1/16 to 16: classic bounds are a quarter of an octave apart near 1.
func newRatioScale() *scale {
	s := &scale{low: -4 * perOctave, high: 4 * perOctave}
	for _, bucket := range []int{-8, -4, -3, -2, -1, 0, 1, 2, 3, 4, 8} {
		s.classic = append(s.classic, bucket)
		s.bounds = append(s.bounds, math.Exp2(float64(bucket)/perOctave))
	}
	return s
}

// The scales: of seconds, from a microsecond to four minutes; of requests that wait; of
// rows; of shares; of ratios; and of seconds that are left, which may be none.
var (
	secondsScale = newScale(false, -20, -18, -16, -14, -12, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 2, 4, 6)
	depthScale   = newScale(true, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
	batchScale   = newScale(false, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	shareScale   = newScale(true, -6, -5, -4, -3, -2, -1, 0)
	ratioScale   = newRatioScale()
	slackScale   = newScale(true, -10, -8, -6, -4, -3, -2, -1, 0, 1, 2, 4, 6, 8)
)

func (s *scale) at(v float64) int { return min(max(bucketOf(v), s.low), s.high) - s.low }

// dist counts values by bucket. The zero value is ready to use; the first value allocates its memory.
type dist struct {
	counts atomic.Pointer[buckets64]
}

// buckets64 are the counters of a distribution. They are an array of the largest scale's size: a slice would add a
// memory access.
type buckets64 [maxBuckets]atomic.Uint64

const maxBuckets = 136

// observe counts a positive value.
//
// hot: one atomic add.
func (d *dist) observe(s *scale, v float64) {
	p := d.counts.Load()
	if p == nil {
		d.counts.CompareAndSwap(nil, new(buckets64))
		p = d.counts.Load()
	}
	p[s.at(v)].Add(1)
}

func (d *dist) used() bool { return d.counts.Load() != nil }

func (d *dist) count() (n uint64) {
	if p := d.counts.Load(); p != nil {
		for i := range p {
			n += p[i].Load()
		}
	}
	return n
}

// summed is a dist with the sum of its values, in a unit of the owner.
type summed struct {
	dist
	sum atomic.Uint64
}

// add counts a positive value, which is n units.
func (d *summed) add(s *scale, v float64, n int64) {
	d.observe(s, v)
	d.sum.Add(uint64(n))
}

// tally returns the distribution, nil when no value was counted. unit is the number of units in 1.
func (d *summed) tally(a *arena, s *scale, unit float64) *tally {
	if !d.used() {
		return nil
	}
	t := a.newTally(s)
	t.add(&d.dist)
	t.sum = float64(d.sum.Load()) / unit
	return t
}

// zeroed is a summed that also counts values of 0 or less.
type zeroed struct {
	summed
	zeros atomic.Uint64
}

// addOrZero counts a value, which is n units.
func (d *zeroed) addOrZero(s *scale, v float64, n int64) {
	if v > 0 {
		d.add(s, v, n)
	} else {
		d.zeros.Add(1)
	}
}

// tally returns the distribution, nil when no value was counted.
func (d *zeroed) tally(a *arena, s *scale, unit float64) *tally {
	zeros, t := d.zeros.Load(), d.summed.tally(a, s, unit)
	if t == nil && zeros > 0 {
		t = a.newTally(s)
	}
	if t != nil {
		t.put(0, zeros)
	}
	return t
}

// tally is a snapshot of a distribution.
type tally struct {
	scale  *scale
	counts []uint64 // by bucket, from scale.low
	zero   uint64   // number of values of 0 or less
	all    uint64
	sum    float64
}

// add adds the counts of d.
func (t *tally) add(d *dist) {
	p := d.counts.Load()
	if p == nil {
		return
	}
	for i := range t.counts {
		n := p[i].Load()
		t.counts[i] += n
		t.all += n
	}
}

func (t *tally) put(v float64, n uint64) {
	if t.all += n; v <= 0 {
		t.zero += n
		return
	}
	t.counts[t.scale.at(v)] += n
}

func (t *tally) fill(n uint64) {
	if n > t.all {
		t.zero += n - t.all
		t.all = n
	}
}

// histogram returns the tally as a classic histogram, with native buckets if the arena allows them.
func (t *tally) histogram(a *arena, labels []*dto.LabelPair, seen *exemplars) *dto.Metric {
	n, m := len(t.scale.bounds), a.newMetric(labels)
	h, native := &m.histogram, a == nil || !a.classic
	m.sum, m.count, m.Histogram = t.sum, t.all, h
	m.buckets, m.cumulative = slices.Grow(m.buckets[:0], n)[:n], slices.Grow(m.cumulative[:0], n)[:n]
	m.refs = slices.Grow(m.refs[:0], n+1)[:n]
	h.SampleCount, h.SampleSum, h.Bucket = &m.count, &m.sum, m.refs
	sum, next, at := t.zero, 0, 0
	for i := range n {
		if !t.scale.zero || i > 0 {
			for ; next <= t.scale.classic[at]-t.scale.low; next++ {
				sum += t.counts[next]
			}
			at++
		}
		b := &m.buckets[i]
		m.cumulative[i], m.refs[i] = sum, b
		b.UpperBound, b.CumulativeCount, b.Exemplar = &t.scale.bounds[i], &m.cumulative[i], nil
	}
	h.Exemplars, h.PositiveSpan, h.PositiveDelta, m.zero = h.Exemplars[:0], h.PositiveSpan[:0], h.PositiveDelta[:0], t.zero
	seen.addTo(h, native)
	if native {
		h.Schema, h.ZeroThreshold, h.ZeroCount = &schema, &zeroThreshold, &m.zero
		t.native(h)
	}
	return &m.Metric
}

// What native histograms have in common.
var (
	schema        = int32(nativeSchema)
	zeroThreshold = 0x1p-128
)

// native adds the sparse buckets of a native histogram.
func (t *tally) native(h *dto.Histogram) {
	last, end := int64(0), 0 // the count of the bucket before, and the number after it
	for i, n := range t.counts {
		if n == 0 {
			continue
		}
		k := i + t.scale.low
		if len(h.GetPositiveSpan()) == 0 || k != end {
			addSpan(h, int32(k-end))
		}
		*h.PositiveSpan[len(h.GetPositiveSpan())-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, int64(n)-last)
		last, end = int64(n), k+1
	}
	if len(h.GetPositiveSpan()) == 0 { // an empty span marks a native histogram
		addSpan(h, 0)
	}
}

// addSpan adds an empty span and reuses one of h's previous use if possible.
func addSpan(h *dto.Histogram, offset int32) {
	n := len(h.GetPositiveSpan())
	h.PositiveSpan = slices.Grow(h.PositiveSpan, 1)[:n+1]
	if s := h.GetPositiveSpan()[n]; s != nil {
		*s.Offset, *s.Length = offset, 0
	} else {
		h.PositiveSpan[n] = &dto.BucketSpan{Offset: &offset, Length: new(uint32)}
	}
}

// arena is the memory of one family of a scrape, reused for the next. A nil arena allocates everything, for callers
// that retain the result.
type arena struct {
	classic bool // histograms have no native buckets
	metrics []*metric
	used    int // number of the family's metrics
	list    []*dto.Metric
	tally   tally
	bins    []uint64
}

// metric is a metric with the values that it points to.
type metric struct {
	dto.Metric
	counter    dto.Counter
	gauge      dto.Gauge
	histogram  dto.Histogram
	value, sum float64
	count      uint64
	zero       uint64
	buckets    []dto.Bucket
	refs       []*dto.Bucket
	cumulative []uint64
}

// newTally returns an empty tally of a scale, valid until the next call.
func (a *arena) newTally(s *scale) *tally {
	n := s.high - s.low + 1
	if a == nil {
		return &tally{scale: s, counts: make([]uint64, n)}
	}
	a.bins = slices.Grow(a.bins[:0], n)
	a.tally = tally{scale: s, counts: a.bins[:n]}
	clear(a.tally.counts)
	return &a.tally
}

func (a *arena) newMetric(labels []*dto.LabelPair) *metric {
	if a == nil {
		a = &arena{}
	}
	if a.used == len(a.metrics) {
		a.metrics = append(a.metrics, new(metric))
	}
	m := a.metrics[a.used]
	a.used++
	m.Counter, m.Gauge, m.Histogram, m.Label = nil, nil, nil, labels
	return m
}

func (a *arena) number(kind dto.MetricType, v float64, labels []*dto.LabelPair) *dto.Metric {
	m := a.newMetric(labels)
	m.value = v
	if kind == counter {
		m.counter.Value, m.Counter = &m.value, &m.counter
	} else {
		m.gauge.Value, m.Gauge = &m.value, &m.gauge
	}
	return &m.Metric
}
