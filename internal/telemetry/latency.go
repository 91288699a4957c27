package telemetry

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// observed selects a latency of a model whose distribution may be exported.
type observed uint8

const (
	noLatency observed = iota
	requestLatency
	queueLatency
	inputLatency
	inferLatency
	outputLatency
	hitLatency
	missLatency
	numSummaries
	firstResponse
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
	first     *buckets
}

func newLatencies(o *ExportOptions, s *Setup) *latencies {
	l := &latencies{}
	if o.Summaries {
		objectives := map[float64]float64{}
		for _, q := range o.Quantiles {
			objectives[q.Rank] = q.Error
		}
		for i := requestLatency; i < numSummaries; i++ {
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
		l.first = &buckets{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	}
	return l
}

// observe adds one latency in nanoseconds.
func (l *latencies) observe(which observed, ns int64) {
	if s := l.summaries[which]; s != nil {
		s.Observe(float64(max(ns, 0)) / nsPerUs)
	}
}

// request adds the phases of one successful request.
func (l *latencies) request(total, queue, input, infer, output int64) {
	l.observe(requestLatency, total)
	l.observe(queueLatency, queue)
	l.observe(inputLatency, input)
	l.observe(inferLatency, infer)
	l.observe(outputLatency, output)
}

// buckets is a histogram.
type buckets struct {
	bounds []float64 // ascending
	counts []atomic.Uint64
	ns     atomic.Uint64
}

const nsPerMs = 1e6

func (b *buckets) observe(ns int64) {
	i, _ := slices.BinarySearch(b.bounds, float64(ns)/nsPerMs)
	b.counts[i].Add(1)
	b.ns.Add(uint64(max(ns, 0)))
}

func (b *buckets) write() *dto.Histogram {
	counts := make([]uint64, len(b.counts))
	for i := range b.counts {
		counts[i] = b.counts[i].Load()
	}
	return newHistogram(b.bounds, counts, float64(b.ns.Load())/nsPerMs)
}

// newHistogram makes a histogram of the count below each bound, and above the last.
func newHistogram(bounds []float64, counts []uint64, sum float64) *dto.Histogram {
	h := &dto.Histogram{SampleSum: &sum}
	all := uint64(0)
	for i := range bounds {
		all += counts[i]
		so := all
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &bounds[i], CumulativeCount: &so})
	}
	all += counts[len(bounds)]
	h.SampleCount = &all
	return h
}
