package tracing

import (
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// TraceID is a trace's id as W3C Trace Context has it; the zero one is none.
type TraceID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// ParseTraceID reads what String returns.
func ParseTraceID(s string) (id TraceID, ok bool) {
	if len(s) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil
}

// SpanID is a span's id as W3C Trace Context has it; the zero one is none.
type SpanID [8]byte

// String returns the id as 16 hexadecimal digits.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// Moment is when a request passed a point, a time of telemetry.Now.
type Moment struct {
	Point Point
	Ns    int64
}

// Param is a parameter of a request that its trace keeps.
type Param struct{ Key, Value string }

// Record is what one request left behind. Times are those of telemetry.Now.
type Record struct {
	// Number counts the traces and steps that the trace settings chose, 0 for others.
	Number uint64
	// ID names the trace, Span the request in it; Parent is the caller's span when the
	// request came with one, and State its tracestate.
	ID           TraceID
	Span, Parent SpanID
	State        string
	// Caller is the number of the trace or step in this server whose model sent the
	// request, 0 for a client's.
	Caller uint64
	// Began is the wall-clock time, in nanoseconds since the epoch, at which
	// telemetry.Now was BeganAt.
	Began, BeganAt int64

	Model   string
	Version int64
	// Request is the client's id of the request.
	Request string
	// Ensemble tells that the steps are those of an ensemble; a plain model's request
	// has one, which is the request itself.
	Ensemble bool
	// Captured tells that the request's tensors are kept.
	Captured bool
	// Retain tells that the client asked for the trace to be stored, within the bound of such.
	Retain bool
	// Code and Error say how the request failed; Failed that it did.
	Failed bool
	Code   status.Code
	Error  string

	Moments []Moment
	Steps   []Step
	Events  []Event
	Params  []Param
}

// What a trace has room for without allocating, and what bounds it: a decoupled model
// may answer without end.
const (
	inlineMoments = 12
	inlineSteps   = 8
	inlineEvents  = 4
	maxEntries    = 1 << 12
)

// Trace is a Record being made. All methods may be called on a nil Trace, which is
// what a request that is not traced has, and by several goroutines.
//
// A trace has holders: who sampled it, and those it was shared with by Hold. When the
// last one has ended it, it goes to the sinks and is used anew.
type Trace struct {
	tracer *Tracer
	set    *setting // that chose the request, nil when only the sinks see it
	film   Snapshot // nil when the tensors are not kept

	mu      sync.Mutex
	rec     Record   // guarded by mu
	seen    []seen   // guarded by mu
	callers []caller // guarded by mu
	holders int      // guarded by mu

	moments [inlineMoments]Moment
	steps   [inlineSteps]Step
	events  [inlineEvents]Event
}

// newTrace returns the trace of a request, with one holder.
func (t *Tracer) newTrace(s *setting, model string, version int64, id string) *Trace {
	x := t.pool.Get()
	x.set, x.holders = s, 1
	r := &x.rec
	if s != nil {
		r.Number = t.ids.Add(1)
	}
	r.Model, r.Version, r.Request = model, version, id
	draw(&r.ID, &r.Span)
	now := telemetry.Now()
	r.Began, r.BeganAt = t.epoch+now, now
	return x
}

// draw makes random ids, which the standard asks not to be zero.
func draw(id *TraceID, span *SpanID) {
	putUint64(id[:8], rand.Uint64()|1)
	putUint64(id[8:], rand.Uint64())
	putUint64(span[:], rand.Uint64()|1)
}

func putUint64(b []byte, v uint64) {
	for i := range 8 {
		b[i] = byte(v >> (56 - 8*i))
	}
}

// epoch returns the wall-clock time at which telemetry.Now was 0.
func epoch() int64 { return time.Now().UnixNano() - telemetry.Now() }

// Serve says what serves the request: who sampled it may not have known the version.
func (t *Trace) SetModel(version int64, ensemble bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rec.Version, t.rec.Ensemble = version, ensemble
}

// Stamp records that the request passed a point at ns, a time of telemetry.Now.
//
// hot: no allocation unless there are many answers.
func (t *Trace) Stamp(p Point, ns int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rec.Moments) < maxEntries {
		t.rec.Moments = append(t.rec.Moments, Moment{p, ns})
	}
}

// Mark records that the request passes a point now.
//
// hot: nothing when the request is not traced.
func (t *Trace) Mark(p Point) {
	if t != nil {
		t.Stamp(p, telemetry.Now())
	}
}

// Step records one step; s is copied, and its SpanID set.
//
// hot: no allocation below inlineSteps steps.
func (t *Trace) Step(s *Step) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rec.Steps) == maxEntries {
		return
	}
	t.rec.Steps = append(t.rec.Steps, *s)
	n := &t.rec.Steps[len(t.rec.Steps)-1]
	n.Span = t.rec.Span.step(n.Node, n.SubRun)
	if t.set != nil && !n.Single {
		n.Number = t.number(n.Span)
	}
}

// step derives the id of a step's span from the request's, so that it is known before
// the step has ended.
func (id SpanID) step(node, wave int32) SpanID {
	id[0], id[1] = id[0]^byte(node>>8), id[1]^byte(node)
	id[2], id[3] = id[2]^byte(wave>>8), id[3]^byte(wave)
	return id.Part(1)
}

// Part derives the id of the n-th part of a span, below 256 and not 0.
func (id SpanID) Part(n uint8) SpanID {
	id[4] ^= n
	return id
}

// Event records something that happened; e is copied.
func (t *Trace) Event(e *Event) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rec.Events) < maxEntries {
		t.rec.Events = append(t.rec.Events, *e)
	}
}

// Param keeps a parameter of the request.
func (t *Trace) Param(key, value string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rec.Params = append(t.rec.Params, Param{key, value})
}

// Fail records how the request failed; nothing for nil.
func (t *Trace) Fail(err error) {
	if t == nil || err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rec.Failed, t.rec.Code, t.rec.Error = true, status.CodeOf(err), status.Text(err)
}

// ID returns the trace's id, none for a nil Trace.
func (t *Trace) ID() TraceID {
	if t == nil {
		return TraceID{}
	}
	return t.rec.ID // set before anybody else has t
}

// Chosen tells whether the trace settings chose the request, so that it goes where
// they say; others are seen by the sinks alone.
func (t *Trace) Sampled() bool { return t != nil && t.set != nil }

// Record returns what was recorded. It is for sinks, which borrow it.
func (t *Trace) Record() *Record { return &t.rec }

// Hold returns t for one more holder, who ends it too.
func (t *Trace) Hold() *Trace {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holders++
	return t
}

// End gives t up. Nothing may be done with it after by who did that.
func (t *Trace) End() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.holders--
	last := t.holders == 0
	t.mu.Unlock()
	if last {
		t.finish()
	}
}

// finish has the sinks look at the trace and gives it back.
func (t *Trace) finish() {
	if t.set != nil {
		t.set.collect(t)
	}
	for _, s := range t.tracer.sinks {
		s.Trace(t)
	}
	if t.film != nil {
		t.film.Finish(&t.rec)
	}
	t.reset()
}

// reset makes the trace ready for the next request.
func (t *Trace) reset() {
	r := &t.rec
	*r = Record{Params: r.Params[:0]}
	r.Moments, r.Steps, r.Events = t.moments[:0], t.steps[:0], t.events[:0]
	t.set, t.film = nil, nil
	clear(t.seen)
	t.seen, t.callers = t.seen[:0], t.callers[:0]
	t.tracer.pool.Put(t)
}
