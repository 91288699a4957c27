package tracing

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// maxBuffered bounds the traces that are buffered, in bytes; at that size they are written to the trace file.
const maxBuffered = 1 << 20

// setting is the setting of a scope with the traces it has sampled. A setting is immutable and is replaced as a
// whole: a trace is written by the setting that sampled it.
type setting struct {
	values
	own     [numKeys]bool // the scope sets the value itself
	traces  bool          // it may trace a request
	follows bool          // reports whether requests with a client's trace context are always traced
	file    *file         // nil where traces are not written to a file

	seen atomic.Uint64 // number of requests
	left atomic.Int64  // remaining part of the count

	mu        sync.Mutex
	buf       []byte // guarded by mu; encoded traces, separated by commas
	buffered  int64  // guarded by mu; number of traces in buf
	collected int64  // guarded by mu; number of collected traces
	retired   bool   // guarded by mu; replaced: traces are written at once
}

func newSetting(t *Tracer, v values, own [numKeys]bool) *setting {
	s := &setting{values: v, own: own}
	if t.mode == ModeTriton {
		s.file = t.file
	}
	s.left.Store(v[keyCount])
	s.traces = v[keyLevel] != 0 && t.check(v) == nil
	s.follows = s.traces && t.mode == ModeOpenTelemetry
	return s
}

func (s *setting) current() values {
	v := s.values
	v[keyCount] = s.left.Load()
	return v
}

// sample reports whether one more request is traced: it is one in rate, and count is not used up.
//
// hot: no lock, no allocation.
func (s *setting) sample() bool {
	if !s.traces || s.values[keyRate] == 0 || s.left.Load() == 0 || s.seen.Add(1)%uint64(s.values[keyRate]) != 0 {
		return false
	}
	for {
		left := s.left.Load()
		if left <= 0 {
			return left < 0
		}
		if s.left.CompareAndSwap(left, left-1) {
			return true
		}
	}
}

// collect takes one finished trace for the trace file. The buffered traces are written to an indexed file when the
// log frequency or the count is reached, and to the trace file when they exceed maxBuffered.
func (s *setting) collect(t *Trace) {
	if s.file == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffered > 0 {
		s.buf = append(s.buf, ',')
	}
	s.buf = t.encode(s.buf)
	s.buffered++
	s.collected++
	switch {
	case s.left.Load() == 0 && s.collected == s.values[keyCount], s.values[keyFrequency] != 0 && s.buffered >= s.values[keyFrequency]:
		s.flush(true)
	case s.retired, s.values[keyFrequency] == 0 && len(s.buf) >= maxBuffered:
		s.flush(s.values[keyFrequency] != 0)
	}
}

// retire writes the buffered traces; later ones are written at once.
func (s *setting) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if s.buffered > 0 {
		s.flush(s.values[keyFrequency] != 0)
	}
}

// flush writes the buffered traces. The caller holds mu.
func (s *setting) flush(indexed bool) {
	if indexed {
		s.file.writeIndexed(s.buf)
	} else {
		s.file.write(s.buf)
	}
	s.buf, s.buffered = s.buf[:0], 0
}

// quota limits a rate to a number per stretch of time. Above the limit it reads the clock only once in clockEveryN
// calls.
type quota struct {
	each  int64 // per stretch, 0 for no limit
	left  atomic.Int64
	until atomic.Int64 // end of the stretch
}

const (
	stretch     = int64(10_000_000) // ns
	stretches   = 100               // in a second
	clockEveryN = 64
)

func (q *quota) open(perSecond int) {
	if perSecond > 0 {
		q.each = int64(max(perSecond/stretches, 1))
		q.left.Store(q.each)
	}
}

// take reports whether one more is within the quota.
//
// hot: no lock, no allocation.
func (q *quota) take() bool {
	if q.each == 0 {
		return true
	}
	left := q.left.Add(-1)
	if left >= 0 {
		return true
	}
	if left%clockEveryN != -1 {
		return false
	}
	now, until := telemetry.Now(), q.until.Load()
	if now < until || !q.until.CompareAndSwap(until, now+stretch) {
		return false
	}
	q.left.Store(q.each - 1)
	return true
}

// maxRetained limits the requests whose clients ask for their traces to be retained: the size of a burst, and the
// rate per second. People send few; the limit protects the store.
const maxRetained = 20

// allowance enforces maxRetained. A quota would be too coarse: above its limit it rarely reads the clock.
type allowance struct{ due atomic.Int64 }

func (a *allowance) take(now int64) bool {
	const second, each = int64(1_000_000_000), int64(1_000_000_000) / maxRetained
	for {
		at := a.due.Load()
		due := max(at, now) + each
		if due > now+second {
			return false
		}
		if a.due.CompareAndSwap(at, due) {
			return true
		}
	}
}

const maxRefusedText = 256 // bounds the client's texts in the record of a refused request, in bytes

// RecordRefusal sends the sinks the record of a request that failed before a model accepted it, at the end of
// o.Read. For example, its body could not be decoded, or it names an unknown model. Version is 0 if it is unknown.
// The record has no RequestStart.
func (t *Tracer) RecordRefusal(model string, version int64, id string, o *Origin, err error) {
	if t == nil || o.Read.Ended == 0 || !t.all.Load() {
		return
	}
	x := t.newTrace(nil, refusedText(model), version, refusedText(id))
	x.rec.Began, x.rec.BeganAt = t.epoch+o.Read.Began, o.Read.Began
	x.SetOrigin(o)
	x.Fail(err)
	x.End()
}

// refusedText returns a client's text for a record: shortened, and valid UTF-8.
func refusedText(s string) string {
	if len(s) > maxRefusedText {
		s = s[:maxRefusedText]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// RecordFailure sends the sinks the record of a failed request that was not sampled. It has no steps. Started is a
// time of telemetry.Now.
func (t *Tracer) RecordFailure(model string, version int64, id string, started int64, o *Origin, err error) {
	if t == nil || !t.all.Load() {
		return
	}
	x := t.newTrace(nil, model, version, id)
	x.SetOrigin(o)
	x.Stamp(RequestStart, started)
	x.Fail(err)
	x.Stamp(RequestEnd, telemetry.Now())
	x.End()
}
