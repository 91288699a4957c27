package ring

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// The reasons for which a trace is kept, each a ring.
const (
	failed = iota
	slow
	requested
	sampled
	dropped
)

var reasons = [dropped]string{"failed", "slow", "requested", "sampled"}

// sixteenths is how much of the memory each ring has. What clients ask for has its own,
// so that they drop nothing but what was asked for before.
var sixteenths = [dropped]int64{failed: 4, slow: 4, requested: 1, sampled: 7}

// Bounds of the size of a store.
const (
	MinBytes = 1 << 20
	MaxBytes = 4 << 30
)

// maxModels is how many models are learned about.
const maxModels = 10_000

// lull is how long nothing may be sampled while there are requests: then the next is,
// whichever it is, so that a server with few requests shows some.
const lull = 100 * time.Millisecond

// Store keeps finished traces. It is a tracing.Sink and an inspect.Inspector.
type Store struct {
	bytes    int64
	epoch    int64 // ns since 1970 at which telemetry.Now was 0
	sampling atomic.Pointer[inspect.Sampling]
	rings    [dropped]ring
	seq      atomic.Uint64
	passed   atomic.Uint64 // requests that neither failed nor were slow
	latest   atomic.Int64  // when one of them was sampled
	batches  batches
	buffers  pool.Of[[]byte]
	kept     func(*tracing.Record, int64)

	models atomic.Pointer[map[string]*model]
	mu     sync.Mutex // held by who adds a model
}

var (
	_ tracing.Sink      = (*Store)(nil)
	_ inspect.Inspector = (*Store)(nil)
)

// New returns a store of so many bytes. The memory is taken as it is used.
func New(bytes int64, sampling inspect.Sampling) (*Store, error) {
	if bytes < MinBytes || bytes > MaxBytes {
		return nil, status.Errorf(status.InvalidArg, "invalid size of the trace store: %d bytes, expected %d to %d", bytes, MinBytes, MaxBytes)
	}
	s := &Store{bytes: bytes, epoch: time.Now().UnixNano() - telemetry.Now()}
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

// Close gives the memory back; nothing is kept or found any more.
func (s *Store) Close() error {
	var errs []error
	for i := range s.rings {
		errs = append(errs, s.rings[i].close())
	}
	return errors.Join(errs...)
}

// Trace implements tracing.Sink.
//
// hot: a trace that is not kept costs a lock per step and no allocation.
func (s *Store) Trace(t *tracing.Trace) {
	r := t.Record()
	start, end := r.Bounds()
	s.count(r, end-start, end)
	if why := s.judge(r, end-start, end); why < dropped {
		s.keep(&s.rings[why], r, start, end)
		if s.kept != nil {
			s.kept(r, end-start)
		}
	}
}

// OnKept has f called with each trace that is kept and how long its request took, in
// nanoseconds. It is set before the first trace comes; the record is borrowed.
func (s *Store) OnRetained(f func(r *tracing.Record, took int64)) { s.kept = f }

// Batch implements tracing.Sink.
func (s *Store) Batch(b *tracing.Batch) { s.batches.put(b) }

// judge decides what becomes of a trace. One whose tensors were kept is kept, too.
func (s *Store) judge(r *tracing.Record, took, now int64) int {
	set := s.sampling.Load()
	switch {
	case r.Failed:
		if set.Failed {
			return failed
		}
	case s.model(r.Model).slow(took, now) && set.Slow:
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

// keep puts a trace into a ring.
func (s *Store) keep(g *ring, r *tracing.Record, start, end int64) {
	buf := s.buffers.Get()
	*buf = appendRecord((*buf)[:0], r)
	g.put(&header{seq: s.seq.Add(1), id: r.ID, took: end - start, at: r.UnixMicro(start)}, *buf)
	s.buffers.Put(buf)
}

// count adds the durations of a request and its steps to those of their models. What no
// model had says nothing of one, and may name any.
func (s *Store) count(r *tracing.Record, took, now int64) {
	if r.Failed && r.First(tracing.RequestStart) == 0 {
		return
	}
	for i := range r.Steps {
		if x := &r.Steps[i]; !x.Single {
			s.model(x.Model).observe(x.Done-x.Enqueued, now)
		}
	}
	s.model(r.Model).observe(took, now)
}

// model returns what is known of a model. Of too many the others share one.
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
	m := &model{}
	next[name] = m
	s.models.Store(&next)
	return m
}

// Quantiles returns the median and the 99th percentile of the durations of a model's
// requests and steps in the last minute, in ns; 0 when there were none.
func (s *Store) Quantiles(name string) (p50, p99 int64) {
	if m := (*s.models.Load())[name]; m != nil {
		return m.quantiles(telemetry.Now())
	}
	return 0, 0
}
