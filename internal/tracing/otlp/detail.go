package otlp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tutti-server/tutti/internal/tracing"
)

// stepAttributes returns the position of a step in its ensemble.
func stepAttributes(s *tracing.Step) []attribute.KeyValue {
	list := []attribute.KeyValue{attribute.Int("tutti.node", int(s.Node)), attribute.Int("tutti.after", int(s.After))}
	if s.SubRun != 0 {
		list = append(list, attribute.Int("tutti.wave", int(s.SubRun)))
	}
	return list
}

// waits makes the spans of a step's time before its execution.
func (e *Exporter) waits(ctx context.Context, s *tracing.Step) {
	e.whole(ctx, "queue", s.Span.Part(partQueue), s.Enqueued, s.Start)
	if s.Held != 0 && s.Held < s.Start {
		e.whole(ctx, "batch", s.Span.Part(partBatch), max(s.Held, s.Enqueued), s.Start)
	}
}

// phases makes the spans of an execution's phases.
func (e *Exporter) phases(ctx context.Context, s *tracing.Step) {
	e.whole(ctx, "input", s.Span.Part(partInput), s.Start, s.InputEnd)
	e.whole(ctx, "infer", s.Span.Part(partInfer), s.InputEnd, s.InferEnd)
	e.whole(ctx, "output", s.Span.Part(partOutput), s.InferEnd, s.End)
}

// whole makes a span without children.
func (e *Exporter) whole(ctx context.Context, name string, id tracing.SpanID, start, end int64) {
	_, span := e.open(ctx, name, id, start)
	e.close(span, end)
}

// events adds the events of a node to its span, -1 for the request. Reports of models are not among them: see
// reports.
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
			var next reportSpan
			next.ctx, next.span = e.open(open[len(open)-1].ctx, short, randomSpan(), at, server)
			open = append(open, next)
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

// randomSpan returns an id for a span that is not referenced elsewhere.
func randomSpan() (id tracing.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
