package otlp

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"tutti/core/tracing"
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
)

// wall returns the time of day of a time of telemetry.Now.
func (e *Exporter) wall(ns int64) time.Time { return time.Unix(0, e.epoch+ns) }

// open begins a span below that of ctx with a known id.
func (e *Exporter) open(ctx context.Context, name string, id tracing.SpanID, at int64, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	e.ids.span = id
	return e.tracer.Start(ctx, name, append(options, trace.WithTimestamp(e.wall(at)))...) //nolint:spancheck // the caller ends it
}

// whole makes a span that has nothing in it.
func (e *Exporter) whole(ctx context.Context, name string, id tracing.SpanID, start, end int64) {
	_, span := e.open(ctx, name, id, start)
	e.close(span, end)
}

func (e *Exporter) close(span trace.Span, at int64) {
	e.made++
	span.End(trace.WithTimestamp(e.wall(at)))
}

// stamp makes events of moments.
func (e *Exporter) stamp(span trace.Span, moments []tracing.Moment) {
	for _, m := range moments {
		span.AddEvent(m.Point.String(), trace.WithTimestamp(e.wall(m.Ns)))
	}
}

// request makes spans of a request.
func (e *Exporter) request(ctx context.Context, r *tracing.Record) {
	if r.Parent != (tracing.SpanID{}) {
		state, err := trace.ParseTraceState(r.State)
		if err != nil {
			state = trace.TraceState{} // one that cannot be read is not passed on
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, spanContext(trace.TraceID(r.ID), trace.SpanID(r.Parent), state, true))
	}
	e.ids.trace = r.ID
	start, end := r.Bounds()
	ctx, root := e.open(ctx, "InferRequest", r.Span, start, trace.WithSpanKind(trace.SpanKindServer))
	var outer, inner []tracing.Moment
	for _, m := range r.Moments {
		if m.Point >= tracing.RequestStart && m.Point <= tracing.RequestEnd {
			inner = append(inner, m)
		} else {
			outer = append(outer, m)
		}
	}
	e.stamp(root, outer)
	for _, p := range r.Params {
		root.SetAttributes(attribute.String("tutti.parameter."+p.Key, p.Value))
	}
	e.model(ctx, r, inner, end)
	fail(root, r.Failed, r.Error)
	e.close(root, end)
}

func fail(span trace.Span, failed bool, text string) {
	if failed {
		span.SetStatus(codes.Error, text)
	}
}

// model makes the span of the requested model, with those of its steps below it.
func (e *Exporter) model(ctx context.Context, r *tracing.Record, moments []tracing.Moment, end int64) {
	start := r.BeganAt
	if at := r.First(tracing.RequestStart); at != 0 {
		start = at
	}
	if at := r.Last(tracing.RequestEnd); at != 0 {
		end = at
	}
	id := r.Span.Part(partModel)
	if len(r.Steps) > 0 && r.Steps[0].Own {
		id = r.Steps[0].Span // which the model has told others
	}
	ctx, span := e.open(ctx, r.Model, id, start, trace.WithAttributes(aboutModel(r, r.Model, r.Version, r.Number, 0)...))
	e.stamp(span, moments)
	e.events(span, r, -1)
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Own {
			span.AddEvent(tracing.QueueStart.String(), trace.WithTimestamp(e.wall(s.Enqueued)))
			e.events(span, r, s.Node)
			e.parts(ctx, s)
			continue
		}
		e.step(ctx, r, s)
	}
	fail(span, r.Failed, r.Error)
	e.close(span, end)
}

func aboutModel(r *tracing.Record, name string, version int64, number, parent uint64) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String(attrModel, name), attribute.Int64(attrVersion, version),
		attribute.Int64(attrTrace, int64(number)), attribute.Int64(attrParent, int64(parent)),
	}
	if r.Request != "" {
		list = append(list, attribute.String(attrRequest, r.Request))
	}
	return list
}

// step makes the span of a step of an ensemble.
func (e *Exporter) step(ctx context.Context, r *tracing.Record, s *tracing.Step) {
	attrs := append(aboutModel(r, s.Model, s.Version, s.Number, r.Number), attribute.Int("tutti.node", int(s.Node)), attribute.Int("tutti.after", int(s.After)))
	if s.Wave != 0 {
		attrs = append(attrs, attribute.Int("tutti.wave", int(s.Wave)))
	}
	ctx, span := e.open(ctx, s.Model, s.Span, s.Ready, trace.WithAttributes(attrs...))
	e.stamp(span, []tracing.Moment{{Point: tracing.RequestStart, Ns: s.Enqueued}, {Point: tracing.QueueStart, Ns: s.Enqueued}})
	e.events(span, r, s.Node)
	e.parts(ctx, s)
	e.stamp(span, []tracing.Moment{{Point: tracing.RequestEnd, Ns: s.Done}})
	fail(span, s.Failed, s.Code.String())
	e.close(span, s.Done)
}

// parts makes the spans of what a step's time went into.
func (e *Exporter) parts(ctx context.Context, s *tracing.Step) {
	if s.Batch == 0 || s.Start == 0 {
		return // it was not executed
	}
	e.whole(ctx, "queue", s.Span.Part(partQueue), s.Enqueued, s.Start)
	if s.Held != 0 && s.Held < s.Start {
		e.whole(ctx, "batch", s.Span.Part(partBatch), max(s.Held, s.Enqueued), s.Start)
	}
	ctx, span := e.open(ctx, "compute", s.Span.Part(partCompute), s.Start, trace.WithLinks(trace.Link{SpanContext: e.batchContext(s.Batch)}),
		trace.WithAttributes(append(executionAttributes(&s.Execution), attribute.Int("tutti.rows", int(s.Rows)))...))
	e.stamp(span, computeMoments(&s.Execution))
	e.whole(ctx, "input", s.Span.Part(partInput), s.Start, s.InputEnd)
	e.whole(ctx, "infer", s.Span.Part(partInfer), s.InputEnd, s.InferEnd)
	e.whole(ctx, "output", s.Span.Part(partOutput), s.InferEnd, s.End)
	fail(span, s.Failed, s.Code.String())
	e.close(span, s.End)
}

// events makes events of what happened to a node, -1 for the request itself.
func (e *Exporter) events(span trace.Span, r *tracing.Record, node int32) {
	for i := range r.Events {
		x := &r.Events[i]
		if x.Node != node {
			continue
		}
		var attrs []attribute.KeyValue
		if x.Kind == tracing.EventCopy {
			attrs = append(attrs, attribute.String("tutti.tensor", x.Tensor), attribute.Int64("tutti.bytes", x.Bytes),
				attribute.String("tutti.from", x.From.String()), attribute.String("tutti.to", x.To.String()))
		}
		if x.Reason != "" {
			attrs = append(attrs, attribute.String("tutti.reason", x.Reason))
		}
		span.AddEvent(x.Kind.String(), trace.WithTimestamp(e.wall(x.At)), trace.WithAttributes(attrs...))
	}
}
