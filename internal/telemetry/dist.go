package telemetry

import (
	"math"
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
	// zero adds a classic bucket for values of 0 or less.
	zero bool
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

// The scales: of seconds, from a microsecond to four minutes; of requests that wait; of
// rows; of shares; and of seconds that are left, which may be none.
var (
	secondsScale = newScale(false, -20, -18, -16, -14, -12, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 2, 4, 6)
	depthScale   = newScale(true, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
	batchScale   = newScale(false, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	shareScale   = newScale(true, -6, -5, -4, -3, -2, -1, 0)
	slackScale   = newScale(true, -10, -8, -6, -4, -3, -2, -1, 0, 1, 2, 4, 6, 8)
)

// at returns the index of a positive value's bucket, from 0.
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
		p = d.begin()
	}
	p[s.at(v)].Add(1)
}

func (d *dist) begin() *buckets64 {
	d.counts.CompareAndSwap(nil, new(buckets64))
	return d.counts.Load()
}

// used reports whether any value was counted.
func (d *dist) used() bool { return d.counts.Load() != nil }

// timed is a dist of nanoseconds with their sum, for owners that do not store the sum elsewhere.
type timed struct {
	dist
	ns atomic.Uint64
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

// put adds n values v.
func (t *tally) put(v float64, n uint64) {
	if t.all += n; v <= 0 {
		t.zero += n
		return
	}
	t.counts[t.scale.at(v)] += n
}

// fill adds zeros until the tally has n values.
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
	buckets, refs, cumulative := a.bucketsOf(n)
	h.SampleCount, h.SampleSum, h.Bucket = &m.count, &m.sum, refs
	sum, next, at := t.zero, 0, 0
	for i := range n {
		if !t.scale.zero || i > 0 {
			for ; next <= t.scale.classic[at]-t.scale.low; next++ {
				sum += t.counts[next]
			}
			at++
		}
		cumulative[i] = sum
		buckets[i].UpperBound, buckets[i].CumulativeCount, buckets[i].Exemplar = &t.scale.bounds[i], &cumulative[i], nil
		h.Bucket[i] = &buckets[i]
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
	if n < cap(h.GetPositiveSpan()) {
		h.PositiveSpan = h.GetPositiveSpan()[:n+1]
		if s := h.GetPositiveSpan()[n]; s != nil {
			*s.Offset, *s.Length = offset, 0
			return
		}
		h.PositiveSpan = h.GetPositiveSpan()[:n]
	}
	h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &offset, Length: new(uint32)})
}
