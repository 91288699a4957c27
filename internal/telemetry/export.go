package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func sortedKeys(m map[int]*Phases) []int { return slices.Sorted(maps.Keys(m)) }

// ExportOptions select the exported metrics.
type ExportOptions struct {
	// Namespaces adds the label of a model's namespace.
	Namespaces bool
	// NoCounterLatencies omits the sums of durations; Summaries and Histograms add distributions.
	NoCounterLatencies, Summaries, Histograms bool
	// Quantiles are the quantiles of the summaries, nil for DefaultQuantiles.
	Quantiles []Quantile
	// NoPhases omits the histograms of phases.
	NoPhases bool
	// CPU adds measurements of the machine, GPU those of its GPUs. A measurement older than Interval is repeated.
	CPU, GPU bool
	Interval time.Duration
}

// Setup is the part of a model's configuration that concerns its metrics.
type Setup struct {
	// Tags are further labels. Their names get a leading underscore, for example "_team".
	Tags map[string]string
	// FirstResponse are the ascending upper bounds of the family of that name; empty for DefaultBuckets.
	FirstResponse []float64
	// Decoupled models export that family, Cached ones those of the response cache.
	Decoupled, Cached bool
}

// Metrics exports the counters of every registered model version. It is a prometheus.Gatherer: a scrape reads the
// models' counters, so that nothing is counted twice. It is safe for concurrent use.
type Metrics struct {
	o ExportOptions

	fetchedBytes, fetchedNs atomic.Int64
	failedLoads             atomic.Uint64
	custom                  custom

	mu       sync.Mutex
	models   map[*Model]*series         // guarded by mu
	named    sync.Map                   // *Model by modelName, not guarded by mu: requests read it during a scrape
	cache    func() CacheCounts         // guarded by mu
	pinned   func() (total, used int64) // guarded by mu
	meter    meter                      // guarded by mu
	inFlight InFlight                   // guarded by mu

	measureGPUs func() []GPU // guarded by mu
	gpus        []GPU        // guarded by mu
	gpusAt      int64        // guarded by mu

	// Values read for the current scrape; guarded by mu.
	counts                  CacheCounts
	pinnedTotal, pinnedUsed int64
	cpu                     machine
}

var _ prometheus.Gatherer = (*Metrics)(nil)

type modelName struct {
	name    string
	version int64
}

// series are the labels and settings shared by a model's metrics.
type series struct {
	setup  *Setup
	labels []*dto.LabelPair             // sorted by name
	failed [numReasons][]*dto.LabelPair // with the reason
	phases [numPhases][]*dto.LabelPair  // with the phase; nil before the first scrape that has it
}

// cached reports whether the model has a response cache.
func (s *series) cached() bool { return s.setup != nil && s.setup.Cached }

// NewMetrics returns an exporter of Triton's default families, without models.
func NewMetrics() *Metrics { return NewMetricsOf(ExportOptions{}) }

// NewMetricsOf returns an exporter without models.
func NewMetricsOf(o ExportOptions) *Metrics {
	if o.Quantiles == nil {
		o.Quantiles = DefaultQuantiles()
	}
	x := &Metrics{o: o, models: map[*Model]*series{}}
	if o.CPU {
		x.meter.read(o.Interval)
	}
	return x
}

// Fetched counts a model fetched from a bucket: its bytes and the duration.
func (x *Metrics) Fetched(bytes, ns int64) {
	x.fetchedBytes.Add(bytes)
	x.fetchedNs.Add(ns)
}

// LoadFailed counts a model that could not be loaded.
func (x *Metrics) LoadFailed() { x.failedLoads.Add(1) }

// Cache adds the counters of a response cache to the exported metrics.
func (x *Metrics) Cache(counts func() CacheCounts) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cache = counts
}

// InFlight counts the bytes of requests.
type InFlight interface {
	// Bytes returns the bytes in flight, Limit their limit, 0 for none, and Refused the number of requests refused
	// for it.
	Bytes() int64
	Limit() int64
	Refused() uint64
}

// InFlight adds the bytes of requests to the exported metrics.
func (x *Metrics) InFlight(f InFlight) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inFlight = f
}

// Pinned sets the function that returns the size and use of the pool of pinned memory. Without it both are 0.
func (x *Metrics) Pinned(bytes func() (total, used int64)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pinned = bytes
}

// Add starts to export m with its current Setup.
func (x *Metrics) Add(m *Model) {
	x.mu.Lock()
	defer x.mu.Unlock()
	setup := m.setup.Load()
	if s := x.models[m]; s != nil && s.setup == setup {
		return
	}
	x.models[m] = x.newSeries(m, setup)
	x.named.Store(modelName{m.Name, m.Version}, m)
	if setup != nil && (x.o.Summaries || x.o.Histograms && setup.Decoupled) {
		m.latencies.Store(newLatencies(&x.o, setup))
	} else if x.o.Summaries {
		m.latencies.Store(newLatencies(&x.o, &Setup{}))
	}
}

// Remove stops the export of m.
func (x *Metrics) Remove(m *Model) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.models, m)
	x.named.CompareAndDelete(modelName{m.Name, m.Version}, m)
}

// Exemplar calls Model.Exemplar of the exported model of that name. Of several in different namespaces it uses the
// one added last.
func (x *Metrics) Exemplar(model string, version int64, traceID string, ns int64) {
	if m, ok := x.named.Load(modelName{model, version}); ok {
		m.(*Model).Exemplar(traceID, ns) //nolint:errcheck,forcetypeassert // the map holds nothing else
	}
}

