package otlp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tutti-server/tutti/internal/tracing"
)

// Writer writes single traces as OTLP JSON, with the spans that an Exporter with Settings.Detail sends. It is safe for concurrent use.
type Writer struct {
	res  *resource.Resource
	seed uint64    // of the ids of batches
	like *Exporter // optional: spans have the same times and links as those that it sends
}

// NewWriter returns a Writer with the resource of the settings. If x is not nil, the spans are those that x exports.
func NewWriter(ctx context.Context, s *Settings, x *Exporter) *Writer {
	res, err := newResource(ctx, s)
	if err != nil { // of the environment: it stops exporters only
		res = resource.NewSchemaless(s.about()...)
	}
	return &Writer{res: res, seed: rand.Uint64() | 1, like: x}
}

// JSON returns the spans of a trace: a TracesData of the OpenTelemetry protocol in its JSON form, which collectors, Jaeger and Tempo read.
func (w *Writer) JSON(ctx context.Context, r *tracing.Record) ([]byte, error) {
	c := &collected{}
	e := &Exporter{seed: w.seed, detail: true, epoch: r.Began - r.BeganAt}
	if w.like != nil {
		e.seed, e.epoch = w.like.seed, w.like.epoch
	}
	provider := sdk.NewTracerProvider(append(e.options(w.res), sdk.WithSyncer(c))...)
	e.tracer = provider.Tracer(tracerName)
	e.request(ctx, r)
	if err := provider.Shutdown(ctx); err != nil {
		return nil, err
	}
	if err := otlptrace.NewUnstarted(c).ExportSpans(ctx, c.spans); err != nil {
		return nil, err
	}
	return c.json()
}

// collected has the spans of a trace: as the SDK hands them on, then as messages of the protocol. It is the exporter and the client of a Writer.
type collected struct {
	spans []sdk.ReadOnlySpan
	data  tracepb.TracesData
}

// ExportSpans implements sdk.SpanExporter.
func (c *collected) ExportSpans(_ context.Context, list []sdk.ReadOnlySpan) error {
	c.spans = append(c.spans, list...)
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (*collected) Shutdown(context.Context) error { return nil }

// Start implements otlptrace.Client.
func (*collected) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (*collected) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client.
func (c *collected) UploadTraces(_ context.Context, list []*tracepb.ResourceSpans) error {
	c.data.ResourceSpans = list
	return nil
}

// json encodes the messages. The protocol's JSON differs from protobuf's in two things: enums are numbers, and ids are hexadecimal.
func (c *collected) json() ([]byte, error) {
	for _, r := range c.data.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				span.TraceId, span.SpanId, span.ParentSpanId = hexadecimal(span.GetTraceId()), hexadecimal(span.GetSpanId()), hexadecimal(span.GetParentSpanId())
				for _, l := range span.GetLinks() {
					l.TraceId, l.SpanId = hexadecimal(l.GetTraceId()), hexadecimal(l.GetSpanId())
				}
			}
		}
	}
	b, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&c.data)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, b, "", " ") // protojson's own spaces differ from build to build
	return out.Bytes(), err
}

// hexadecimal returns the bytes whose base64 text, as which protobuf writes bytes, is the hexadecimal text of an id. Ids have 8 or 16 bytes,
// so the text has a multiple of four characters, as base64 needs.
func hexadecimal(id []byte) []byte {
	b, err := base64.StdEncoding.DecodeString(hex.EncodeToString(id))
	if err != nil {
		return nil
	}
	return b
}
