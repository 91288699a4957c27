package benchmark

import (
	"cmp"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tutti-server/tutti/internal/load"
)

// The histograms count units of 100 ns, up to an hour, with three digits.
const (
	unit    = 100 * time.Nanosecond
	longest = int64(time.Hour / unit)
	digits  = 3
)

// Failures are the errors of one kind.
type Failures struct {
	Kind    string `json:"kind"` // for example "HTTP 503", "Unavailable" or "connection refused"
	Count   int64  `json:"count"`
	Example string `json:"example"` // the text of the first one
}

// record has the latencies and errors of an interval.
type record struct {
	began   time.Time
	elapsed time.Duration
	latency *hdrhistogram.Histogram
	// first has the latencies of the first responses, and responses is the number of all, of requests over streams; nil and 0 otherwise.
	first     *hdrhistogram.Histogram
	responses int64
	failures  map[string]*Failures
	failed    int64
	lost      int64 // of failed, those without any response
}

func newRecord(began time.Time) *record {
	return &record{began: began, latency: newHistogram(), failures: map[string]*Failures{}}
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, digits) }

// units returns a latency in units of the histograms, within their range.
func units(latency time.Duration) int64 {
	return min(max(int64((latency+unit/2)/unit), 1), longest)
}

// add merges a later interval.
func (r *record) add(o *record) {
	r.elapsed += o.elapsed
	r.latency.Merge(o.latency)
	if r.responses += o.responses; o.first != nil {
		if r.first == nil {
			r.first = newHistogram()
		}
		r.first.Merge(o.first)
	}
	r.failed, r.lost = r.failed+o.failed, r.lost+o.lost
	for kind, f := range o.failures {
		if have := r.failures[kind]; have != nil {
			have.Count += f.Count
		} else {
			r.failures[kind] = new(*f)
		}
	}
}

// kinds returns the errors, the most frequent kind first.
func (r *record) kinds() []Failures {
	var list []Failures
	for _, f := range r.failures {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b Failures) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind)) })
	return list
}

// recorder collects what the clients of a session see. It is safe for concurrent use.
type recorder struct {
	mu  sync.Mutex
	now *record // guarded by mu
}

// success counts a response.
func (r *recorder) success(latency time.Duration) {
	n := units(latency)
	r.mu.Lock()
	_ = r.now.latency.RecordValue(n) // n is in its range
	r.mu.Unlock()
}

// responses counts the responses of a request over a stream. first is the latency of the first one, if there is any.
func (r *recorder) responses(n int, first time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.first == nil {
		r.now.first = newHistogram()
	}
	if r.now.responses += int64(n); n > 0 {
		_ = r.now.first.RecordValue(units(first)) // which is in its range
	}
}

// failure counts an error.
func (r *recorder) failure(err error) {
	kind, lost := kindOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.failed++; lost {
		r.now.lost++
	}
	f := r.now.failures[kind]
	if f == nil {
		f = &Failures{Kind: kind, Example: err.Error()}
		r.now.failures[kind] = f
	}
	f.Count++
}

// cut ends the interval and returns it.
func (r *recorder) cut() *record {
	now := time.Now()
	next := newRecord(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.now
	r.now, last.elapsed = next, now.Sub(last.began)
	return last
}

// kindOf names the kind of an error, and reports whether no response came.
func kindOf(err error) (kind string, lost bool) {
	if refused, ok := errors.AsType[*load.ResponseError](err); ok {
		switch len(refused.Code) {
		case 0:
			return "error message", false
		case 3:
			return "HTTP " + refused.Code, false
		}
		return refused.Code, false
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "connection lost", true
	case ok && timeout.Timeout():
		return "timeout", true
	}
	return "no response", true
}

// Latency has the distribution of latencies.
type Latency struct {
	Mean float64 `json:"mean_us"`
	Min  float64 `json:"min_us"`
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P95  float64 `json:"p95_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

func micros(units float64) float64 { return units * float64(unit) / float64(time.Microsecond) }

// summary returns the distribution of a record.
func (r *record) summary() Latency { return summarise(r.latency) }

// streamed returns what a record has of requests over streams.
func (r *record) streamed() *Streamed {
	if r.first == nil {
		return nil
	}
	return &Streamed{Responses: r.responses, First: summarise(r.first)}
}

// Streamed has the responses of requests that may have several.
type Streamed struct {
	Responses int64   `json:"responses"`      // to all successful requests
	First     Latency `json:"first_response"` // from the arrival of a request to its first response
}

func summarise(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(q float64) float64 { return micros(float64(h.ValueAtQuantile(q))) }
	return Latency{
		Mean: micros(h.Mean()), Min: micros(float64(h.Min())), P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9),
		Max: micros(float64(h.Max())),
	}
}

// curve returns points of the distribution for the plot of percentiles.
func (r *record) curve() []Quantile {
	var list []Quantile
	n := float64(r.latency.TotalCount())
	for beyond := 1.0; n > 0 && beyond*n >= 1; beyond /= 1.5 {
		list = append(list, Quantile{Quantile: 1 - beyond, Micros: micros(float64(r.latency.ValueAtQuantile(100 * (1 - beyond))))})
	}
	return list
}

// Quantile is a point of a distribution: the latency that a share of the requests does not exceed.
type Quantile struct {
	Quantile float64 `json:"quantile"`
	Micros   float64 `json:"us"`
}

// rate returns the successful requests per second.
func (r *record) rate() float64 {
	if r.elapsed <= 0 {
		return 0
	}
	return float64(r.latency.TotalCount()) / r.elapsed.Seconds()
}
