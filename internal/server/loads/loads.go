// Package loads measures the load of a server for clients that balance by it, and encodes it as ORCA load reports: in the trailer of gRPC
// calls, in a header of HTTP responses, and for the ORCA service, which sends reports without calls.
package loads

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/infer"
)

// FormatHeader is the header, and the key of gRPC metadata, by which a client asks for the load with a response: bin over gRPC, text or json
// over HTTP, as in Triton.
const FormatHeader = "endpoint-load-metrics-format"

// Trailer is the trailer of a gRPC call that has the load: an OrcaLoadReport.
const Trailer = "endpoint-load-metrics-bin"

// The headers of HTTP as net/http has them.
const (
	formatHeader = "Endpoint-Load-Metrics-Format"
	reportHeader = "Endpoint-Load-Metrics"
)

const (
	// period is how long a report is used.
	period = 100 * time.Millisecond
	// smooth is the weight of the newest sample of the utilisation, of which there are at most ten per second.
	smooth = 0.3
	// namedModels is how many models with queued requests a report names, those with the longest waits.
	namedModels = 8
)

// Meter measures the load. A report has:
//
//   - application_utilization: the part of the instances that execute, of the busiest model, or the CPU utilisation where that is more, and
//     above it the seconds that a request would wait. So a server that is late gets less than one that is busy.
//   - cpu_utilization of the process (1.0: all its processors), inference calls and failed ones per second
//   - the named metrics running (inference calls in flight, queued ones included), streams, queued, and wait_seconds, the longest predicted
//     wait of a model; queued.MODEL and wait_seconds.MODEL of the eight models with the longest waits
//
// Nothing is measured without clients that ask for it, but for counts of calls. It is safe for concurrent use; the zero value is ready.
type Meter struct {
	// Models returns the load of each model; nil for none. It must not change once the meter is used.
	Models func() []infer.ModelLoad

	running, done, failed, streams atomic.Int64

	mu     sync.Mutex
	last   sample  // guarded by mu
	busy   float64 // smoothed utilisation of the busiest model; guarded by mu
	report *report // guarded by mu
}

// report is a measured load in its encodings. It is immutable.
type report struct {
	metrics    *orca.ServerMetrics
	bin        string
	text, json []string
}

// sample is the counters at a time.
type sample struct {
	at           time.Time
	done, failed int64
	cpu          time.Duration
}

var _ orca.ServerMetricsProvider = (*Meter)(nil)

// Begin counts an inference call that starts. End must follow.
//
// hot: one atomic operation.
func (m *Meter) Begin() { m.running.Add(1) }

// End counts the end of a call.
//
// hot: two atomic operations, three for a failed call.
func (m *Meter) End(err error) {
	m.running.Add(-1)
	m.done.Add(1)
	if err != nil {
		m.failed.Add(1)
	}
}

// OpenStream counts a stream of requests, until CloseStream.
func (m *Meter) OpenStream() { m.streams.Add(1) }

// CloseStream counts the end of a stream.
func (m *Meter) CloseStream() { m.streams.Add(-1) }

// ServerMetrics implements orca.ServerMetricsProvider. The result is immutable.
func (m *Meter) ServerMetrics() *orca.ServerMetrics { return m.current().metrics }

// Binary returns the value of Trailer.
func (m *Meter) Binary() string { return m.current().bin }

// SetHeader sets the header of an HTTP response to a request that asks for the load. Other formats than text and json are ignored. For
// example:
//
//	endpoint-load-metrics: TEXT application_utilization=0.5, named_metrics.queued=3
//	endpoint-load-metrics: JSON {"application_utilization":0.5,"named_metrics":{"queued":3}}
//
// hot: one lookup for other requests.
func (m *Meter) SetHeader(to, request http.Header) {
	format := request[formatHeader]
	if len(format) != 1 {
		return
	}
	switch format[0] {
	case "text":
		to[reportHeader] = m.current().text
	case "json":
		to[reportHeader] = m.current().json
	}
}

