package otlp

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tutti-server/tutti/core/status"
)

// newClient returns the exporter of the SDK for the protocol. It does not connect.
func newClient(ctx context.Context, s *Settings) (sdk.SpanExporter, error) {
	var c sdk.SpanExporter
	var err error
	if s.Protocol == ProtocolGRPC {
		c, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(s.URL))
	} else {
		c, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.URL))
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "traces cannot be sent to '%s' by %s: %w", s.URL, s.Protocol, err)
	}
	return c, nil
}

// reporter is a SpanExporter that logs lost spans: the first failure after a success.
type reporter struct {
	sdk.SpanExporter
	log    *slog.Logger
	failed atomic.Bool
	sent   *atomic.Int64
}

// ExportSpans implements sdk.SpanExporter. It logs failures itself and never returns one.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		r.sent.Add(int64(len(spans)))
		r.failed.Store(false)
		return nil
	}
	if !r.failed.Swap(true) {
		r.log.LogAttrs(ctx, slog.LevelError, "spans are lost", slog.Int("spans", len(spans)), slog.String("error", err.Error()))
	}
	return nil
}
