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
			var id tracing.SpanID // not referenced elsewhere
			binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
			next.ctx, next.span = e.open(open[len(open)-1].ctx, short, id, at, server)
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
