package tracing

import "github.com/tutti-server/tutti/internal/telemetry"

// Span is when something began and ended of a request of which it is not known yet
// whether it is traced, on the clock of telemetry.Now. It is zero when no request may be.
type Interval struct{ Began, Ended int64 }

// Begin returns a span that begins now.
//
// hot: one atomic load when nothing is traced.
func (t *Tracer) Begin() Interval {
	if !t.On() {
		return Interval{}
	}
	return Interval{Began: telemetry.Now()}
}

// End ends the span now.
func (s *Interval) End() {
	if s.Began != 0 {
		s.Ended = telemetry.Now()
	}
}

// Stamp records a span that has ended in a trace, as both its ends. It does so once:
// what has several answers was still received only once.
func (s *Interval) Stamp(t *Trace, start, end Point) {
	if t == nil || s.Ended == 0 {
		return
	}
	t.Stamp(start, s.Began)
	t.Stamp(end, s.Ended)
	*s = Interval{}
}

// Origin is how a request came, as the front end knows it.
type Origin struct {
	// Read is when it was read; Start and Done are the points that its ends are.
	Read        Interval
	Start, Done Point
	// ID, Parent and State are the caller's trace context; a zero ID for none.
	ID     TraceID
	Parent SpanID
	State  string
	// Retain tells that the caller asks for the trace to be stored.
	Retain bool
	// Caller is the number of the trace or step that calls from within this server, 0 for
	// a client's request.
	Caller uint64
}

// Call makes the request part of the trace of the model that sends it: c is the context
// of the calling step. A zero context leaves the request on its own.
func (o *Origin) SetCaller(c *Context) {
	o.ID, o.Parent, o.State, o.Caller = c.ID, c.Span, c.State, c.Number
}

// From records how the request came, and has it follow the caller's trace.
func (t *Trace) SetOrigin(o *Origin) {
	if t == nil {
		return
	}
	o.Read.Stamp(t, o.Start, o.Done)
	if o.ID != (TraceID{}) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rec.ID, t.rec.Parent, t.rec.State, t.rec.Caller = o.ID, o.Parent, o.State, o.Caller
	}
}
