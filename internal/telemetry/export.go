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

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/procfs"

	"github.com/tutti-server/tutti/core/tensor"
)

// ExportOptions select the exported metrics.
type ExportOptions struct {
	Namespaces bool // adds the label of a model's namespace
	// NoCounterLatencies omits the sums of durations; Summaries and Histograms add distributions.
	NoCounterLatencies, Summaries, Histograms bool
	Quantiles                                 []Quantile // the quantiles of the summaries, nil for DefaultQuantiles
	NoPhases                                  bool       // omits the histograms of phases
	// CPU adds measurements of the machine, GPU those of its GPUs. A measurement older than Interval is repeated.
	CPU, GPU bool
	Interval time.Duration
}

// Setup is the part of a model's configuration that concerns its metrics.
type Setup struct {
	// Tags are further labels. Their names get a leading underscore, for example "_team".
	Tags          map[string]string
	FirstResponse []float64 // the ascending upper bounds of the family of that name; empty for DefaultBuckets
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
	models   map[*Model]*series             // guarded by mu
	named    sync.Map                       // *Model by modelName, not guarded by mu: requests read it during a scrape
	cache    func() CacheCounts             // guarded by mu
	pinned   func() (total, used int64)     // guarded by mu
	devices  func() []DeviceUse             // guarded by mu
	meter    meter                          // guarded by mu
	requests func() (queued, running int64) // guarded by mu
	inFlight InFlight                       // guarded by mu
	refusals Refusals                       // guarded by mu
	clients  ClientRefusals                 // guarded by mu

	measureGPUs func() []GPU // guarded by mu
	gpus        []GPU        // guarded by mu
	gpusAt      int64        // guarded by mu

	// Values read for the current scrape; guarded by mu.
	counts                  CacheCounts
	pinnedTotal, pinnedUsed int64
	cpu                     machine
}

type modelName struct {
	name    string
	version int64
}

// series are the labels and settings shared by a model's metrics.
type series struct {
	setup  *Setup
	labels []*dto.LabelPair               // sorted by name
	more   map[[2]string][]*dto.LabelPair // with one more label of that name and value
}

func (s *series) cached() bool { return s.setup != nil && s.setup.Cached }

// NewMetrics returns an exporter of Triton's default families, without models.
func NewMetrics() *Metrics { return NewMetricsOf(ExportOptions{}) }

// NewMetricsOf returns an exporter without models.
func NewMetricsOf(o ExportOptions) *Metrics {
	if o.Quantiles == nil {
		o.Quantiles = DefaultQuantiles()
	}
	x := &Metrics{o: o, models: map[*Model]*series{}, custom: custom{families: map[string]*CustomFamily{}}}
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

// CacheCounts are the counters of a response cache.
type CacheCounts struct {
	// Sized reports whether Util, the used share of the configured size, Entries and Evictions are known.
	Sized              bool
	Util               float64
	Entries, Evictions uint64
	// Hits counts the lookups that found a response.
	Lookups, Hits uint64
	// Dropped counts the responses that were not stored, Errors the failures of a remote cache.
	Dropped, Errors    uint64
	LookupNs, InsertNs uint64
}

// Cache adds the counters of a response cache to the exported metrics.
func (x *Metrics) Cache(counts func() CacheCounts) { set(x, &x.cache, counts) }

// set sets a source of the exported metrics.
func set[T any](x *Metrics, to *T, source T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	*to = source
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
func (x *Metrics) InFlight(f InFlight) { set(x, &x.inFlight, f) }

// Refusals returns how many requests were refused because nobody was known, because of their rights, and because an issuer was away.
type Refusals func() (unauthenticated, forbidden, undecided uint64)

// Refusals adds the requests refused for their identity to the exported metrics.
func (x *Metrics) Refusals(count Refusals) { set(x, &x.refusals, count) }

// ClientRefusals calls add with the number of requests of each client that were refused because it was over its share. There are few.
type ClientRefusals func(add func(name string, n uint64))

// Clients adds the refused requests of clients that are told apart.
func (x *Metrics) Clients(count ClientRefusals) { set(x, &x.clients, count) }

// Requests sets the function that counts the requests that wait for an instance, and the others in execution.
func (x *Metrics) Requests(count func() (queued, running int64)) { set(x, &x.requests, count) }

// Pinned sets the function that returns the size and use of the pool of pinned memory. Without it both are 0.
func (x *Metrics) Pinned(bytes func() (total, used int64)) { set(x, &x.pinned, bytes) }

// DeviceUse is the state of a device, or of the pool of pinned memory.
type DeviceUse struct {
	Place tensor.Place
	Lost  bool
	// Spilled counts the allocations that got slower memory because the pool of the place was full.
	Spilled int64
}

// Devices sets the function that returns the state of the devices. Without it none is exported.
func (x *Metrics) Devices(uses func() []DeviceUse) { set(x, &x.devices, uses) }

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
	if s := cmp.Or(setup, &Setup{}); x.o.Summaries || x.o.Histograms && s.Decoupled {
		m.latencies.Store(newLatencies(&x.o, s))
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
	s := &series{setup: setup, more: map[[2]string][]*dto.LabelPair{}}
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
	slices.SortFunc(s.labels, byName)
	return s
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func byName[T interface{ GetName() string }](a, b T) int {
	return cmp.Compare(a.GetName(), b.GetName())
}

// Gather implements prometheus.Gatherer. Families are sorted by name, the metrics of a family by model.
func (x *Metrics) Gather() (list []*dto.MetricFamily, err error) {
	x.each(nil, func(f *dto.MetricFamily) { list = append(list, f) })
	slices.SortFunc(list, byName)
	return list, nil
}

// each calls yield with every family that has metrics; families declared by models are last. With an arena they
// have no native buckets, which text formats lack, and are valid only during yield.
func (x *Metrics) each(a *arena, yield func(*dto.MetricFamily)) {
	x.mu.Lock()
	defer x.mu.Unlock()
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
	models := slices.SortedFunc(maps.Keys(x.models), func(a, b *Model) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Namespace, b.Namespace))
	})
	c := &scrape{x: x, a: a, models: models}
	for i := range families {
		f := &families[i]
		if f.when.server != nil && !f.when.server(x) {
			continue
		}
		c.f, c.list = f, nil
		if a != nil {
			c.list, a.used = a.list[:0], 0
		}
		if f.values(c); len(c.list) > 0 {
			yield(&dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &f.kind, Metric: c.list})
		}
		if a != nil {
			a.list = c.list
		}
	}
	for _, mf := range x.custom.gather() {
		yield(mf)
	}
}

