package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
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

// CustomKind is the kind of a family that a model declares.
type CustomKind uint8

// The kinds of families that models declare.
const (
	CustomCounter CustomKind = iota
	CustomGauge
	CustomHistogram
)

var customKinds = [...]dto.MetricType{counter, gauge, histogram}

// custom holds the metric families that models declare.
type custom struct {
	mu       sync.Mutex
	families map[string]*CustomFamily // guarded by mu
}

// CustomFamily is a metric family that models declare, exported under its unchanged name. Declarations with the
// same name and kind share it; each must be dropped.
type CustomFamily struct {
	of         *custom
	name, help string
	kind       CustomKind
	metrics    map[string]*CustomMetric // by labels; guarded by of.mu
	holders    int                      // number of declarations; guarded by of.mu
}

// CustomMetric is one metric of such a family.
type CustomMetric struct {
	family  *CustomFamily
	key     string
	labels  []*dto.LabelPair
	holders int // number of references; guarded by family.of.mu
	value   float
	buckets *buckets // of a histogram
}

// Custom declares a family or returns the existing one of that name, whose kind must be equal. It is exported while
// it has metrics. For example, two versions of a model share the counter that both declare. The caller must call
// Drop once.
func (x *Metrics) Custom(name, help string, kind CustomKind) (*CustomFamily, error) {
	if !model.LegacyValidation.IsValidMetricName(name) {
		return nil, fmt.Errorf("unexpected name '%s' of a metric family: expected letters, digits, '_' and ':'", name)
	}
	if slices.ContainsFunc(families, func(f family) bool { return f.name == name }) {
		return nil, fmt.Errorf("metric family '%s' is the server's own", name)
	}
	c := &x.custom
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.families[name]
	if f == nil {
		f = &CustomFamily{of: c, name: name, help: valid(help), kind: kind, metrics: map[string]*CustomMetric{}}
		c.families[name] = f
	}
	if f.kind != kind {
		return nil, fmt.Errorf("metric family '%s' exists with another kind", name)
	}
	f.holders++
	return f, nil
}

// Drop ends one declaration. The last one removes the family.
func (f *CustomFamily) Drop() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.holders--; f.holders <= 0 && f.of.families[f.name] == f {
		delete(f.of.families, f.name)
	}
}

// Metric returns the metric with the given labels and creates it if necessary. buckets are the ascending upper
// bounds of a histogram.
func (f *CustomFamily) Metric(labels map[string]string, buckets []float64) (*CustomMetric, error) {
	key := strings.Builder{}
	var pairs []*dto.LabelPair
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := valid(labels[name])
		if !model.LegacyValidation.IsValidLabelName(name) {
			return nil, fmt.Errorf("unexpected label '%s' of metric family '%s': expected letters, digits and '_'", name, f.name)
		}
		key.WriteString(name + "=" + strconv.Quote(value) + ",")
		pairs = append(pairs, &dto.LabelPair{Name: &name, Value: &value})
	}
	if f.kind == CustomHistogram && !rising(buckets) {
		return nil, fmt.Errorf("unexpected buckets of metric family '%s': expected ascending numbers, each once", f.name)
	}
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	m := f.metrics[key.String()]
	if m == nil {
		m = &CustomMetric{family: f, key: key.String(), labels: pairs}
		if f.kind == CustomHistogram {
			m.buckets = newBuckets(slices.Clone(buckets), 1)
		}
		f.metrics[m.key] = m
	}
	m.holders++
	return m, nil
}

func rising(buckets []float64) bool {
	for i, b := range buckets {
		if math.IsNaN(b) || i > 0 && b <= buckets[i-1] {
			return false
		}
	}
	return true
}

// Drop releases one reference. The last one removes the metric.
func (m *CustomMetric) Drop() {
	m.family.of.mu.Lock()
	defer m.family.of.mu.Unlock()
	if m.holders--; m.holders <= 0 && m.family.metrics[m.key] == m {
		delete(m.family.metrics, m.key)
	}
}

// Add adds v to a counter or a gauge. It fails for a counter if v is negative.
func (m *CustomMetric) Add(v float64) error {
	if m.buckets != nil {
		return m.wrong("increment")
	}
	if m.family.kind == CustomCounter && !(v >= 0) {
		return fmt.Errorf("counter '%s' cannot be incremented by %v, expected at least 0", m.family.name, v)
	}
	m.value.add(v)
	return nil
}

// Set sets a gauge.
func (m *CustomMetric) Set(v float64) error {
	if m.family.kind != CustomGauge {
		return m.wrong("set")
	}
	m.value.bits.Store(math.Float64bits(v))
	return nil
}

// Observe counts v in a histogram.
func (m *CustomMetric) Observe(v float64) error {
	if m.buckets == nil {
		return m.wrong("observe")
	}
	m.buckets.observe(v)
	return nil
}

// Value returns the value of a counter or gauge.
func (m *CustomMetric) Value() (float64, error) {
	if m.buckets != nil {
		return 0, m.wrong("value")
	}
	return m.value.load(), nil
}

func (m *CustomMetric) wrong(what string) error {
	return fmt.Errorf("metric family '%s' is a %s, which has no '%s'", m.family.name, strings.ToLower(customKinds[m.family.kind].String()), what)
}

// gather returns the families that have metrics, sorted by name.
func (c *custom) gather() (list []*dto.MetricFamily) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.families {
		if len(f.metrics) == 0 {
			continue
		}
		mf := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &customKinds[f.kind]}
		for _, m := range slices.SortedFunc(maps.Values(f.metrics), func(a, b *CustomMetric) int { return cmp.Compare(a.key, b.key) }) {
			if m.buckets != nil {
				mf.Metric = append(mf.Metric, m.buckets.write(m.labels))
			} else {
				mf.Metric = append(mf.Metric, (*arena)(nil).number(customKinds[f.kind], m.value.load(), m.labels))
			}
		}
		list = append(list, mf)
	}
	slices.SortFunc(list, byName)
	return list
}
