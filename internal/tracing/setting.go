package tracing

import (
	"sync"
	"sync/atomic"
)

// maxBuffered is how many bytes of traces wait in memory; more go to the trace file.
const maxBuffered = 1 << 20

// setting is the setting of a scope with the requests it has sampled. It is replaced
// as a whole: a trace is written as was set when its request was sampled.
type setting struct {
	values
	own    keys // what the scope sets itself
	traces bool // there is something to trace, and it can be
	// follows tells whether requests that follow a client's trace are always traced.
	follows bool
	file    *file // nil where traces do not go to a file

	seen atomic.Uint64 // requests
	left atomic.Int32  // of values.count

	mu        sync.Mutex
	buf       []byte // guarded by mu; written traces, with commas between
	buffered  uint32 // guarded by mu; how many
	collected int32  // guarded by mu; how many ever
	retired   bool   // guarded by mu; replaced, so nothing waits for more
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

// current returns the values with the count as it is now.
func (s *setting) current() values {
	v := s.values
	v.count = s.left.Load()
	return v
}

// sample decides about one more request: it is traced when it is the next of rate
// requests and count allows.
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

// collect takes one finished trace for the trace file. What waits goes to a file of its own when the log
// frequency or the count is reached, and to the trace file when it grows too long.
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

// retire writes what waits; what is still to come will not wait.
func (s *setting) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if s.buffered > 0 {
		s.flush(s.frequency != 0)
	}
}

// flush writes what waits; mu is held.
func (s *setting) flush(indexed bool) {
	if indexed {
		s.file.writeIndexed(s.buf)
	} else {
		s.file.write(s.buf)
	}
	s.buf, s.buffered = s.buf[:0], 0
}
