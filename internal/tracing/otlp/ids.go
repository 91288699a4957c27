package otlp

import (
	"context"
	"encoding/binary"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tutti-server/tutti/internal/tracing"
)

// ids is an SDK id generator that returns preset ids: other servers, the trace store and links between spans
// already use them. It must be used by one goroutine.
type ids struct {
	trace tracing.TraceID
	span  tracing.SpanID
}

var _ sdk.IDGenerator = (*ids)(nil)

// NewIDs implements sdk.IDGenerator.
func (g *ids) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	return trace.TraceID(g.trace), trace.SpanID(g.span)
}

// NewSpanID implements sdk.IDGenerator.
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
