package tracing

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// TraceID is a trace id of W3C Trace Context; the zero value means no trace.
type TraceID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// ParseTraceID parses the result of String.
func ParseTraceID(s string) (id TraceID, err error) {
	b, err := hex.DecodeString(s)
	if copy(id[:], b); err != nil || len(b) != len(id) {
		return id, status.Errorf(status.InvalidArg, "invalid trace id '%s', expected 32 hexadecimal digits", s)
	}
	return id, nil
}

// SpanID is a span id of W3C Trace Context; the zero value means no span.
type SpanID [8]byte

// String returns the id as 16 hexadecimal digits.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// Moment is the time at which a request passed a point, on the clock of telemetry.Now.
type Moment struct {
	Point Point
	Ns    int64
}

// Compare orders moments by time, at the same time by point.
func (m Moment) Compare(o Moment) int {
	return cmp.Or(cmp.Compare(m.Ns, o.Ns), cmp.Compare(m.Point, o.Point))
}

// Param is a recorded parameter of a request.
type Param struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Record is the data of one traced request. Times are those of telemetry.Now.
type Record struct {
	Number uint64 // counts the traces and steps that the trace settings sampled; 0 for others
	// ID is the trace's id and Span the request's span. Parent is the caller's span, if the request has one, and
	// State its tracestate.
	ID           TraceID
	Span, Parent SpanID
	State        string
	// Caller is the number of the trace or step in this server whose model sent the request, 0 for a client's request.
	Caller uint64
	// Began is the wall-clock time, in nanoseconds since 1970, at which telemetry.Now returned BeganAt.
	Began, BeganAt int64

	Model   string
	Version int64
	Request string // the client's id of the request
	Client  string // the name of the client, empty where clients are not told apart
	Route   string // the path of a request over a route that is not one of Triton's, else empty
	// Ensemble reports whether the steps are those of an ensemble. A plain model's request has one step.
	Ensemble bool
	Captured bool // reports whether the request's tensors are captured
	Retain   bool // reports whether the client asked for the trace to be retained, and the limit allowed it
	Failed   bool // reports whether the request failed; Code and Error are its status
	Code     status.Code
	Error    string
	// Reason, Cause and Finish are what the error says besides: why, the step or model that is the cause, and the predicted time from the
	// arrival to the response, 0 if nothing was predicted.
	Reason status.Reason
	Cause  string
	Finish time.Duration
	// Deadline is when the response must be ready, 0 without a deadline. Predicted is when it was expected as the request arrived, 0 if
	// nothing was predicted. Forecasts are the predictions of its steps.
	Deadline, Predicted int64

	Moments   []Moment
	Steps     []Step
	Events    []Event
	Params    []Param
	Forecasts []Forecast
}

// Forecast is when a step was expected to be done, as its request arrived.
type Forecast struct {
	Node int32  // as in Step
	Step string // its name in the ensemble
	End  int64
}

// The room of a trace without allocating, and the bound of its lists: a decoupled model may respond without end.
const (
	inlineMoments = 12
	inlineSteps   = 8
	inlineEvents  = 4
	maxEntries    = 1 << 12
)

// Trace records one request. All methods may be called on a nil Trace, which is the trace of a request that is not
// traced. They are safe for concurrent use.
//
// A trace is reference counted: the caller that sampled it is its first holder, and Hold adds one. Each holder
// calls End once. The last End passes the trace to the sinks and recycles it.
type Trace struct {
	tracer   *Tracer
	set      *setting // setting that sampled the request, nil when only sinks receive it
	snapshot Snapshot // nil when the tensors are not captured

	mu      sync.Mutex
	rec     Record         // guarded by mu
	seen    []seen         // guarded by mu
	callers []caller       // guarded by mu
	holders int            // guarded by mu
	late    sync.WaitGroup // events and times that Expect announced
	runs    []run          // guarded by mu

	moments   [inlineMoments]Moment
	steps     [inlineSteps]Step
	events    [inlineEvents]Event
	forecasts [inlineSteps]Forecast
}

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

// NewTraceID returns a random id.
func NewTraceID() (id TraceID) {
	var span SpanID
	draw(&id, &span)
	return id
}

// draw sets random ids. They are never zero, as the standard requires.
func draw(id *TraceID, span *SpanID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()|1)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	binary.BigEndian.PutUint64(span[:], rand.Uint64()|1)
}

// update changes the record of a trace, which may be nil.
func (t *Trace) update(change func(*Record)) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		change(&t.rec)
	}
}

// SetModel records the version that serves the request: the sampling caller may not have known it.
func (t *Trace) SetModel(version int64, ensemble bool) {
	t.update(func(r *Record) { r.Version, r.Ensemble = version, ensemble })
}

// Stamp records that the request passed a point at ns, a time of telemetry.Now.
//
// hot: no allocation below inlineMoments moments.
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

// Step records one step. It copies s and sets the copy's Span.
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

// step derives a step's span id from the request's span id, so that it is known before the step ends.
func (id SpanID) step(node, subRun int32) SpanID {
	id[0], id[1] = id[0]^byte(node>>8), id[1]^byte(node)
	id[2], id[3] = id[2]^byte(subRun>>8), id[3]^byte(subRun)
	return id.Part(1)
}

