package otlp_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/otlp"
)

// BenchmarkRequest measures the cost of a traced ensemble request of three steps, for End and the conversion to
// spans, which run concurrently.
func BenchmarkRequest(b *testing.B) {
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer h.Close()
	set, err := otlp.ParseSettings([][2]string{{"url", h.URL}}, func(string) string { return "" })
	if err != nil {
		b.Fatal(err)
	}
	x, err := otlp.New(b.Context(), set, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	tr, err := tracing.New(tracing.Options{
		Settings: tracing.Settings{Mode: tracing.ModeOpenTelemetry, Level: []string{"TIMESTAMPS"}, Rate: "1"}, Sinks: []tracing.Sink{x},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ensemble(tr)
	}
	b.ReportMetric(float64(x.Lost())/float64(b.N), "lost/op")
	_ = x.Close(b.Context())
}
