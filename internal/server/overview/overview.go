// Package overview computes the dashboard's figures: the rates of the last minute and the
// bytes between the steps of an ensemble. Window implements inspect.Overview.
package overview

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Models are the served models, as the repository has them. Implementations must be safe for concurrent use.
type Models interface {
	Counters() []inspect.Counters         // returns the totals of all served versions
	Index(ready bool) []infer.Entry       // lists every known version, and the models in folders; with ready only those that serve
	Opened() []infer.Entry                // lists the versions of models that are or were loaded, without reading folders
	Platform(name, version string) string // names what runs a version, for example "onnxruntime_onnx"
	// Graph returns the compiled plan of a version, without its live figures.
	Graph(model string, version int64) (*inspect.GraphView, error)
}

// Traces are the stored traces, from which the latencies come.
type Traces interface {
	Stats() *inspect.StoreView
	Quantiles(model string) (p50, p99 int64)
}

// Settings are what a Window reads. The functions must be safe for concurrent use.
type Settings struct {
	Name, Version string
	Models        Models
	Traces        Traces                     // nil when no traces are stored
	Ready         func() bool                // reports the readiness of the server
	TensorBytes   func() int64               // returns the memory of all tensors; nil where it is not counted
	GPUs          func() []telemetry.GPU     // returns the last measurement of each GPU
	Degraded      func() []infer.Degradation // returns what was degraded at the last look; nil where nothing looks

	_ struct{}
}

// Window samples the counters of all models once a second and keeps the samples of the last
// minute. For example, a model's rate is the difference of its requests between the oldest
// and the newest sample, divided by the seconds between them.
//
// New starts the sampling, Close ends it. All methods are safe for concurrent use.
type Window struct {
	set   Settings
	began time.Time
	over  chan struct{}
	done  sync.WaitGroup

	mu       sync.Mutex
	second   int                     // number of the newest sample, guarded by mu
	versions map[versionKey]*samples // guarded by mu
	listing  listing
	times    [windowSize]int64 // guarded by mu, when the samples were taken, in microseconds since 1970
}

// listing has the models of which only the folder is known. Reading the folders of many models takes long: it is done at most every
// listTime.
type listing struct {
	mu    sync.Mutex
	at    time.Time     // of the last look; guarded by mu
	names []infer.Entry // guarded by mu
}

const listTime = 10 * time.Second

// unopened returns the models that are in folders and were never loaded.
func (l *listing) unopened(m Models) []infer.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) > listTime {
		l.names = slices.DeleteFunc(m.Index(false), func(e infer.Entry) bool { return e.State != "" })
		l.at = time.Now()
	}
	return l.names
}

// entries lists every version, sorted by name and version. A model that was loaded since the last look at the folders is not listed twice.
func (w *Window) entries() []infer.Entry {
	list := w.set.Models.Opened()
	known := len(list)
	for _, e := range w.listing.unopened(w.set.Models) {
		if _, ok := slices.BinarySearchFunc(list[:known], e.Name, func(x infer.Entry, name string) int { return strings.Compare(x.Name, name) }); !ok {
			list = append(list, e)
		}
	}
	if len(list) > known {
		slices.SortStableFunc(list, func(a, b infer.Entry) int { return strings.Compare(a.Name, b.Name) })
	}
	return list
}

type versionKey struct {
	model   string
	version int64
}

const windowSize = 61 // how many samples are retained: 61 samples span 60 seconds

// samples are those of one version. Sample i is in all[i % windowSize].
type samples struct {
	all   [windowSize]inspect.Counters
	first int // number of the version's first sample
	last  int // number of its newest sample
	flows flows
}

// New returns a Window and starts its sampling.
func New(set Settings) *Window {
	w := &Window{set: set, began: time.Now(), over: make(chan struct{}), versions: map[versionKey]*samples{}}
	w.done.Go(w.run)
	return w
}

// Close ends the sampling. It must be called once.
func (w *Window) Close() {
	close(w.over)
	w.done.Wait()
}

func (w *Window) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		w.sample()
		select {
		case <-tick.C:
		case <-w.over:
			return
		}
	}
}

