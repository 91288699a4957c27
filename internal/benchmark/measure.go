package benchmark

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
)

// Plan describes a measurement. The zero value of a field selects its default.
type Plan struct {
	// Warmup is the time before the measurement.
	Warmup time.Duration
	// Window is the length of a window, a second by default. It is longer, up to ten times, while fewer than 50 responses came.
	Window time.Duration
	// Windows is the most windows that are measured until three in a row agree, 10 by default.
	Windows int
	// Tolerance is the deviation from their mean within which windows agree, 0.1 by default.
	Tolerance float64
	// Duration, unless 0, is the length of the measurement, whether windows agree or not.
	Duration time.Duration
	// Lost is the time without any response, but with errors, after which the server counts as lost, 5 s by default.
	Lost time.Duration
	// Statistics returns the statistics of the server's models; nil for none.
	Statistics func(ctx context.Context) ([]infer.Statistics, error)
	// Progress is called after each tick of the measurement; nil for no one.
	Progress func(p Progress)
}

// Progress is the state of a measurement under way.
type Progress struct {
	Warmup   bool
	Windows  int // that are complete
	Rate     float64
	P50, P99 float64 // microseconds
	Failed   int64
}

const (
	agreeing   = 3  // windows in a row that must agree
	leastCount = 50 // responses of a window
	longWindow = 10 // how many times longer than Window a window may be
	ticks      = 5  // of a window
	lostAfter  = 5 * time.Second
	// statisticsLimit bounds a request for statistics.
	statisticsLimit = 2 * time.Second
)

func (p *Plan) defaults() Plan {
	d := *p
	if d.Window <= 0 {
		d.Window = time.Second
	}
	if d.Windows <= 0 {
		d.Windows = 10
	}
	if d.Tolerance <= 0 {
		d.Tolerance = 0.1
	}
	if d.Lost <= 0 {
		d.Lost = lostAfter
	}
	if d.Progress == nil {
		d.Progress = func(Progress) {}
	}
	return d
}

// Result is the measurement of one load.
type Result struct {
	Clients    int        `json:"clients"`
	Rate       float64    `json:"rate,omitempty"` // of arrivals per second in an open loop
	Seconds    float64    `json:"seconds"`
	Requests   int64      `json:"requests"`           // with a successful response
	Throughput float64    `json:"throughput"`         // successful responses per second
	Latency    Latency    `json:"latency"`            // until the last response
	Streamed   *Streamed  `json:"streamed,omitempty"` // of requests over streams
	Failed     int64      `json:"failed"`
	Failures   []Failures `json:"failures,omitempty"`
	// Stable reports that windows agreed. It is nil when the duration was given.
	Stable      *bool    `json:"stable,omitempty"`
	Windows     []Window `json:"windows"`
	Interrupted bool     `json:"interrupted,omitempty"`
	// Backlog is how far, in seconds, the requests of an open loop were behind their arrivals at the end.
	Backlog float64 `json:"backlog_seconds,omitempty"`
	// Cores is the CPU time of this program, in cores.
	Cores     float64    `json:"client_cores"`
	Steps     []Step     `json:"steps,omitempty"` // of the server, by its statistics
	Quantiles []Quantile `json:"quantiles"`
	Points    []Point    `json:"points"` // over time
}

// Window is one window of a measurement.
type Window struct {
	Seconds    float64 `json:"seconds"`
	Throughput float64 `json:"throughput"`
	Mean       float64 `json:"mean_us"`
	P99        float64 `json:"p99_us"`
	Failed     int64   `json:"failed"`
}

