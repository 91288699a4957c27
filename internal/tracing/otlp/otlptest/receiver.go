// Package otlptest receives spans in tests.
package otlptest

import (
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Receiver takes spans over the OpenTelemetry protocol, by HTTP and by gRPC. What it has
// is read when nothing is sent any more.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	// HTTP and GRPC are the URLs to send to.
	HTTP, GRPC string

	mu sync.Mutex
	// Spans are those received, Scopes the names of what they are from, and Resource
	// what they are from, all of it.
	Spans    []*wire.Span
	Resource map[string]string
	Scopes   []string
}

// New returns a receiver that ends with the test.
func New(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{Resource: map[string]string{}}
	h := httptest.NewServer(r)
	t.Cleanup(h.Close)
	r.HTTP = h.URL + "/v1/traces"
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, r)
	go srv.Serve(lis) //nolint:errcheck // it ends when the test stops it
	t.Cleanup(srv.Stop)
	r.GRPC = "http://" + lis.Addr().String()
	return r
}

// Export implements collector.TraceServiceServer.
func (r *Receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		maps.Copy(r.Resource, Texts(rs.GetResource().GetAttributes()))
		for _, ss := range rs.GetScopeSpans() {
			r.Scopes = append(r.Scopes, ss.GetScope().GetName())
			r.Spans = append(r.Spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP takes what Export takes.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	b, err := io.ReadAll(h.Body)
	var req collector.ExportTraceServiceRequest
	if err != nil || h.URL.Path != "/v1/traces" || h.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(b, &req) != nil {
		http.Error(w, "expected an OTLP export by protobuf", http.StatusBadRequest)
		return
	}
	resp, _ := r.Export(h.Context(), &req)
	out, _ := proto.Marshal(resp) // it is empty
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// Texts returns attributes as text.
func Texts(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		default:
			m[a.GetKey()] = a.GetValue().String()
		}
	}
	return m
}

// Tree returns the spans below one as text, in order of their start, with the names of
// the span's events.
func (r *Receiver) Tree(parent []byte, indent string) (lines []string) {
	if len(indent) > 20 {
		return []string{"a span is its own ancestor"}
	}
	var list []*wire.Span
	for _, s := range r.Spans {
		if string(s.GetParentSpanId()) == string(parent) {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b *wire.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
	for _, s := range list {
		words := []string{indent + s.GetName()}
		for _, e := range s.GetEvents() {
			words = append(words, e.GetName())
		}
		lines = append(append(lines, strings.Join(words, " ")), r.Tree(s.GetSpanId(), indent+"  ")...)
	}
	return lines
}

// Span returns the only span that is of a name and below another one, "" for any.
func (r *Receiver) Span(t *testing.T, name, parent string) *wire.Span {
	t.Helper()
	var found *wire.Span
	for _, s := range r.Spans {
		if s.GetName() != name || parent != "" && hex.EncodeToString(s.GetParentSpanId()) != parent {
			continue
		}
		if found != nil {
			t.Fatalf("there are two spans %s", name)
		}
		found = s
	}
	if found == nil {
		t.Fatalf("there is no span %s", name)
	}
	return found
}