// sample stores the current counters. A version without any request takes no memory.
func (w *Window) sample() {
	list := w.set.Models.Counters()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.second++
	w.times[w.second%windowSize] = time.Now().UnixMicro()
	for i := range list {
		c := &list[i]
		key := versionKey{c.Name, c.Version}
		s := w.versions[key]
		if s == nil {
			if c.Requests+c.Failures == 0 {
				continue
			}
			s = &samples{first: w.second}
			w.versions[key] = s
			s.all[(w.second-1)%windowSize] = inspect.Counters{} // the first requests count
		}
		s.last = w.second
		s.all[w.second%windowSize] = *c
		s.flows.sample(w.second, c.Edges)
	}
	for key, s := range w.versions {
		if s.last != w.second {
			delete(w.versions, key)
		}
	}
}

// maxDegraded is how many degraded parts the view of a server has: each page gets it every second.
const maxDegraded = 100

// Server implements inspect.Overview.
func (w *Window) Server() *inspect.ServerView {
	v := &inspect.ServerView{
		Name: w.set.Name, Version: w.set.Version, StartedUs: w.began.UnixMicro(), NowUs: time.Now().UnixMicro(),
		Ready: w.set.Ready(), Cores: runtime.NumCPU(), CPUSeconds: cpuSeconds(), Memory: residentBytes(), GPUs: gpuViews(w.set.GPUs()), Degraded: []inspect.DegradedView{},
	}
	if w.set.Degraded != nil {
		list := w.set.Degraded()
		v.DegradedMore = max(0, len(list)-maxDegraded)
		for _, d := range list[:len(list)-v.DegradedMore] {
			v.Degraded = append(v.Degraded, inspect.DegradedView{What: d.What, Name: d.Name, Version: d.Version, Reason: d.Reason, SinceUs: d.Since.UnixMicro()})
		}
	}
	if w.set.TensorBytes != nil {
		v.Tensors = w.set.TensorBytes()
	}
	if w.set.Traces != nil {
		v.Store = w.set.Traces.Stats()
	}
	return v
}

func gpuViews(list []telemetry.GPU) []inspect.GPUView {
	views := make([]inspect.GPUView, 0, len(list))
	for i := range list {
		g := &list[i]
		views = append(views, inspect.GPUView{
			UUID: g.UUID, Utilization: measured(g.Utilization), MemoryTotal: measured(g.MemoryTotal), MemoryUsed: measured(g.MemoryUsed), Power: measured(g.PowerUsage),
		})
	}
	return views
}

// measured returns nil for the negative value of a GPU without such a measurement.
func measured(v float64) *float64 {
	if v < 0 {
		return nil
	}
	return &v
}

// Models implements inspect.Overview.
func (w *Window) Models() []inspect.ModelView {
	counters := map[versionKey]inspect.Counters{}
	for _, c := range w.set.Models.Counters() {
		counters[versionKey{c.Name, c.Version}] = c
	}
	entries := w.entries()
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]inspect.ModelView, 0, len(entries))
	for _, e := range entries {
		m := inspect.ModelView{Name: e.Name, Version: e.Version, State: string(e.State), Reason: e.Reason, Ensemble: e.Ensemble, Rates: []float64{}}
		number, err := strconv.ParseInt(e.Version, 10, 64)
		key := versionKey{e.Name, number}
		if c, ok := counters[key]; err == nil && ok {
			m.Platform = w.set.Models.Platform(e.Name, e.Version)
			w.fill(&m, key, &c)
		}
		list = append(list, m)
	}
	return list
}