// machine is a measurement of the machine.
type machine struct {
	known             bool
	busy, total, used float64
}

// meter measures the machine.
type meter struct {
	at          int64   // on the clock of Now
	spent, idle float64 // seconds of all processors, and those in which they were idle or waited for a disk
	last        machine
}

// read returns a measurement no older than interval. The busy share is measured since the previous one.
func (m *meter) read(interval time.Duration) machine {
	now := Now()
	if m.last.known && now-m.at < int64(interval) {
		return m.last
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m.last
	}
	stat, failed := fs.Stat()
	memory, err := fs.Meminfo()
	if failed != nil || err != nil {
		return m.last
	}
	c := &stat.CPUTotal
	idle := c.Idle + c.Iowait
	spent := idle + c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal // a guest's time is in the user's
	if m.last.known && spent > m.spent && idle >= m.idle {
		m.last.busy = 1 - min(1, (idle-m.idle)/(spent-m.spent))
	}
	m.spent, m.idle, m.at = spent, idle, now
	m.last.memory(&memory)
	return m.last
}

// memory sets the memory of the machine. A kernel that does not report what is available uses all of it.
func (m *machine) memory(info *procfs.Meminfo) {
	var none uint64
	total, available := float64(*cmp.Or(info.MemTotalBytes, &none)), float64(*cmp.Or(info.MemAvailableBytes, &none))
	m.known, m.total, m.used = total > 0, total, max(0, total-available)
}

// GPU is a measurement of a GPU. A value that the GPU does not report is negative.
type GPU struct {
	UUID        string
	Utilization float64 // the busy share, 0 to 1
	// MemoryTotal and MemoryUsed are in bytes.
	MemoryTotal, MemoryUsed float64
	// PowerUsage and PowerLimit are in watts.
	PowerUsage, PowerLimit float64
	Energy                 float64 // the energy used since the server started, in joules
}

// GPUs sets the function that measures the GPUs. A scrape calls it when the last measurement is older than the
// interval of the options.
func (x *Metrics) GPUs(measure func() []GPU) { set(x, &x.measureGPUs, measure) }

// Measured returns the exported GPUs, none where they are not measured.
func (x *Metrics) Measured() []GPU {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.readGPUs()
	return slices.Clone(x.gpus)
}

// readGPUs measures unless the last measurement is recent. The caller holds x.mu.
func (x *Metrics) readGPUs() {
	now := Now()
	if x.measureGPUs == nil || x.gpusAt != 0 && now-x.gpusAt < int64(x.o.Interval) {
		return
	}
	x.gpus, x.gpusAt = x.measureGPUs(), now
}