// current returns a report, measured at most a period ago.
func (m *Meter) current() *report {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.report != nil && now.Sub(m.last.at) < period {
		return m.report
	}
	next := sample{at: now, done: m.done.Load(), failed: m.failed.Load(), cpu: cpuTime()}
	m.report = encode(m.between(&m.last, &next))
	m.last = next
	return m.report
}

// between returns the metrics of the time between two samples. mu is held.
func (m *Meter) between(from, to *sample) *orca.ServerMetrics {
	r := &orca.ServerMetrics{AppUtilization: -1, MemUtilization: -1, NamedMetrics: map[string]float64{
		"running": float64(m.running.Load()), "streams": float64(m.streams.Load()),
	}}
	if span := to.at.Sub(from.at).Seconds(); !from.at.IsZero() && span > 0 {
		r.CPUUtilization = (to.cpu - from.cpu).Seconds() / span / float64(runtime.GOMAXPROCS(0))
		r.QPS, r.EPS = float64(to.done-from.done)/span, float64(to.failed-from.failed)/span
	}
	if m.Models != nil {
		m.addModels(r, m.Models())
	}
	return r
}

// addModels adds the load of the models. mu is held.
func (m *Meter) addModels(r *orca.ServerMetrics, list []infer.ModelLoad) {
	queued, busiest, wait := int64(0), 0.0, time.Duration(0)
	for i := range list {
		queued += list[i].Queued
		busiest, wait = max(busiest, list[i].Utilization), max(wait, list[i].Wait)
	}
	m.busy += smooth * (busiest - m.busy)
	r.AppUtilization = max(m.busy, r.CPUUtilization) + wait.Seconds()
	r.NamedMetrics["queued"], r.NamedMetrics["wait_seconds"] = float64(queued), wait.Seconds()
	list = slices.DeleteFunc(list, func(l infer.ModelLoad) bool { return l.Queued == 0 })
	slices.SortFunc(list, func(a, b infer.ModelLoad) int {
		return cmp.Or(cmp.Compare(b.Wait, a.Wait), cmp.Compare(a.Model, b.Model))
	})
	for i := range list[:min(len(list), namedModels)] {
		l := &list[i]
		r.NamedMetrics["queued."+l.Model] += float64(l.Queued)
		r.NamedMetrics["wait_seconds."+l.Model] = max(r.NamedMetrics["wait_seconds."+l.Model], l.Wait.Seconds())
	}
}

// encode returns a report in all encodings.
func encode(r *orca.ServerMetrics) *report {
	e := &report{metrics: r}
	pb := &orcapb.OrcaLoadReport{
		CpuUtilization: r.CPUUtilization, RpsFractional: r.QPS, Eps: r.EPS, NamedMetrics: r.NamedMetrics, ApplicationUtilization: max(r.AppUtilization, 0),
	}
	if b, err := proto.Marshal(pb); err == nil { // else an empty report, which changes no weight
		e.bin = string(b)
	}
	text, object := []byte("TEXT "), map[string]any{"named_metrics": r.NamedMetrics}
	for _, f := range []struct {
		name  string
		value float64
	}{{"application_utilization", pb.GetApplicationUtilization()}, {"cpu_utilization", r.CPUUtilization}, {"rps_fractional", r.QPS}, {"eps", r.EPS}} {
		text = append(append(append(text, f.name...), '='), appendNumber(nil, f.value)...)
		text = append(text, ", "...)
		object[f.name] = f.value
	}
	for i, name := range slices.Sorted(maps.Keys(r.NamedMetrics)) {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(append(append(text, "named_metrics."...), name...), '=')
		text = appendNumber(text, r.NamedMetrics[name])
	}
	e.text = []string{string(text)}
	if b, err := json.Marshal(object); err == nil { // numbers are finite
		e.json = []string{"JSON " + string(b)}
	}
	return e
}

// appendNumber appends a number with six decimals, fewer where they are 0.
func appendNumber(b []byte, v float64) []byte {
	return strconv.AppendFloat(b, math.Round(v*1e6)/1e6, 'f', -1, 64)
}

// cpuTime returns the CPU time of the process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
