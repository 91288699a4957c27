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

	dto "github.com/prometheus/client_model/go"
)

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
	value   atomic.Uint64
	buckets *customBuckets // of a histogram
}

// customBuckets count observations by upper bound.
type customBuckets struct {
	mu     sync.Mutex
	bounds []float64
	counts []uint64 // guarded by mu
	count  uint64   // guarded by mu
	sum    float64  // guarded by mu
}

// Custom declares a family or returns the existing one of that name, whose kind must be equal. It is exported while
// it has metrics. For example, two versions of a model share the counter that both declare. The caller must call
// Drop once.
func (x *Metrics) Custom(name, help string, kind CustomKind) (*CustomFamily, error) {
	if !validName(name, true) {
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
		f = &CustomFamily{of: c, name: name, help: strings.ToValidUTF8(help, "\uFFFD"), kind: kind, metrics: map[string]*CustomMetric{}}
		if c.families == nil {
			c.families = map[string]*CustomFamily{}
		}
		c.families[name] = f
	}
	if f.kind != kind {
		return nil, fmt.Errorf("metric family '%s' exists with another kind", name)
	}
	f.holders++
	return f, nil
}

func validName(name string, colon bool) bool {
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || colon && c == ':'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
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
		value := strings.ToValidUTF8(labels[name], "\uFFFD")
		if !validName(name, false) {
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
			m.buckets = &customBuckets{bounds: slices.Clone(buckets), counts: make([]uint64, len(buckets))}
		}
		f.metrics[m.key] = m
	}
	m.holders++
	return m, nil
}

// rising reports whether every number is greater than the one before it.
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
	for {
		old := m.value.Load()
		if m.value.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return nil
		}
	}
}

// Set sets a gauge.
func (m *CustomMetric) Set(v float64) error {
	if m.family.kind != CustomGauge {
		return m.wrong("set")
	}
	m.value.Store(math.Float64bits(v))
	return nil
}

// Observe counts v in a histogram.
func (m *CustomMetric) Observe(v float64) error {
	if m.buckets == nil {
		return m.wrong("observe")
	}
	b := m.buckets
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	b.sum += v
	if i, _ := slices.BinarySearch(b.bounds, v); i < len(b.counts) {
		b.counts[i]++
	}
	return nil
}

// Value returns the value of a counter or gauge.
func (m *CustomMetric) Value() (float64, error) {
	if m.buckets != nil {
		return 0, m.wrong("value")
	}
	return math.Float64frombits(m.value.Load()), nil
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
			mf.Metric = append(mf.Metric, m.write())
		}
		list = append(list, mf)
	}
	sortFamilies(list)
	return list
}

func (m *CustomMetric) write() *dto.Metric {
	if m.buckets == nil {
		var heap *arena
		return heap.number(customKinds[m.family.kind], math.Float64frombits(m.value.Load()), m.labels)
	}
	b := m.buckets
	b.mu.Lock()
	defer b.mu.Unlock()
	count, sum := b.count, b.sum
	h := &dto.Histogram{SampleCount: &count, SampleSum: &sum}
	total := uint64(0)
	for i := range b.bounds {
		total += b.counts[i]
		upTo := total
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &b.bounds[i], CumulativeCount: &upTo})
	}
	return &dto.Metric{Histogram: h, Label: m.labels}
}
