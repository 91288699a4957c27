package tracing

import (
	"sync"
	"sync/atomic"
)

// maxBuffered bounds the traces that are buffered, in bytes; at that size they are written to the trace file.
const maxBuffered = 1 << 20

// setting is the setting of a scope with the traces it has sampled. A setting is immutable and is replaced as a
// whole: a trace is written by the setting that sampled it.
type setting struct {
	values
	own    keys // keys that the scope sets itself
	traces bool // it may trace a request
	// follows reports whether requests with a client's trace context are always traced.
	follows bool
	file    *file // nil where traces are not written to a file

	seen atomic.Uint64 // number of requests
	left atomic.Int32  // remaining part of values.count

	mu        sync.Mutex
	buf       []byte // guarded by mu; encoded traces, separated by commas
	buffered  uint32 // guarded by mu; number of traces in buf
	collected int32  // guarded by mu; number of collected traces
	retired   bool   // guarded by mu; replaced: traces are written at once
}

func newSetting(t *Tracer, v values, own keys) *setting {
	s := &setting{values: v, own: own}
	if t.mode == ModeTriton {
		s.file = t.file
	}
	s.left.Store(v.count)
	s.traces = v.level != 0 && t.check(v) == nil
	s.follows = s.traces && t.mode == ModeOpenTelemetry
	return s
}

// current returns the values with the remaining count.
func (s *setting) current() values {
	v := s.values
	v.count = s.left.Load()
	return v
}

// sample reports whether one more request is traced: it is one in rate, and count is not used up.
//
// hot: no lock, no allocation.
func (s *setting) sample() bool {
	if !s.traces || s.rate == 0 || s.left.Load() == 0 || s.seen.Add(1)%uint64(s.rate) != 0 {
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
	case s.left.Load() == 0 && s.collected == s.count, s.frequency != 0 && s.buffered >= s.frequency:
		s.flush(true)
	case s.retired, s.frequency == 0 && len(s.buf) >= maxBuffered:
		s.flush(s.frequency != 0)
	}
}

// retire writes the buffered traces; later ones are written at once.
func (s *setting) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if s.buffered > 0 {
		s.flush(s.frequency != 0)
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