// Part derives the id of the n-th part of a span; n must not be 0.
func (id SpanID) Part(n uint8) SpanID {
	id[4] ^= n
	return id
}

// Event records an event, which it copies.
func (t *Trace) Event(e *Event) {
	t.update(func(r *Record) {
		if len(r.Events) < maxEntries {
			r.Events = append(r.Events, *e)
		}
	})
}

// Expect announces an event that another goroutine records by Late. End of the last holder waits for it.
func (t *Trace) Expect() *Trace {
	if t != nil {
		t.late.Add(1)
	}
	return t
}

// Late records an event that Expect announced.
func (t *Trace) Late(e *Event) {
	if t != nil {
		t.Event(e)
		t.late.Done()
	}
}

// run is a batch at a device, for the steps that it executed.
type run struct {
	batch uint64
	times telemetry.Times
}

// Ran records when a device executed a batch, which Expect announced; ok is false when that is not known.
func (t *Trace) Ran(batch uint64, times telemetry.Times, ok bool) {
	if t == nil {
		return
	}
	if ok {
		t.mu.Lock()
		t.runs = append(t.runs, run{batch, times})
		t.mu.Unlock()
	}
	t.late.Done()
}

// placeRuns sets the times at devices of the steps.
func (t *Trace) placeRuns() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.runs {
		for i := range t.rec.Steps {
			if s := &t.rec.Steps[i]; s.Batch == x.batch {
				s.Device = x.times
			}
		}
	}
	t.runs = t.runs[:0]
}

// Param records a parameter of the request.
func (t *Trace) Param(key, value string) {
	t.update(func(r *Record) { r.Params = append(r.Params, Param{key, value}) })
}

// Due records the deadline of the request, and when its response is expected; 0 if that is not known.
func (t *Trace) Due(deadline, predicted int64) {
	t.update(func(r *Record) { r.Deadline, r.Predicted = deadline, predicted })
}

// Predict records when a step is expected to be done. It copies f.
//
// hot: no allocation below inlineSteps forecasts.
func (t *Trace) Predict(f *Forecast) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rec.Forecasts) < maxEntries {
		t.rec.Forecasts = append(t.rec.Forecasts, *f)
	}
}

// Fail records the request's error. A nil err is ignored.
func (t *Trace) Fail(err error) {
	if err == nil {
		return
	}
	d := status.DetailsOf(err)
	t.update(func(r *Record) {
		r.Failed, r.Code, r.Error = true, status.CodeOf(err), status.Text(err)
		r.Reason, r.Cause, r.Finish = d.Reason, d.Step, d.Finish
	})
}

// ID returns the trace's id, zero for a nil Trace.
func (t *Trace) ID() TraceID {
	if t == nil {
		return TraceID{}
	}
	return t.rec.ID // not guarded: set before t is shared
}

// Sampled reports whether the trace settings sampled the request. Other traces go to the sinks only.
func (t *Trace) Sampled() bool { return t != nil && t.set != nil }

// Record returns the recorded data, which sinks borrow.
func (t *Trace) Record() *Record { return &t.rec }

// Hold adds a holder, which must call End, and returns t.
func (t *Trace) Hold() *Trace {
	t.update(func(*Record) { t.holders++ })
	return t
}

// End releases t. The caller must not use t afterwards.
func (t *Trace) End() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.holders--
	last := t.holders == 0
	t.mu.Unlock()
	if !last {
		return
	}
	t.late.Wait()
	t.placeRuns()
	if t.set != nil {
		t.set.collect(t)
	}
	for _, s := range t.tracer.sinks {
		s.Trace(t)
	}
	if t.snapshot != nil {
		t.snapshot.Finish(&t.rec)
	}
	t.reset()
}

func (t *Trace) reset() {
	r := &t.rec
	*r = Record{Params: r.Params[:0]}
	r.Moments, r.Steps, r.Events, r.Forecasts = t.moments[:0], t.steps[:0], t.events[:0], t.forecasts[:0]
	t.set, t.snapshot = nil, nil
	clear(t.seen)
	t.seen, t.callers = t.seen[:0], t.callers[:0]
	t.tracer.pool.Put(t)
}

// Report records a named event that a step's model reports. In ModeOpenTelemetry NAME_START opens a span NAME and
// NAME_END closes it.
//
// hot: nothing when the request is not traced.
func (t *Trace) Report(node int32, name string) {
	if t != nil {
		t.Event(&Event{Kind: EventReport, At: telemetry.Now(), Node: node, Reason: name})
	}
}

// Reports calls f with the name and the time of each report of a step's model, in order.
func (r *Record) Reports(s *Step, f func(name string, at int64)) {
	for i := range r.Events {
		// An event has a node, not a sub-run: the time selects the sub-run.
		if e := &r.Events[i]; e.Kind == EventReport && e.Node == s.Node && e.At >= s.Ready && e.At <= s.Done {
			f(e.Reason, e.At)
		}
	}
}
