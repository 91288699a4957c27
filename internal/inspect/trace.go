package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Inspector finds traces of recent requests. Implementations must be safe for concurrent use.
type Inspector interface {
	Traces(q *TraceQuery) (*TraceList, error) // returns the stored traces that match a query, newest first
	// FindTrace returns a stored trace by its id, 32 hexadecimal digits. If a caller has sent several requests of
	// one trace, the suffix "-" and the span id select one.
	FindTrace(id string) (*TraceView, error)
	FindRecord(id string) (*tracing.Record, error) // returns the record of which FindTrace shows the view
	FindBatch(id uint64) (*BatchView, error)       // returns an executed batch, if it is still stored
	Timeline(q *TimelineQuery) *TimelineView       // returns the stored batches that ran in an interval
	Sampling() Sampling                            // returns the rules of retention; SetSampling replaces them
	SetSampling(s Sampling) error
}

// TraceQuery selects traces; zero fields match everything. For example, Model "detector" and MinNs 5e7 select the
// requests with that model that lasted 50 ms or more.
type TraceQuery struct {
	Request, TraceID, Model string
	Status                  string // "ok", "failed" or the name of a code in lower_snake_case
	Retained                string // the reason of retention: "failed", "slow", "requested" or "sampled"
	// MinNs and MaxNs bound the duration, FromUs and ToUs the begin of the request.
	MinNs, MaxNs, FromUs, ToUs int64
	// Param and Value are the name and value of a request parameter.
	Param, Value string
	After        uint64 // selects traces stored after an earlier list: the Newest of that list
	// Cursor continues a list: the Next of the page before. Limit bounds the page, 0 for 50.
	Cursor uint64
	Limit  int
}

// TraceList is a page of traces. Next continues it, 0 at the end; Newest counts the traces stored so far.
type TraceList struct {
	Traces []TraceSummary `json:"traces"`
	Next   uint64         `json:"next"`
	Newest uint64         `json:"newest"`
}

// TraceSummary is the entry of a trace in a list.
type TraceSummary struct {
	ID         string `json:"id"`
	Span       string `json:"span_id"`
	Request    string `json:"request_id,omitempty"`
	Client     string `json:"client,omitempty"` // whose request it is, where clients are told apart
	Route      string `json:"route,omitempty"`  // the path of a request over a route that is not one of Triton's
	Model      string `json:"model"`
	Version    int64  `json:"version"`
	Ensemble   bool   `json:"ensemble"`
	StartUs    int64  `json:"start_us"`
	DurationNs int64  `json:"duration_ns"`
	Status     string `json:"status"`
	Error      string `json:"error,omitempty"`
	Retained   string `json:"retained"`
	Steps      int    `json:"steps"`
	// Captured reports whether the request's tensors were captured; they may have been dropped since.
	Captured bool `json:"captured,omitempty"`
}

// TraceView is a whole trace. Offsets are nanoseconds since its start.
type TraceView struct {
	TraceSummary
	Parent  string          `json:"parent_span_id,omitempty"`
	Params  []tracing.Param `json:"params"`
	Moments []MomentView    `json:"moments"`
	Spans   []StepView      `json:"spans"`
	Events  []EventView     `json:"events"`
	Split   []PartView      `json:"split"`
	Batches []BatchSummary  `json:"batches"`
	Due     *DueView        `json:"due,omitempty"` // nil for a request without a deadline
	Links   []LinkView      `json:"links,omitempty"`
	// Reason, Step and FinishMs are what the error of a failed request says besides its text, as in its response.
	Reason   string `json:"reason,omitempty"`
	Step     string `json:"step,omitempty"`
	FinishMs int64  `json:"predicted_finish_ms,omitempty"`
}

// MomentView is the time at which a request passed a point, named as in Triton's trace files.
type MomentView struct {
	Name string `json:"name"`
	Ns   int64  `json:"ns"`
}

// StepView is one step of a request. Times of phases that it did not reach are 0.
type StepView struct {
	Span       string `json:"span_id"`
	Node       int32  `json:"node"`
	After      int32  `json:"after"`
	SubRun     int32  `json:"sub_run"`
	Model      string `json:"model"`
	Version    int64  `json:"version"`
	Critical   bool   `json:"critical"`
	Cached     bool   `json:"cached"`
	Native     bool   `json:"native"`
	Status     string `json:"status"`
	ReadyNs    int64  `json:"ready_ns"`
	EnqueuedNs int64  `json:"enqueued_ns"`
	StartNs    int64  `json:"start_ns"`
	InputEndNs int64  `json:"input_end_ns"`
	InferEndNs int64  `json:"infer_end_ns"`
	EndNs      int64  `json:"end_ns"`
	// DoneNs is when the plan had continued, and the device had executed the step.
	DoneNs int64 `json:"done_ns"`
	// DeviceStartNs and DeviceEndNs are when the device began and ended the step, absent where it is not known. The times of phases are
	// then those of the host, which put the step into the device's stream.
	DeviceStartNs int64  `json:"device_start_ns,omitempty"`
	DeviceEndNs   int64  `json:"device_end_ns,omitempty"`
	Batch         uint64 `json:"batch"`
	Rows          int32  `json:"rows"`
	BatchRows     int32  `json:"batch_rows"`
	Members       int32  `json:"members"`
	Elements      int64  `json:"elements"`
	Padding       int64  `json:"padding"`
	Instance      int32  `json:"instance"`
	Place         string `json:"place"`
	Before        uint64 `json:"before"`
	Precision     string `json:"precision,omitempty"`
}

