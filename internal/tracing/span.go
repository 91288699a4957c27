package tracing

import "github.com/tutti-server/tutti/internal/telemetry"

// Interval is a time span measured before the request is sampled, on the clock of telemetry.Now. For example, the
// time in which a front end reads the request. It is zero when no request may be traced.
type Interval struct{ Began, Ended int64 }

// Begin returns an interval that begins now.
//
// hot: one atomic load when nothing is traced.
func (t *Tracer) Begin() Interval {
	if !t.On() {
		return Interval{}
	}
	return Interval{Began: telemetry.Now()}
}

// End ends the interval now.
func (s *Interval) End() {
	if s.Began != 0 {
		s.Ended = telemetry.Now()
	}
}

// Stamp records the ends of an ended interval in a trace and clears it. A request with several responses therefore
// records its interval once.
func (s *Interval) Stamp(t *Trace, start, end Point) {
	if t == nil || s.Ended == 0 {
		return
	}
	t.Stamp(start, s.Began)
	t.Stamp(end, s.Ended)
	*s = Interval{}
}

// Origin describes how a request arrived, as the front end knows it.
type Origin struct {
	// Read is the time in which it was read; Start and Done are the points of its ends.
	Read        Interval
	Start, Done Point
	// ID, Parent and State are the caller's trace context; a zero ID for none.
	ID     TraceID
	Parent SpanID
	State  string
	// Retain reports whether the client asks for the trace to be retained.
	Retain bool
	// Caller is the number of the calling trace or step in this server, 0 for a client's request.
	Caller uint64
}

// SetCaller makes the request part of the trace of the model that sends it: c is the context of the calling step. A
// zero context leaves the request in its own trace.
func (o *Origin) SetCaller(c *Context) {
	o.ID, o.Parent, o.State, o.Caller = c.ID, c.Span, c.State, c.Number
}

// SetOrigin records the request's origin and adopts the caller's trace context, if there is one.
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
