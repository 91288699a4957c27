package otlp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/tutti-server/tutti/internal/tracing"
)

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
