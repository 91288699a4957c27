package otlp

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// The attributes that Triton's spans have.
const (
	attrModel   = "triton.model_name"
	attrVersion = "triton.model_version"
	attrTrace   = "triton.trace_id"
	attrParent  = "triton.trace_parent_id"
	attrRequest = "triton.request_id"
)

// The parts of spans, as tracing.SpanID.Part numbers them. A step is part 1 of its
// request, so that its own parts never meet these, which are even.
const (
	partModel = iota*2 + 2
	partQueue
	partBatch
	partCompute
	partInput
	partInfer
	partOutput
	partDevice
)

func (e *Exporter) wall(ns int64) time.Time { return time.Unix(0, e.epoch+ns) }

var server = trace.WithSpanKind(trace.SpanKindServer) // the kind of all spans, as in Triton

// open begins a span with the given id. Its parent is the span of ctx. The caller must end it.
func (e *Exporter) open(ctx context.Context, name string, id tracing.SpanID, at int64, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	e.ids.span = id
	return e.tracer.Start(ctx, name, append(options, trace.WithTimestamp(e.wall(at)))...) //nolint:spancheck // the caller ends it
}

func (e *Exporter) close(span trace.Span, at int64) {
	e.made++
	span.End(trace.WithTimestamp(e.wall(at)))
}

func (e *Exporter) stamp(span trace.Span, moments []tracing.Moment) {
	for _, m := range moments {
		span.AddEvent(m.Point.String(), trace.WithTimestamp(e.wall(m.Ns)))
	}
}

func (e *Exporter) request(ctx context.Context, r *tracing.Record) {
	e.ids.trace = r.ID
	ctx = under(ctx, r)
	start, end := r.Bounds()
	outer, inner := divide(r.Moments)
	if r.Caller != 0 && !e.detail { // its span is a child of the caller's span
		e.model(ctx, r, inner, end)
		return
	}
	ctx, root := e.open(ctx, "InferRequest", r.Span, start, server)
	e.stamp(root, outer)
	for _, p := range r.Params {
		root.SetAttributes(attribute.String("tutti.parameter."+p.Key, p.Value))
	}
	e.model(ctx, r, inner, end)
	fail(root, r.Failed, r.Error)
	e.close(root, end)
}

// under returns a context whose span is the request's parent, if it has one.
func under(ctx context.Context, r *tracing.Record) context.Context {
	if r.Parent == (tracing.SpanID{}) {
		return ctx
	}
	state, err := trace.ParseTraceState(r.State)
	if err != nil {
		state = trace.TraceState{} // an invalid tracestate is not passed on
	}
	return trace.ContextWithRemoteSpanContext(ctx, spanContext(trace.TraceID(r.ID), trace.SpanID(r.Parent), state, true))
}

// divide splits the moments into those of the front end and those of the model's span.
func divide(list []tracing.Moment) (outer, inner []tracing.Moment) {
	for _, m := range list {
		if m.Point >= tracing.RequestStart && m.Point <= tracing.RequestEnd && m.Point != tracing.InferResponseComplete {
			inner = append(inner, m)
		} else {
			outer = append(outer, m)
		}
	}
	return outer, inner
}

func fail(span trace.Span, failed bool, text string) {
	if failed {
		span.SetStatus(codes.Error, text)
	}
}

// model makes the span of the requested model and its children, the spans of the steps.
func (e *Exporter) model(ctx context.Context, r *tracing.Record, moments []tracing.Moment, end int64) {
	start, end := cmp.Or(r.First(tracing.RequestStart), r.BeganAt), cmp.Or(r.Last(tracing.RequestEnd), end)
	id := r.Span.Part(partModel)
	if len(r.Steps) > 0 && r.Steps[0].Single {
		id = r.Steps[0].Span // the id that the model was given for its own spans
	}
	ctx, span := e.open(ctx, r.Model, id, start, server, trace.WithAttributes(aboutModel(r, r.Model, r.Version, r.Number, r.Caller)...))
	for i := range r.Steps { // the queue start of a plain model's request
		if r.Steps[i].Single {
			moments = append(moments, tracing.Moment{Point: tracing.QueueStart, Ns: r.Steps[i].Enqueued})
		}
	}
	slices.SortStableFunc(moments, tracing.Moment.Compare)
	e.stamp(span, moments)
	e.events(span, r, -1)
	e.due(span, r, start)
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Single {
			e.inside(ctx, span, r, s)
			continue
		}
		e.step(ctx, r, s)
	}
	fail(span, r.Failed, r.Error)
	e.close(span, end)
}

