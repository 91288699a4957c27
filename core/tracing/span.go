package tracing

import "tutti/core/telemetry"

// Span is when something began and ended of a request of which it is not known yet
// whether it is traced. It is zero when no request may be.
type Span struct{ start, end int64 }

// Begin returns a span that begins now.
//
// hot: one atomic load when nothing is traced.
func (t *Tracer) Begin() Span {
	if !t.On() {
		return Span{}
	}
	return Span{start: telemetry.Now()}
}

// End ends the span now.
func (s *Span) End() {
	if s.start != 0 {
		s.end = telemetry.Now()
	}
}

// Stamp records a span that has ended in a trace, under names for both its ends. It
// does so once: what has several answers was still received only once.
func (s *Span) Stamp(t *Trace, start, end string) {
	if t == nil || s.end == 0 {
		return
	}
	t.Stamp(start, s.start)
	t.Stamp(end, s.end)
	*s = Span{}
}

// Mark records that something happens now.
//
// hot: nothing when the request is not traced.
func (t *Trace) Mark(name string) {
	if t != nil {
		t.Stamp(name, telemetry.Now())
	}
}