// fill sets the figures of a version; mu is held.
func (w *Window) fill(m *inspect.ModelView, key versionKey, c *inspect.Counters) {
	m.Queue, m.Requests, m.Failures, m.Copied = c.Waiting, c.Requests, c.Failures, c.CopiedBytes
	s := w.versions[key]
	if s == nil {
		return
	}
	if w.set.Traces != nil {
		m.P50Ns, m.P99Ns = w.set.Traces.Quantiles(m.Name)
	}
	oldest := max(s.first-1, w.second-windowSize+1)
	from, to := &s.all[oldest%windowSize], &s.all[w.second%windowSize]
	seconds := float64(w.second - oldest)
	requests := to.Requests - from.Requests
	m.Rate, m.Errors = float64(requests)/seconds, float64(to.Failures-from.Failures)/seconds
	if n := to.Executions - from.Executions; n > 0 {
		m.BatchRows = float64(to.Rows-from.Rows) / float64(n)
	}
	if requests > 0 {
		m.QueueNs, m.ComputeNs = int64((to.QueueNs-from.QueueNs)/requests), int64((to.ComputeNs-from.ComputeNs)/requests)
	}
	for i := oldest + 1; i <= w.second; i++ {
		a, b := &s.all[(i-1)%windowSize], &s.all[i%windowSize]
		m.Rates = append(m.Rates, float64(b.Requests+b.Failures-a.Requests-a.Failures))
	}
	for r := range to.Refusals {
		if to.Refusals[r] > 0 {
			if m.Refused == nil {
				m.Refused = map[string]float64{}
			}
			m.Refused[telemetry.Refusal(r).String()] = float64(to.Refusals[r]-from.Refusals[r]) / seconds //nolint:gosec // they are few
		}
	}
	if to.Outcomes == (telemetry.OutcomeCounts{}) {
		return
	}
	rate := func(o telemetry.Outcome) float64 { return float64(to.Outcomes[o]-from.Outcomes[o]) / seconds }
	m.Due = &inspect.OutcomesView{
		InTime: rate(telemetry.InTime), Late: rate(telemetry.Late), Refused: rate(telemetry.Refused), Failed: rate(telemetry.Unsuccessful), InTimes: []float64{},
	}
	for i := oldest + 1; i <= w.second; i++ {
		a, b := &s.all[(i-1)%windowSize], &s.all[i%windowSize]
		m.Due.InTimes = append(m.Due.InTimes, float64(b.Outcomes[telemetry.InTime]-a.Outcomes[telemetry.InTime]))
	}
}

// Graph implements inspect.Overview.
func (w *Window) Graph(model string, version int64) (*inspect.GraphView, error) {
	g, err := w.set.Models.Graph(model, version)
	if err != nil {
		return nil, err
	}
	w.addFlows(g)
	list := w.Models()
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for j := range list {
			if list[j].Name == n.Model && list[j].Version == strconv.FormatInt(n.Version, 10) {
				n.Live = &list[j]
			}
		}
	}
	return g, nil
}

func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// residentBytes returns the resident memory of this process, 0 where /proc does not say.
func residentBytes() int64 {
	p, err := procfs.Self()
	if err != nil {
		return 0
	}
	stat, err := p.Stat()
	if err != nil {
		return 0
	}
	return int64(stat.ResidentMemory())
}

const flowSamples = 6 // how many samples of an edge are retained: its rate is that of 5 seconds

const kinds = int(tensor.Device) + 1 // how many kinds of places there are

// flows are the bytes of each edge of an ensemble at each kind of place, in the last
// samples. An ensemble may gain edges, which are appended; it never loses any.
type flows struct {
	edges []*telemetry.Edge
	bytes [flowSamples][]uint64
}

// sample stores the current counters as those of a second.
func (f *flows) sample(second int, edges []*telemetry.Edge) {
	f.edges = edges
	at := &f.bytes[second%flowSamples]
	*at = (*at)[:0]
	for _, e := range edges {
		for kind := range kinds {
			*at = append(*at, e.Bytes(tensor.Kind(kind)))
		}
	}
}

// between returns the bytes of an edge between two samples. An edge that the older sample lacks counts from 0.
func (f *flows) between(oldest, newest, edge, kind int) uint64 {
	i := edge*kinds + kind
	from, to := f.bytes[oldest%flowSamples], f.bytes[newest%flowSamples]
	switch {
	case i >= len(to):
		return 0
	case i >= len(from):
		return to[i]
	}
	return to[i] - from[i]
}

func (w *Window) addFlows(g *inspect.GraphView) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.versions[versionKey{g.Model, g.Version}]
	if s == nil {
		return
	}
	byTensor := make(map[string]int, len(s.flows.edges))
	for i, e := range s.flows.edges {
		byTensor[e.Tensor] = i
	}
	oldest := max(s.first-1, w.second-flowSamples+1)
	for i := range g.Edges {
		edge, ok := byTensor[g.Edges[i].Tensor]
		for j := range g.Edges[i].Carried {
			c := &g.Edges[i].Carried[j]
			for kind := range kinds {
				if ok && telemetry.PlaceName(tensor.Kind(kind)) == c.Place {
					c.Rate = float64(s.flows.between(oldest, w.second, edge, kind)) / float64(w.second-oldest)
				}
			}
		}
	}
}