// due adds the deadline with the predictions to the span of the requested model, which begins at start, and why the request failed.
func (e *Exporter) due(span trace.Span, r *tracing.Record, start int64) {
	if !e.detail {
		return
	}
	if r.Failed && r.Reason != "" {
		span.SetAttributes(attribute.String("error.type", string(r.Reason)))
		if r.Cause != "" {
			span.SetAttributes(attribute.String("tutti.step", r.Cause))
		}
		if r.Finish > 0 {
			span.SetAttributes(attribute.Int64("tutti.predicted_finish_ms", status.Milliseconds(r.Finish)))
		}
	}
	if r.Deadline == 0 {
		return
	}
	span.SetAttributes(attribute.Int64("tutti.deadline_ns", r.Deadline-start))
	if r.Predicted != 0 {
		span.SetAttributes(attribute.Int64("tutti.predicted_ns", r.Predicted-start))
	}
	for i := range r.Forecasts {
		f := &r.Forecasts[i]
		attrs := []attribute.KeyValue{attribute.String("tutti.step", f.Step), attribute.Int("tutti.node", int(f.Node)), attribute.Int64("tutti.predicted_ns", f.End-start)}
		if end := r.Ended(f.Node); end != 0 {
			attrs = append(attrs, attribute.Int64("tutti.end_ns", end-start))
		}
		span.AddEvent("forecast", trace.WithTimestamp(e.wall(f.End)), trace.WithAttributes(attrs...))
	}
}

func aboutModel(r *tracing.Record, name string, version int64, number, parent uint64) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String(attrModel, name), attribute.Int64(attrVersion, version),
		attribute.Int64(attrTrace, int64(number)), attribute.Int64(attrParent, int64(parent)),
	}
	if r.Request != "" {
		list = append(list, attribute.String(attrRequest, r.Request))
	}
	if r.Client != "" {
		list = append(list, attribute.String("tutti.client", r.Client))
	}
	if r.Route != "" {
		list = append(list, attribute.String("http.route", r.Route))
	}
	return list
}

func (e *Exporter) step(ctx context.Context, r *tracing.Record, s *tracing.Step) {
	attrs := aboutModel(r, s.Model, s.Version, s.Number, r.Number)
	if e.detail {
		attrs = append(attrs, attribute.Int("tutti.node", int(s.Node)), attribute.Int("tutti.after", int(s.After)))
		if s.SubRun != 0 {
			attrs = append(attrs, attribute.Int("tutti.wave", int(s.SubRun)))
		}
	}
	ctx, span := e.open(ctx, s.Model, s.Span, s.Ready, server, trace.WithAttributes(attrs...))
	e.stamp(span, []tracing.Moment{{Point: tracing.RequestStart, Ns: s.Enqueued}, {Point: tracing.QueueStart, Ns: s.Enqueued}})
	e.inside(ctx, span, r, s)
	e.stamp(span, []tracing.Moment{{Point: tracing.RequestEnd, Ns: s.Done}})
	fail(span, s.Failed, s.Code.String())
	e.close(span, s.Done)
}

// inside adds the events, the reports and the execution to the span of an executed model.
func (e *Exporter) inside(ctx context.Context, span trace.Span, r *tracing.Record, s *tracing.Step) {
	e.events(span, r, s.Node)
	e.reports(ctx, span, r, s)
	if s.Batch == 0 || s.Start == 0 {
		return // it was not executed
	}
	options := []trace.SpanStartOption{server}
	if e.detail {
		e.whole(ctx, "queue", s.Span.Part(partQueue), s.Enqueued, s.Start)
		if s.Held != 0 && s.Held < s.Start {
			e.whole(ctx, "batch", s.Span.Part(partBatch), max(s.Held, s.Enqueued), s.Start)
		}
		if s.Device.End != 0 {
			e.whole(ctx, "device", s.Span.Part(partDevice), s.Device.Start, s.Device.End)
		}
		attrs := append(executionAttributes(&s.Execution), attribute.Int("tutti.rows", int(s.Rows)))
		options = append(options, trace.WithLinks(trace.Link{SpanContext: e.batchContext(s.Batch)}), trace.WithAttributes(attrs...))
	}
	ctx, compute := e.open(ctx, "compute", s.Span.Part(partCompute), s.Start, options...)
	moments := s.Moments()
	e.stamp(compute, moments[:])
	if e.detail {
		e.whole(ctx, "input", s.Span.Part(partInput), s.Start, s.InputEnd)
		e.whole(ctx, "infer", s.Span.Part(partInfer), s.InputEnd, s.InferEnd)
		e.whole(ctx, "output", s.Span.Part(partOutput), s.InferEnd, s.End)
	}
	fail(compute, s.Failed, s.Code.String())
	e.close(compute, s.End)
}

func (e *Exporter) batch(ctx context.Context, b *tracing.Batch) {
	at := e.batchContext(b.Batch)
	e.ids = ids{tracing.TraceID(at.TraceID()), tracing.SpanID(at.SpanID())}
	links := make([]trace.Link, len(b.Links))
	for i := range b.Links {
		links[i].SpanContext = spanContext(trace.TraceID(b.Links[i].ID), trace.SpanID(b.Links[i].Span), trace.TraceState{}, false)
	}
	attrs := append(executionAttributes(&b.Execution), attribute.String(attrModel, b.Model), attribute.Int64(attrVersion, b.Version))
	_, span := e.tracer.Start(ctx, "batch", trace.WithNewRoot(), trace.WithTimestamp(e.wall(b.Start)), trace.WithLinks(links...), trace.WithAttributes(attrs...))
	moments := b.Moments()
	e.stamp(span, moments[:])
	if b.Failed {
		span.SetStatus(codes.Error, "")
	}
	e.close(span, b.End)
}

