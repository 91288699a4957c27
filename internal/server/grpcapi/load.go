package grpcapi

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"
	"google.golang.org/protobuf/proto"
)

// The header by which a client asks for the load with a response, and the trailer that has it: an OrcaLoadReport.
const (
	loadFormat  = "endpoint-load-metrics-format"
	loadTrailer = "endpoint-load-metrics-bin"
)

// load measures the server for clients that balance by its load: by the ORCA service, and in the trailer of calls with the header
// endpoint-load-metrics-format: bin. It is safe for concurrent use.
//
// A report has the CPU utilisation of the process (1.0: all its processors), inference calls and failed ones per second, and the named
// metrics "running" (inference calls in flight, queued ones included) and "streams".
type load struct {
	running, done, failed, streams atomic.Int64

	mu     sync.Mutex
	last   sample              // guarded by mu
	report *orca.ServerMetrics // guarded by mu
	coded  string              // the report as a trailer; guarded by mu
}

// sample is the counters at a time.
type sample struct {
	at           time.Time
	done, failed int64
	cpu          time.Duration
}

var _ orca.ServerMetricsProvider = (*load)(nil)

// loadPeriod is how long a report is used.
const loadPeriod = 100 * time.Millisecond

// begin counts a call that starts.
//
// hot: one atomic operation.
func (l *load) begin() { l.running.Add(1) }

// end counts the end of a call.
//
// hot: two atomic operations, three for a failed call.
func (l *load) end(err error) {
	l.running.Add(-1)
	l.done.Add(1)
	if err != nil {
		l.failed.Add(1)
	}
}

// ServerMetrics implements orca.ServerMetricsProvider. The result is immutable.
func (l *load) ServerMetrics() *orca.ServerMetrics {
	report, _ := l.current()
	return report
}

// current returns the report and its encoding, measured at most loadPeriod ago.
func (l *load) current() (*orca.ServerMetrics, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.report != nil && now.Sub(l.last.at) < loadPeriod {
		return l.report, l.coded
	}
	next := sample{at: now, done: l.done.Load(), failed: l.failed.Load(), cpu: cpuTime()}
	l.report = l.between(&l.last, &next)
	l.last = next
	b, err := proto.Marshal(&orcapb.OrcaLoadReport{
		CpuUtilization: l.report.CPUUtilization, RpsFractional: l.report.QPS, Eps: l.report.EPS, NamedMetrics: l.report.NamedMetrics,
	})
	if l.coded = string(b); err != nil {
		l.coded = "" // an empty report changes no weight
	}
	return l.report, l.coded
}

// between returns the report of the time between two samples.
func (l *load) between(from, to *sample) *orca.ServerMetrics {
	m := &orca.ServerMetrics{AppUtilization: -1, MemUtilization: -1, NamedMetrics: map[string]float64{
		"running": float64(l.running.Load()), "streams": float64(l.streams.Load()),
	}}
	if span := to.at.Sub(from.at).Seconds(); !from.at.IsZero() && span > 0 {
		m.CPUUtilization = (to.cpu - from.cpu).Seconds() / span / float64(runtime.GOMAXPROCS(0))
		m.QPS, m.EPS = float64(to.done-from.done)/span, float64(to.failed-from.failed)/span
	}
	return m
}

// cpuTime returns the CPU time of the process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// attach sets the trailer of a call whose client asks for the load.
//
// hot: one lookup for other calls.
func (l *load) attach(ctx context.Context) {
	format := metadata.ValueFromIncomingContext(ctx, loadFormat)
	if len(format) != 1 || format[0] != "bin" {
		return
	}
	_, coded := l.current()
	_ = grpc.SetTrailer(ctx, metadata.Pairs(loadTrailer, coded)) // it fails only outside a call
}
