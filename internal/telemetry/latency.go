package telemetry

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// observed selects a latency of a model whose summary may be exported.
type observed uint8

const (
	requestLatency observed = iota
	queueLatency
	inputLatency
	inferLatency
	outputLatency
	hitLatency
	missLatency
	numSummaries
)

// Quantile is a quantile that summaries estimate, with the allowed error of its rank. For example, {0.99, 0.001} is
// between the 98.9th and the 99.1st percentile.
type Quantile struct{ Rank, Error float64 }

// DefaultQuantiles returns Triton's quantiles.
func DefaultQuantiles() []Quantile {
	return []Quantile{{0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}}
}

// DefaultBuckets returns Triton's upper bounds of FirstResponse, in milliseconds.
func DefaultBuckets() []float64 { return []float64{100, 500, 2000, 5000} }

// The window of the summaries: a minute in five parts.
const (
	summaryAge   = time.Minute
	summaryParts = 5
)

// latencies are the distributions of a model; a nil member is not observed.
type latencies struct {
	summaries [numSummaries]prometheus.Summary
	first     *buckets // of ns
}

const nsPerMs = 1e6

func newLatencies(o *ExportOptions, s *Setup) *latencies {
	l := &latencies{}
	if o.Summaries {
		objectives := map[float64]float64{}
		for _, q := range o.Quantiles {
			objectives[q.Rank] = q.Error
		}
		for i := range l.summaries {
			l.summaries[i] = prometheus.NewSummary(prometheus.SummaryOpts{
				Name: "latency", Help: "Latency", Objectives: objectives, MaxAge: summaryAge, AgeBuckets: summaryParts,
			})
		}
	}
	if o.Histograms && s.Decoupled {
		bounds := s.FirstResponse
		if len(bounds) == 0 {
			bounds = DefaultBuckets()
		}
		l.first = newBuckets(bounds, nsPerMs)
	}
	return l
}

// observe adds one latency in nanoseconds.
func (l *latencies) observe(which observed, ns int64) {
	if s := l.summaries[which]; s != nil {
		s.Observe(float64(max(ns, 0)) / nsPerUs)
	}
}

func (l *latencies) request(total, queue int64, s Sums) {
	for which, ns := range [...]int64{requestLatency: total, queueLatency: queue, inputLatency: s.Input, inferLatency: s.Infer, outputLatency: s.Output} {
		l.observe(observed(which), ns)
	}
}

// buckets count values by upper bound.
type buckets struct {
	bounds []float64 // ascending
	unit   float64   // observed values are bounds times unit
	counts []atomic.Uint64
	sum    float
}

func newBuckets(bounds []float64, unit float64) *buckets {
	return &buckets{bounds: bounds, unit: unit, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (b *buckets) observe(v float64) {
	i, _ := slices.BinarySearch(b.bounds, v/b.unit)
	b.counts[i].Add(1)
	b.sum.add(v)
}

func (b *buckets) write(labels []*dto.LabelPair) *dto.Metric {
	all, sum := uint64(0), b.sum.load()/b.unit
	h := &dto.Histogram{SampleSum: &sum, SampleCount: &all}
	for i := range b.bounds {
		all += b.counts[i].Load()
		upTo := all
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &b.bounds[i], CumulativeCount: &upTo})
	}
	all += b.counts[len(b.bounds)].Load()
	return &dto.Metric{Histogram: h, Label: labels}
}

// float is an atomic number.
type float struct{ bits atomic.Uint64 }

func (f *float) load() float64 { return math.Float64frombits(f.bits.Load()) }

func (f *float) add(v float64) {
	for old := f.bits.Load(); !f.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)); old = f.bits.Load() {
	}
}

// exemplars are the latest values with a retained trace: one for each classic bucket of secondsScale, and one for
// larger values.
type exemplars []atomic.Pointer[dto.Exemplar]

// maxTraceID bounds the id of an exemplar: OpenMetrics allows 128 characters for its label and value together.
const maxTraceID = 119

// Exemplar links the latency of a request, in nanoseconds, to its trace. Call it only for retained traces: each
// call allocates. An empty id and an id of more than 119 characters are ignored.
func (m *Model) Exemplar(traceID string, ns int64) {
	if traceID == "" || len(traceID) > maxTraceID {
		return
	}
	e := m.exemplars.Load()
	if e == nil {
		made := make(exemplars, len(secondsScale.bounds)+1)
		m.exemplars.CompareAndSwap(nil, &made)
		e = m.exemplars.Load()
	}
	v, name := seconds(ns), "trace_id"
	i, _ := slices.BinarySearch(secondsScale.bounds, v)
	(*e)[i].Store(&dto.Exemplar{Label: []*dto.LabelPair{{Name: &name, Value: &traceID}}, Value: &v, Timestamp: timestamppb.Now()})
}

// addTo adds the exemplars, nil for none, to the buckets of h.
func (e *exemplars) addTo(h *dto.Histogram, native bool) {
	if e == nil {
		return
	}
	for i := range *e {
		x := (*e)[i].Load()
		if x == nil {
			continue
		}
		if i == len(h.GetBucket()) {
			inf := math.Inf(1)
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &inf, CumulativeCount: h.SampleCount})
		}
		h.Bucket[i].Exemplar = x
		if native {
			h.Exemplars = append(h.Exemplars, x)
		}
	}
}