// Point is a short interval of a measurement.
type Point struct {
	At         float64 `json:"at"` // seconds since the begin of the measurement
	Throughput float64 `json:"throughput"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
}

// LostError is the error of a measurement in which the server stopped responding.
type LostError struct {
	After   time.Duration
	Example string // an error of a request
}

// Error describes the loss.
func (e *LostError) Error() string {
	return fmt.Sprintf("the server is lost: no request got a response for %v: %s", e.After, e.Example)
}

// measurement is a Measure under way.
type measurement struct {
	s       *Session
	plan    Plan
	began   time.Time
	windows []*window
	points  []Point
	silent  time.Duration // how long no response has come, with errors
}

// window is a window and the statistics at its begin.
type window struct {
	*record
	before []infer.Statistics
	cpu    time.Duration
}

// Measure warms up and measures. When ctx is done, or with a LostError, the result has what was measured until then.
func (s *Session) Measure(ctx context.Context, p *Plan) (*Result, error) {
	m := &measurement{s: s, plan: p.defaults()}
	if err := s.begin(); err != nil {
		return nil, err
	}
	err := m.run(ctx)
	if s.load.Rate > 0 {
		defer func() { s.arrivals = nil }()
	}
	backlog := time.Duration(0)
	if s.arrivals != nil {
		backlog = s.arrivals.backlog()
	}
	after, cpu := m.statistics(ctx), cpuTime()
	if ctx.Err() != nil || err != nil {
		s.Interrupt()
	}
	err = errors.Join(err, s.end())
	r := m.result(after, cpu)
	r.Interrupted, r.Backlog = ctx.Err() != nil, backlog.Seconds()
	return r, err
}

// run measures windows until they are enough. A done ctx is no error.
func (m *measurement) run(ctx context.Context) error {
	if m.plan.Warmup > 0 {
		warm := &window{record: newRecord(time.Now())}
		if err := m.fill(ctx, warm, m.plan.Warmup, 0, true); err != nil || ctx.Err() != nil {
			return err
		}
	}
	m.s.rec.cut()
	m.began = time.Now()
	length, count := m.plan.Window, m.plan.Windows
	if m.plan.Duration > 0 {
		count = max(1, int(m.plan.Duration/m.plan.Window))
		length = m.plan.Duration / time.Duration(count)
	}
	for len(m.windows) < count && ctx.Err() == nil {
		w := &window{before: m.statistics(ctx), cpu: cpuTime(), record: newRecord(time.Now())}
		m.windows = append(m.windows, w)
		most := longWindow * length
		if m.plan.Duration > 0 {
			most = length
		}
		if err := m.fill(ctx, w, length, most, false); err != nil {
			return err
		}
		if m.plan.Duration <= 0 && m.stable() {
			return nil
		}
	}
	return nil
}

// fill measures until a window has the given length, and up to most while it has too few responses.
func (m *measurement) fill(ctx context.Context, w *window, length, most time.Duration, warmup bool) error {
	tick := time.NewTicker(max(length/ticks, 10*time.Millisecond))
	defer tick.Stop()
	for w.elapsed < length-time.Millisecond || w.elapsed < most && w.latency.TotalCount() < leastCount {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		r := m.s.rec.cut()
		w.add(r)
		p := r.summary()
		if !warmup {
			m.points = append(m.points, Point{At: time.Since(m.began).Seconds(), Throughput: r.rate(), P50: p.P50, P99: p.P99})
		}
		m.plan.Progress(Progress{Warmup: warmup, Windows: max(0, len(m.windows)-1), Rate: r.rate(), P50: p.P50, P99: p.P99, Failed: w.failed})
		if err := m.lost(r); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// lost returns an error when the server has not responded for long.
func (m *measurement) lost(r *record) error {
	switch {
	case r.latency.TotalCount() > 0 || r.failed > r.lost:
		m.silent = 0
	case r.lost > 0 || m.silent > 0:
		m.silent += r.elapsed
	}
	if m.silent < m.plan.Lost {
		return nil
	}
	example := "the requests under way have no response"
	if kinds := r.kinds(); len(kinds) > 0 {
		example = kinds[0].Example
	}
	return &LostError{After: m.plan.Lost, Example: example}
}

// stable reports whether the last windows agree in throughput and mean latency.
func (m *measurement) stable() bool {
	if len(m.windows) < agreeing {
		return false
	}
	last := m.windows[len(m.windows)-agreeing:]
	agree := func(value func(*window) float64) bool {
		mean := 0.0
		for _, w := range last {
			mean += value(w) / agreeing
		}
		for _, w := range last {
			if math.Abs(value(w)-mean) > m.plan.Tolerance*mean {
				return false
			}
		}
		return mean > 0
	}
	return agree(func(w *window) float64 { return w.rate() }) && agree(func(w *window) float64 { return w.latency.Mean() })
}

// statistics returns the server's, nil if it has none.
func (m *measurement) statistics(ctx context.Context) []infer.Statistics {
	if m.plan.Statistics == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statisticsLimit) // an interrupted measurement has them, too
	defer cancel()
	list, err := m.plan.Statistics(ctx)
	if err != nil {
		return nil
	}
	return list
}

// result summarises the windows: the last ones until windows agree, all of a given duration.
func (m *measurement) result(after []infer.Statistics, cpu time.Duration) *Result {
	r := &Result{Clients: m.s.load.Clients, Rate: m.s.load.Rate, Points: m.points}
	for _, w := range m.windows {
		r.Windows = append(r.Windows, Window{
			Seconds: w.elapsed.Seconds(), Throughput: w.rate(), Mean: micros(w.latency.Mean()), P99: micros(float64(w.latency.ValueAtQuantile(99))), Failed: w.failed,
		})
	}
	counted := m.windows
	if m.plan.Duration <= 0 {
		r.Stable = new(m.stable())
		counted = counted[max(0, len(counted)-agreeing):]
	}
	if len(counted) == 0 {
		return r
	}
	all := newRecord(counted[0].began)
	for _, w := range counted {
		all.add(w.record)
	}
	r.Seconds, r.Requests, r.Throughput, r.Latency = all.elapsed.Seconds(), all.latency.TotalCount(), all.rate(), all.summary()
	r.Failed, r.Failures, r.Quantiles, r.Streamed = all.failed, all.kinds(), all.curve(), all.streamed()
	if all.elapsed > 0 {
		r.Cores = (cpu - counted[0].cpu).Seconds() / all.elapsed.Seconds()
	}
	r.Steps = Steps(counted[0].before, after)
	return r
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
