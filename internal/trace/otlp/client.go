package otlp

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tutti-server/tutti/core/status"
)

const (
	sendTimeout = 10 * time.Second
	// maxAnswer is how much of a collector's answer is read.
	maxAnswer = 1 << 20
)

// newClient returns what sends spans. It does not connect.
func newClient(ctx context.Context, s *Settings) (sdk.SpanExporter, error) {
	var c sdk.SpanExporter
	var err error
	if s.Protocol == ProtocolGRPC {
		c, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(s.URL))
	} else {
		h := &http.Client{Transport: bounded{http.DefaultTransport}, Timeout: sendTimeout}
		c, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.URL), otlptracehttp.WithHTTPClient(h))
	}
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "traces cannot be sent to '%s' by %s: %w", s.URL, s.Protocol, err)
	}
	return c, nil
}

// bounded reads answers only so far: the client would keep one without end.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}

// reporter sends spans and logs what is lost: once until it goes well again.
type reporter struct {
	sdk.SpanExporter
	log    *slog.Logger
	failed atomic.Bool
	sent   *atomic.Int64
}

// ExportSpans implements sdk.SpanExporter. It reports failures itself.
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
