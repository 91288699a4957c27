// Package ring stores recent traces in memory of a fixed size: four rings of whole traces, in which new traces
// replace the oldest. When a request has ended, its trace is retained if it failed, was slow, or was requested by
// its client; one in so many of the others is sampled.
//
// - store.go: Store, a tracing.Sink that selects and retains traces; the durations of a model's requests
// - ring.go: one ring, the executed batches, and queries; Store is an inspect.Inspector
// - codec.go: a record as bytes
package ring

import (
	"errors"
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// The reasons for retaining a trace. Each has a ring.
const (
	failed = iota
	slow
	requested
	sampled
	dropped
)

var reasons = [dropped]string{"failed", "slow", "requested", "sampled"}

// sixteenths is each ring's part of the memory. Requested traces have a separate ring, so that they replace only
// one another.
var sixteenths = [dropped]int64{failed: 4, slow: 4, requested: 1, sampled: 7}

// Bounds of the size of a store.
const (
	MinBytes = 1 << 20
	MaxBytes = 4 << 30
)

const maxModels = 10_000 // bounds the models whose durations are learned

// lull is the longest time without a sampled trace while there are requests: the next request is sampled then. Thus
// a server with few requests has some traces.
const lull = 100 * time.Millisecond

// Store retains finished traces. It is a tracing.Sink and an inspect.Inspector, safe for concurrent use.
type Store struct {
	bytes      int64
	epoch      int64 // ns since 1970 at which telemetry.Now was 0
	sampling   atomic.Pointer[inspect.Sampling]
	rings      [dropped]ring
	seq        atomic.Uint64
	passed     atomic.Uint64 // requests that neither failed nor were slow
	latest     atomic.Int64  // when one of them was sampled
	batches    batches
	buffers    pool.Of[[]byte]
	onRetained func(*tracing.Record, int64)

	models atomic.Pointer[map[string]*model]
	mu     sync.Mutex // serializes writers of models
}

// New returns a store of a size in bytes. The system provides its memory as it is used.
func New(bytes int64, sampling inspect.Sampling) (*Store, error) {
	if bytes < MinBytes || bytes > MaxBytes {
		return nil, status.Errorf(status.InvalidArg, "invalid size of the trace store: %d bytes, expected %d to %d", bytes, MinBytes, MaxBytes)
	}
	s := &Store{bytes: bytes, epoch: telemetry.Epoch()}
	s.batches.list = make([]tracing.Batch, maxBatches)
	s.models.Store(&map[string]*model{})
	s.sampling.Store(&sampling)
	for i, part := range sixteenths {
		if err := s.rings[i].open(bytes / 16 * part); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close releases the memory. No trace is retained or found afterwards.
func (s *Store) Close() error {
	var errs []error
	for i := range s.rings {
		errs = append(errs, s.rings[i].close())
	}
	return errors.Join(errs...)
}

// Trace implements tracing.Sink.
//
// hot: a trace that is not retained costs a lock per step and no allocation.
func (s *Store) Trace(t *tracing.Trace) {
	r := t.Record()
	start, end := r.Bounds()
	s.count(r, end-start, end)
	if why := s.classify(r, end-start, end); why < dropped {
		buf := s.buffers.Get()
		*buf = appendRecord((*buf)[:0], r)
		s.rings[why].put(&header{seq: s.seq.Add(1), id: r.ID, duration: end - start, at: r.UnixMicro(start)}, *buf)
		s.buffers.Put(buf)
		if s.onRetained != nil {
			s.onRetained(r, end-start)
		}
	}
}

// OnRetained sets a function that is called with each retained trace and its duration in nanoseconds. It must be
// set before the first trace. The function borrows the record.
func (s *Store) OnRetained(f func(r *tracing.Record, duration int64)) { s.onRetained = f }

// Batch implements tracing.Sink.
func (s *Store) Batch(b *tracing.Batch) { s.batches.put(b) }

// classify returns the ring of a trace, or dropped. A trace whose tensors were captured is always retained.
func (s *Store) classify(r *tracing.Record, duration, now int64) int {
	set := s.sampling.Load()
	switch {
	case r.Failed:
		if set.Failed {
			return failed
		}
	case s.model(r.Model).slow(duration, now) && set.Slow:
		return slow
	}
	switch {
	case r.Retain:
		return requested
	case r.Captured:
		return sampled
	case set.Every == 0:
		return dropped
	}
	latest := s.latest.Load()
	due := now-latest > int64(lull) && s.latest.CompareAndSwap(latest, now)
	if n := s.passed.Add(1); n%uint64(set.Every) == 0 || due {
		return sampled
	}
	return dropped
}

// count adds the durations of a request and its steps to those of their models. A request that no model accepted is
// not counted: it may have any model name.
func (s *Store) count(r *tracing.Record, duration, now int64) {
	if r.Failed && r.First(tracing.RequestStart) == 0 {
		return
	}
	for i := range r.Steps {
		if x := &r.Steps[i]; !x.Single {
			s.model(x.Model).observe(x.Done-x.Enqueued, now)
		}
	}
	s.model(r.Model).observe(duration, now)
}

// model returns the durations of a model. Models beyond maxModels share one.
//
// hot: one map lookup.
func (s *Store) model(name string) *model {
	if m := (*s.models.Load())[name]; m != nil {
		return m
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.models.Load()
	if len(old) >= maxModels {
		name = ""
	}
	if m := old[name]; m != nil {
		return m
	}
	next := maps.Clone(old)
	next[name] = &model{}
	s.models.Store(&next)
	return next[name]
}

// Quantiles returns the median and the 99th percentile of the durations of a model's
// requests and steps in the last minute, in ns; 0 when there were none.
func (s *Store) Quantiles(name string) (p50, p99 int64) {
	if m := (*s.models.Load())[name]; m != nil {
		return m.quantiles(telemetry.Now())
	}
	return 0, 0
}

// QuantilesBetween returns the median and the 99th percentile of the durations of a model's requests and steps that ended between two times of
// telemetry.Now, which are rounded down to 10 seconds and at most a minute ago; 0 when there were none.
func (s *Store) QuantilesBetween(name string, from, to int64) (p50, p99 int64) {
	if m := (*s.models.Load())[name]; m != nil {
		return m.between(from/windowNs, to/windowNs)
	}
	return 0, 0
}

const buckets = 4 * 44 // the number of classes of durations: four per power of two

// model holds the durations of a model's requests and steps. All is guarded by mu.
type model struct {
	mu      sync.Mutex
	p99     int64 // an estimate of the 99th percentile of requests
	seen    uint32
	minute  int64
	slowest int64 // slowest of the minute
	windows [windows]window
}

// A model has windows of windowNs each: the last minute and the current one.
const (
	windows  = 7
	windowNs = int64(10 * time.Second)
)

// window counts the durations of one interval by class.
type window struct {
	number  int64
	classes [buckets]uint32
}

const learning = 200 // the number of requests of a model before its 99th percentile is used

// slow counts the duration of one request and reports whether it is slow: the slowest of its minute so far, or
// above the estimated 99th percentile.
func (m *model) slow(duration, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	beyond := m.seen > learning && duration > m.p99
	m.learn(duration)
	minute := now / int64(time.Minute)
	if minute != m.minute {
		m.minute, m.slowest = minute, -1
	}
	if duration <= m.slowest {
		return beyond
	}
	m.slowest = duration
	return true
}

// learn updates the estimate: up by a large step after a longer duration, down by a 99th of that step otherwise. It
// is therefore stable where one in a hundred durations is longer. For example, an estimate of 100 ms moves up by 2
// ms and down by 0.02 ms.
func (m *model) learn(duration int64) {
	if m.seen == 0 {
		m.p99 = duration
	}
	if m.seen <= learning {
		m.seen++
		m.p99 = max(m.p99, duration)
		return
	}
	step := max(m.p99/50, 1)
	if duration > m.p99 {
		m.p99 += step
	} else {
		m.p99 -= step / 99
	}
}

func (m *model) observe(duration, now int64) {
	number := now / windowNs
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &m.windows[number%windows]
	if w.number != number {
		*w = window{number: number}
	}
	w.classes[class(duration)]++
}

func class(ns int64) int {
	if ns < 8 {
		return 0
	}
	e := bits.Len64(uint64(ns))
	return min((e-3)*4+int(uint64(ns)>>(e-3)&3), buckets-1)
}

func middle(c int) int64 {
	e := c/4 + 3
	low := int64(4+c%4) << (e - 3)
	return low + int64(1)<<(e-3)/2
}

// quantiles returns the median and the 99th percentile of the last minute.
func (m *model) quantiles(now int64) (p50, p99 int64) {
	number := now / windowNs
	return m.between(number-windows+1, number+1)
}

// between returns them of the windows with numbers from and below to.
func (m *model) between(from, to int64) (p50, p99 int64) {
	var classes [buckets]uint64
	m.mu.Lock()
	for i := range m.windows {
		w := &m.windows[i]
		if w.number < from || w.number >= to {
			continue
		}
		for c, n := range w.classes {
			classes[c] += uint64(n)
		}
	}
	m.mu.Unlock()
	return quantile(&classes, 0.5), quantile(&classes, 0.99)
}

// quantile returns the duration that the given share does not exceed, with an error of at most an eighth.
func quantile(classes *[buckets]uint64, share float64) int64 {
	total := uint64(0)
	for _, k := range classes {
		total += k
	}
	want, sum := uint64(share*float64(total)), uint64(0)
	for c, k := range classes {
		if sum += k; sum > want {
			return middle(c)
		}
	}
	return 0
}
