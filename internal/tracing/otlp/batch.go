package otlp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tutti-server/tutti/internal/tracing"
)

// batch makes the span of an executed batch.
func (e *Exporter) batch(ctx context.Context, b *tracing.Batch) {
	at := e.batchContext(b.Batch)
	e.ids = ids{tracing.TraceID(at.TraceID()), tracing.SpanID(at.SpanID())}
	links := make([]trace.Link, len(b.Links))
	for i := range b.Links {
		links[i].SpanContext = spanContext(trace.TraceID(b.Links[i].ID), trace.SpanID(b.Links[i].Span), trace.TraceState{}, false)
	}
	attrs := append(executionAttributes(&b.Execution), attribute.String(attrModel, b.Model), attribute.Int64(attrVersion, b.Version))
	_, span := e.tracer.Start(ctx, "batch", trace.WithNewRoot(), trace.WithTimestamp(e.wall(b.Start)), trace.WithLinks(links...), trace.WithAttributes(attrs...))
	e.stamp(span, computeMoments(&b.Execution))
	if b.Failed {
		span.SetStatus(codes.Error, "")
	}
	e.close(span, b.End)
}

// executionAttributes returns the attributes of an execution, for the span of a member or of the batch.
func executionAttributes(x *tracing.Execution) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.Int64("tutti.batch", int64(x.Batch)), attribute.Int("tutti.batch.rows", int(x.BatchRows)), attribute.Int("tutti.batch.members", int(x.Members)),
		attribute.Int64("tutti.batch.elements", x.Elements), attribute.Int64("tutti.batch.padding", x.Padding), attribute.Int64("tutti.batch.before", int64(x.Before)),
		attribute.Int("tutti.instance", int(x.Instance)), attribute.String("tutti.place", x.Place.String()),
	}
}