// EventView is an event of a request.
type EventView struct {
	Kind       string `json:"kind"`
	Ns         int64  `json:"ns"`
	Node       int32  `json:"node"`
	Tensor     string `json:"tensor,omitempty"`
	Bytes      int64  `json:"bytes,omitempty"`
	DurationNs int64  `json:"duration_ns,omitempty"`
	From       string `json:"from,omitempty"`
	To         string `json:"to,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// PartView is a part of a request's time. The parts are contiguous and add up to all of it.
type PartView struct {
	Kind    string `json:"kind"`
	Node    int32  `json:"node"`
	Model   string `json:"model,omitempty"`
	Batch   uint64 `json:"batch,omitempty"`
	StartNs int64  `json:"start_ns"`
	Ns      int64  `json:"ns"`
	Text    string `json:"text"`
}

// BatchSummary is an executed batch with the trace ids of its known members.
type BatchSummary struct {
	ID      uint64   `json:"id"`
	Model   string   `json:"model"`
	Version int64    `json:"version"`
	Rows    int32    `json:"rows"`
	Members int32    `json:"members"`
	Traces  []string `json:"traces"`
}

// BatchView is an executed batch. Its times are the device's where they are known.
type BatchView struct {
	BatchSummary
	StartUs     int64  `json:"start_us"`
	InputNs     int64  `json:"input_ns"`
	InferNs     int64  `json:"infer_ns"`
	OutputNs    int64  `json:"output_ns"`
	Instance    int32  `json:"instance"`
	Place       string `json:"place"`
	Elements    int64  `json:"elements"`
	Padding     int64  `json:"padding"`
	Before      uint64 `json:"before"`
	BeforeEndUs int64  `json:"before_end_us"`
	Failed      bool   `json:"failed"`
}

// Sampling selects the finished requests whose traces are stored.
type Sampling struct {
	// Failed stores all failed and refused requests. Slow stores the slowest requests of each model and minute, and
	// those above the 99th percentile. Every stores one in so many of the others, 0 for none.
	Failed bool   `json:"failed"`
	Slow   bool   `json:"slow"`
	Every  uint32 `json:"every"`
}

// StoreView is the size and use of the trace store.
type StoreView struct {
	Bytes int64       `json:"bytes"`
	Rings []RingStats `json:"rings"`
}

// RingStats is one of the store's rings: "failed", "slow", "requested" or "sampled".
type RingStats struct {
	Retained string `json:"retained"`
	Bytes    int64  `json:"bytes"`
	Used     int64  `json:"used_bytes"`
	Traces   int    `json:"traces"`
	OldestUs int64  `json:"oldest_us"`
}

// StatusOf returns the status of a request or step as the views spell it: "ok", or the code
// in lower_snake_case, for example "deadline_exceeded".
func StatusOf(failed bool, c status.Code) string {
	if !failed {
		return "ok"
	}
	return strings.ReplaceAll(strings.ToLower(c.String()), " ", "_")
}

// NewTraceSummary returns the summary of a record. Retained is the reason for which the record was stored.
func NewTraceSummary(r *tracing.Record, retained string) TraceSummary {
	start, end := r.Bounds()
	return TraceSummary{
		ID: r.ID.String(), Span: r.Span.String(), Request: r.Request, Client: r.Client, Route: r.Route, Model: r.Model, Version: r.Version, Ensemble: r.Ensemble,
		StartUs: r.UnixMicro(start), DurationNs: end - start, Status: StatusOf(r.Failed, r.Code), Error: r.Error,
		Retained: retained, Steps: len(r.Steps), Captured: r.Captured,
	}
}

// NewTraceView returns the view of a record. Its Batches are empty: a record refers to its batches by number only.
func NewTraceView(r *tracing.Record, retained string) *TraceView {
	start, _ := r.Bounds()
	v := &TraceView{
		TraceSummary: NewTraceSummary(r, retained),
		Params:       append([]tracing.Param{}, r.Params...), Moments: []MomentView{}, Spans: []StepView{}, Events: []EventView{},
		Split: newPartViews(r, start), Batches: []BatchSummary{},
	}
	if r.Parent != (tracing.SpanID{}) {
		v.Parent = r.Parent.String()
	}
	for _, m := range r.Moments {
		v.Moments = append(v.Moments, MomentView{Name: m.Point.String(), Ns: m.Ns - start})
	}
	critical := tracing.CriticalSteps(r)
	for i := range r.Steps {
		s := newStepView(&r.Steps[i], start)
		s.Critical = slices.Contains(critical, i)
		v.Spans = append(v.Spans, s)
	}
	if r.Failed {
		v.Reason, v.Step, v.FinishMs = string(r.Reason), r.Cause, status.Milliseconds(r.Finish)
	}
	v.Due = newDueView(r, start)
	for i := range r.Events {
		e := &r.Events[i]
		x := EventView{Kind: e.Kind.String(), Ns: e.At - start, Node: e.Node, Tensor: e.Tensor, Bytes: e.Bytes, DurationNs: e.Duration, Reason: e.Reason}
		if e.Kind.Moves() {
			x.From, x.To = e.From.String(), e.To.String()
		}
		v.Events = append(v.Events, x)
	}
	return v
}

func newStepView(s *tracing.Step, start int64) StepView {
	v := StepView{
		Span: s.Span.String(), Node: s.Node, After: s.After, SubRun: s.SubRun, Model: s.Model, Version: s.Version,
		Cached: s.Cached, Native: s.Native, Status: StatusOf(s.Failed, s.Code),
		ReadyNs: s.Ready - start, EnqueuedNs: s.Enqueued - start, DoneNs: s.Complete() - start,
		Batch: s.Batch, Rows: s.Rows, BatchRows: s.BatchRows, Members: s.Members, Elements: s.Elements, Padding: s.Padding,
		Instance: s.Instance, Place: s.Place.String(), Before: s.Before, Precision: s.Precision,
	}
	if s.Batch != 0 {
		v.StartNs, v.InputEndNs, v.InferEndNs, v.EndNs = s.Start-start, s.InputEnd-start, s.InferEnd-start, s.End-start
	}
	if s.Device.End != 0 {
		v.DeviceStartNs, v.DeviceEndNs = s.Device.Start-start, s.Device.End-start
	}
	return v
}

func newPartViews(r *tracing.Record, start int64) []PartView {
	list := []PartView{}
	for _, p := range tracing.Split(r) {
		v := PartView{Kind: p.Kind.String(), Node: -1, Batch: p.Batch, StartNs: p.From - start, Ns: p.To - p.From, Text: "in the server itself"}
		switch {
		case p.Step >= 0:
			s := &r.Steps[p.Step]
			text := cmp.Or(partTexts[p.Kind], "in the server itself, at %[1]s")
			if p.Kind == tracing.PartQueue && p.Batch == 0 {
				text = "in the queue of %[1]s"
			}
			v.Node, v.Model, v.Text = s.Node, s.Model, fmt.Sprintf(text, s.Model, p.Batch, s.BatchRows)
		case p.Kind == tracing.PartReceive:
			v.Text = "reading and decoding the request"
		case p.Kind == tracing.PartEncode:
			v.Text = "encoding and sending the response"
		}
		list = append(list, v)
	}
	return list
}

// partTexts describe the parts that belong to a step, by its model, the batch and the batch's rows.
var partTexts = map[tracing.PartKind]string{
	tracing.PartLimit:    "waiting for one of the requests in flight of %[1]s to end, or for the other items of its fan-out",
	tracing.PartLoad:     "waiting for the evicted model %[1]s to be loaded again",
	tracing.PartQueue:    "in the queue of %[1]s behind batch %[2]d",
	tracing.PartBatching: "waiting for others to join the batch of %[1]s",
	tracing.PartCopies:   "gathering, copying and scattering tensors of %[1]s",
	tracing.PartPadding:  "computing the padding of batch %[2]d of %[1]s",
	tracing.PartCompute:  "%[1]s computing batch %[2]d of %[3]d rows",
	tracing.PartNative:   "%[1]s computing batch %[2]d of %[3]d rows",
	tracing.PartCache:    "looking up a cached response of %[1]s",
}

// NewBatchView returns the view of an executed batch. Epoch is the wall-clock time, in
// nanoseconds since 1970, at which telemetry.Now was 0.
func NewBatchView(b *tracing.Batch, epoch int64) *BatchView {
	t := batchTimes(b)
	return &BatchView{
		BatchSummary: NewBatchSummary(b),
		StartUs:      (epoch + t.Start) / 1000, InputNs: t.InputEnd - t.Start, InferNs: t.InferEnd - t.InputEnd, OutputNs: t.End - t.InferEnd,
		Instance: b.Instance, Place: b.Place.String(), Elements: b.Elements, Padding: b.Padding,
		Before: b.Before, BeforeEndUs: (epoch + b.BeforeEnd) / 1000, Failed: b.Failed,
	}
}

// NewBatchSummary returns the summary of an executed batch.
func NewBatchSummary(b *tracing.Batch) BatchSummary {
	s := BatchSummary{ID: b.Batch, Model: b.Model, Version: b.Version, Rows: b.BatchRows, Members: b.Members, Traces: []string{}}
	for _, id := range b.Traces[:b.Known] {
		s.Traces = append(s.Traces, id.String())
	}
	return s
}

// Explain writes the parts of a request's duration and marks the largest.
func Explain(w io.Writer, v *TraceView) error {
	b := fmt.Appendf(nil, "trace %s: %s version %d, %s, %s", v.ID, v.Model, v.Version, v.Status, span(v.DurationNs))
	if v.Request != "" {
		b = fmt.Appendf(b, ", request %q", v.Request)
	}
	if v.Client != "" {
		b = fmt.Appendf(b, ", client %q", v.Client)
	}
	if v.Route != "" {
		b = fmt.Appendf(b, ", route %s", v.Route)
	}
	b = append(b, '\n')
	if v.Error != "" {
		b = fmt.Appendf(b, "  failed: %s\n", v.Error)
	}
	if v.Due != nil {
		b = v.Due.append(b)
	}
	for _, p := range v.Split {
		share := 0.0
		if v.DurationNs > 0 {
			share = float64(p.Ns) / float64(v.DurationNs)
		}
		b = fmt.Appendf(b, "%12s %5.1f%% %-10s %-9s %s\n", span(p.Ns), 100*share, strings.Repeat("#", int(10*share+0.5)), p.Kind, p.Text)
	}
	_, err := w.Write(v.appendSpills(v.appendRoutes(v.appendRows(b))))
	return err
}

// maxConditions bounds the conditions, the faults and the fan-outs that Explain lists.
const maxConditions = 20

// appendRows appends a line for each condition and for each step that it kept from running, for each failure that was handled, and for each fan-out.
func (v *TraceView) appendRows(b []byte) []byte {
	b = v.appendReasons(b, "condition", tracing.EventChosen, tracing.EventSkipped)
	b = v.appendReasons(b, "fault", tracing.EventFault)
	return v.appendReasons(b, "fan-out", tracing.EventFanOut)
}

// appendReasons appends a line for each event of some kinds.
func (v *TraceView) appendReasons(b []byte, word string, kinds ...tracing.EventKind) []byte {
	n := 0
	for i := range v.Events {
		e := &v.Events[i]
		if !slices.ContainsFunc(kinds, func(k tracing.EventKind) bool { return e.Kind == k.String() }) {
			continue
		}
		if n++; n <= maxConditions {
			b = fmt.Appendf(b, "  %s: %s\n", word, e.Reason)
		}
	}
	if n > maxConditions {
		b = fmt.Appendf(b, "  %s: %d more\n", word, n-maxConditions)
	}
	return b
}

// appendRoutes appends a line for each alternative that executed a step, and for each copy of a request that was compared.
func (v *TraceView) appendRoutes(b []byte) []byte {
	n := 0
	for i := range v.Events {
		e, what := &v.Events[i], ""
		switch e.Kind {
		case tracing.EventRouted.String():
			what = "route"
		case tracing.EventShadow.String():
			what = "shadow"
		}
		if what == "" {
			continue
		}
		if n++; n <= maxConditions {
			b = fmt.Appendf(b, "  %s: %s\n", what, e.Reason)
		}
	}
	return b
}

// maxSpills bounds the spills that Explain lists.
const maxSpills = 10

// appendSpills appends a line for each spill: the tensor, its step, the bytes, the places and the reason.
func (v *TraceView) appendSpills(b []byte) []byte {
	n := 0
	for i := range v.Events {
		e := &v.Events[i]
		if e.Kind != tracing.EventSpill.String() {
			continue
		}
		if n++; n > maxSpills {
			continue
		}
		name := "memory"
		if e.Tensor != "" {
			name = "tensor '" + e.Tensor + "'"
		}
		step := v.Model
		if s := slices.IndexFunc(v.Spans, func(s StepView) bool { return s.Node == e.Node }); s >= 0 {
			step = v.Spans[s].Model
		}
		b = fmt.Appendf(b, "  spilled: %s of %s, %d bytes, is at %s instead of %s: %s\n", name, step, e.Bytes, e.To, e.From, e.Reason)
	}
	if n > maxSpills {
		b = fmt.Appendf(b, "  spilled: %d more\n", n-maxSpills)
	}
	return b
}

func span(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Microsecond).String()
	default:
		return d.Round(10 * time.Nanosecond).String()
	}
}