func (x *Metrics) newSeries(m *Model, setup *Setup) *series {
	s := &series{setup: setup}
	add := func(name, value string) {
		value = valid(value) // a folder's name may be an invalid label value
		s.labels = append(s.labels, &dto.LabelPair{Name: &name, Value: &value})
	}
	add("model", m.Name)
	add("version", strconv.FormatInt(m.Version, 10))
	if x.o.Namespaces {
		add("namespace", m.Namespace)
	}
	if setup != nil {
		for k, v := range setup.Tags {
			add("_"+k, v)
		}
	}
	sortLabels(s.labels)
	for r := range numReasons {
		name, value := "reason", r.String()
		s.failed[r] = append(slices.Clone(s.labels), &dto.LabelPair{Name: &name, Value: &value})
		sortLabels(s.failed[r])
	}
	return s
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func sortLabels(list []*dto.LabelPair) {
	slices.SortFunc(list, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// Gather implements prometheus.Gatherer. Families are sorted by name, the metrics of a family by model.
func (x *Metrics) Gather() (list []*dto.MetricFamily, err error) {
	x.each(nil, func(f *dto.MetricFamily) { list = append(list, f) })
	sortFamilies(list)
	return list, nil
}

func sortFamilies(list []*dto.MetricFamily) {
	slices.SortFunc(list, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// each calls yield with every family that has metrics; families declared by models are last. With an arena they
// have no native buckets, which text formats lack, and are valid only during yield.
func (x *Metrics) each(a *arena, yield func(*dto.MetricFamily)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.measure()
	models := slices.SortedFunc(maps.Keys(x.models), func(a, b *Model) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Namespace, b.Namespace))
	})
	for i := range families {
		f := &families[i]
		if !x.exports(f) {
			continue
		}
		mf := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &f.kind}
		switch {
		case f.server != nil:
			mf.Metric = []*dto.Metric{a.number(f.kind, f.server(x), nil)}
		case f.gpu != nil:
			mf.Metric = gpuMetrics(a, f, x.gpus)
		default:
			mf.Metric = x.perModel(a, f, models)
		}
		if len(mf.GetMetric()) > 0 {
			yield(mf)
		}
		a.reset()
	}
	for _, mf := range x.custom.gather() {
		yield(mf)
	}
}

// measure reads the values of the server's families.
func (x *Metrics) measure() {
	if x.cache != nil {
		x.counts = x.cache()
	}
	if x.pinned != nil {
		x.pinnedTotal, x.pinnedUsed = x.pinned()
	}
	if x.o.CPU {
		x.cpu = x.meter.read(x.o.Interval)
	}
	if x.o.GPU {
		x.readGPUs()
	}
}

// exports reports whether the options include a family.
func (x *Metrics) exports(f *family) bool {
	switch f.when {
	case counterLatency:
		return !x.o.NoCounterLatencies
	case perCacheLatency:
		return x.cache != nil && !x.o.NoCounterLatencies
	case summaryLatency, uncachedSummary:
		return x.o.Summaries
	case perCacheSummary:
		return x.cache != nil && x.o.Summaries
	case histogramLatency:
		return x.o.Histograms
	case withCache, perCache:
		return x.cache != nil
	case withSizedCache:
		return x.cache != nil && x.counts.Sized
	case withCPU:
		return x.o.CPU && x.cpu.known
	case withInFlight:
		return x.inFlight != nil
	case withPhases:
		return !x.o.NoPhases
	case withFetches:
		return x.fetchedNs.Load() > 0
	case always:
	}
	return true
}

// perModel returns a family's metrics of the given models.
func (x *Metrics) perModel(a *arena, f *family, models []*Model) []*dto.Metric {
	list := a.newList(len(models))
	for _, m := range models {
		s := x.models[m]
		switch {
		case f.reasons:
			for r := range numReasons {
				list = append(list, a.number(f.kind, float64(m.failures(r)), s.failed[r]))
			}
			continue
		case f.moves != nil:
			list = append(list, s.moves(a, f, m)...)
			continue
		case f.many != nil:
			list = f.many(&scraped{s, m, a}, list)
			continue
		case f.when == wherePadded:
			if given, _ := m.Padding(); given == 0 {
				continue
			}
		case f.when >= perCache && f.when <= perCacheSummary && !s.cached():
			continue
		case f.when == uncachedSummary && s.cached():
			continue
		}
		if v := one(a, f, m, s.labels); v != nil {
			list = append(list, v)
		}
	}
	return a.keep(list)
}

// moves returns a family's metrics of a model's copies between places.
func (s *series) moves(a *arena, f *family, m *Model) (list []*dto.Metric) {
	for _, v := range m.Moves.List() {
		labels := slices.Clone(s.labels)
		for _, l := range [][2]string{{"tensor", v.Tensor}, {"from", v.From.String()}, {"to", v.To.String()}, {"reason", v.Reason.String()}} {
			text := valid(l[1])
			labels = append(labels, &dto.LabelPair{Name: &l[0], Value: &text})
		}
		sortLabels(labels)
		list = append(list, a.number(f.kind, float64(f.moves(&v)), labels))
	}
	return list
}

// one returns a family's metric of one model, nil when it has none.
func one(a *arena, f *family, m *Model, labels []*dto.LabelPair) *dto.Metric {
	switch l := m.latencies.Load(); {
	case f.model != nil:
		return a.number(f.kind, f.model(m), labels)
	case l == nil:
		return nil
	case f.latency == firstResponse:
		if l.first != nil {
			return &dto.Metric{Label: labels, Histogram: l.first.write()}
		}
	case l.summaries[f.latency] != nil:
		v := &dto.Metric{Label: labels}
		if l.summaries[f.latency].Write(v) == nil {
			v.Label = labels
			return v
		}
	}
	return nil
}
