package tracing

import (
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/tutti-server/tutti/internal/telemetry"
)

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
	Read        Interval // the time in which it was read; Start and Done are the points of its ends
	Start, Done Point
	Context          // the caller's, zero for none: the request is then in its own trace
	Retain      bool // reports whether the client asks for the trace to be retained
	// Client is the name of the client, empty where clients are not told apart.
	Client string
	// Route is the path of a request over a route that is not one of Triton's, for example "/v1/embeddings"; else empty.
	Route string
}

// SetOrigin records the request's origin and adopts the caller's trace context, if there is one.
func (t *Trace) SetOrigin(o *Origin) {
	o.Read.Stamp(t, o.Start, o.Done)
	if o.Client != "" {
		t.update(func(r *Record) { r.Client = o.Client })
	}
	if o.Route != "" {
		t.update(func(r *Record) { r.Route = o.Route })
	}
	if o.ID != (TraceID{}) {
		t.update(func(r *Record) { r.ID, r.Parent, r.State, r.Caller = o.ID, o.Span, o.State, o.Number })
	}
}

// Context is a request's position in a distributed trace, as defined by W3C Trace Context. A zero ID means no trace.
type Context struct {
	ID     TraceID
	Span   SpanID // the caller's span
	State  string // tracestate, passed on unparsed
	Number uint64 // the number of the calling trace or step in this server, 0 for a remote caller
}

// The length of a traceparent of version 00, and the longest tracestate that is passed on.
const (
	contextBytes = 55
	maxState     = 512
)

// ParseContext parses the headers traceparent and tracestate. Without a valid traceparent it reports false, which
// is not an error. For example, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" is a valid traceparent.
func ParseContext(parent, state string) (Context, bool) {
	var c Context
	var version, flags [1]byte
	switch {
	case len(parent) < contextBytes, parent[2] != '-' || parent[35] != '-' || parent[52] != '-',
		!lowerHex(version[:], parent[:2]) || version[0] == 0xff,
		!lowerHex(c.ID[:], parent[3:35]) || c.ID == TraceID{},
		!lowerHex(c.Span[:], parent[36:52]) || c.Span == SpanID{},
		!lowerHex(flags[:], parent[53:55]),
		len(parent) > contextBytes && (version[0] == 0 || parent[contextBytes] != '-'):
		return Context{}, false
	}
	if len(state) <= maxState {
		c.State = state
	}
	return c, true
}

// lowerHex decodes hexadecimal digits. The standard allows lower case only.
func lowerHex(to []byte, s string) bool {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(s))
	return err == nil
}

// Parent returns the traceparent header of requests that belong to the trace.
func (c *Context) Parent() string {
	b := append(make([]byte, 0, contextBytes), "00-"...)
	b = append(hex.AppendEncode(b, c.ID[:]), '-')
	return string(append(hex.AppendEncode(b, c.Span[:]), "-01"...))
}

// RetainState is the tracestate member by which a client asks for the trace of its request to be retained, whether
// or not the request is sampled.
const RetainState = "tutti=retain"

// NewContext returns the context of a new trace whose first span is the caller.
func NewContext(state string) Context {
	c := Context{State: state}
	draw(&c.ID, &c.Span)
	return c
}

// Follow adopts the trace context of the client's headers, if they are valid.
func (o *Origin) Follow(parent, state string) {
	if c, ok := ParseContext(parent, state); ok {
		o.Context, o.Retain = c, false
		for member := range strings.SplitSeq(c.State, ",") {
			o.Retain = o.Retain || strings.Trim(member, " \t") == RetainState
		}
	}
}

// Context returns the trace context of requests that a step sends, zero unless the trace settings sampled the request.
func (t *Trace) Context(node, subRun int32) Context {
	if !t.Sampled() {
		return Context{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	span := t.rec.Span.step(node, subRun)
	return Context{ID: t.rec.ID, Span: span, State: t.rec.State, Number: t.calling(span)}
}

// calling returns the number of a step that calls other models. The caller holds mu.
func (t *Trace) calling(span SpanID) uint64 {
	if !t.rec.Ensemble {
		return t.rec.Number
	}
	n := t.number(span)
	t.callers = append(t.callers, caller{span, n})
	return n
}

// number returns the number of an ensemble's step: the number that its calls already use, or a new one. The caller
// holds mu.
func (t *Trace) number(span SpanID) uint64 {
	for i := range t.callers {
		if t.callers[i].span == span {
			return t.callers[i].number
		}
	}
	return t.tracer.ids.Add(1)
}

// caller is a step whose number was needed before the step was recorded.
type caller struct {
	span   SpanID
	number uint64
}

// Carrier returns the trace context of a step for a model that creates spans, as a JSON object of header names and
// values as in Triton. It is empty unless the mode is "opentelemetry" and the settings sampled the request.
func (t *Trace) Carrier(node, subRun int32) string {
	if !t.Sampled() || t.tracer.mode != ModeOpenTelemetry {
		return ""
	}
	c := t.Context(node, subRun)
	text, err := json.Marshal(struct {
		Parent string `json:"traceparent"`
		State  string `json:"tracestate,omitempty"`
	}{c.Parent(), c.State})
	if err != nil {
		return "" // unreachable: strings always encode
	}
	return string(text)
}