// executionAttributes returns the attributes of an execution, for the span of a member or of the batch.
func executionAttributes(x *tracing.Execution) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.Int64("tutti.batch", int64(x.Batch)), attribute.Int("tutti.batch.rows", int(x.BatchRows)), attribute.Int("tutti.batch.members", int(x.Members)),
		attribute.Int64("tutti.batch.elements", x.Elements), attribute.Int64("tutti.batch.padding", x.Padding), attribute.Int64("tutti.batch.before", int64(x.Before)),
		attribute.Int("tutti.instance", int(x.Instance)), attribute.String("tutti.place", x.Place.String()),
	}
	if x.Precision != "" {
		list = append(list, attribute.String("tutti.precision", x.Precision))
	}
	return list
}

// ids is an SDK id generator that returns preset ids: other servers, the trace store and links between spans
// already use them. It must be used by one goroutine.
type ids struct {
	trace tracing.TraceID
	span  tracing.SpanID
}

func (g *ids) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID(g.trace), trace.SpanID(g.span)
}

func (g *ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return trace.SpanID(g.span) }

// batchContext returns the span context of an executed batch, which is a separate trace. Its ids are derived from
// the batch's number, so that members can link to it at any time.
func (e *Exporter) batchContext(number uint64) trace.SpanContext {
	var t trace.TraceID
	var s trace.SpanID
	binary.BigEndian.PutUint64(t[:8], e.seed)
	binary.BigEndian.PutUint64(t[8:], number)
	binary.BigEndian.PutUint64(s[:], e.seed^number<<1) // the seed is odd
	return spanContext(t, s, trace.TraceState{}, false)
}

func spanContext(t trace.TraceID, s trace.SpanID, state trace.TraceState, remote bool) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: t, SpanID: s, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: remote})
}

func (e *Exporter) whole(ctx context.Context, name string, id tracing.SpanID, start, end int64) {
	_, span := e.open(ctx, name, id, start)
	e.close(span, end)
}

// events adds the events of a node to its span, -1 for the request. Reports of models are not among them: see reports.
func (e *Exporter) events(span trace.Span, r *tracing.Record, node int32) {
	if !e.detail {
		return
	}
	for i := range r.Events {
		x := &r.Events[i]
		if x.Node != node || x.Kind == tracing.EventReport {
			continue
		}
		var attrs []attribute.KeyValue
		if x.Kind.Moves() {
			attrs = append(attrs, attribute.String("tutti.tensor", x.Tensor), attribute.Int64("tutti.bytes", x.Bytes),
				attribute.String("tutti.from", x.From.String()), attribute.String("tutti.to", x.To.String()))
		}
		if x.Kind == tracing.EventCopy {
			attrs = append(attrs, attribute.Int64("tutti.duration_ns", x.Duration))
		}
		if x.Reason != "" {
			attrs = append(attrs, attribute.String("tutti.reason", x.Reason))
		}
		span.AddEvent(x.Kind.String(), trace.WithTimestamp(e.wall(x.At)), trace.WithAttributes(attrs...))
	}
}

// What the names of reports end with that open and close a span.
const (
	reportStart = "_START"
	reportEnd   = "_END"
)

// reportSpan is an open span that a model's report began.
type reportSpan struct {
	ctx  context.Context //nolint:containedctx // the parent of the spans inside
	span trace.Span
}

// reports makes the spans and events of the reports of a step's model. NAME_START opens a span NAME inside the last
// opened one, NAME_END closes the last opened one, and each report is an event of the innermost open span. An
// unclosed span ends with the step.
func (e *Exporter) reports(ctx context.Context, span trace.Span, r *tracing.Record, s *tracing.Step) {
	open := []reportSpan{{ctx, span}}
	r.Reports(s, func(name string, at int64) {
		if short := strings.TrimSuffix(name, reportStart); short != name && short != "" {
			var id tracing.SpanID // not referenced elsewhere
			binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
			inner, opened := e.open(open[len(open)-1].ctx, short, id, at, server)
			open = append(open, reportSpan{inner, opened})
		}
		last := len(open) - 1
		open[last].span.AddEvent(name, trace.WithTimestamp(e.wall(at)))
		if strings.HasSuffix(name, reportEnd) && last > 0 {
			e.close(open[last].span, at)
			open = open[:last]
		}
	})
	for last := len(open) - 1; last > 0; last-- {
		e.close(open[last].span, s.Done)
	}
}
