package otlp_test

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// receiver takes spans over the OpenTelemetry protocol, by HTTP and by gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	http, grpc string // addresses

	mu       sync.Mutex
	spans    []*wire.Span      // guarded by mu
	resource map[string]string // guarded by mu
	scopes   []string          // guarded by mu
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{resource: map[string]string{}}
	h := httptest.NewServer(r)
	t.Cleanup(h.Close)
	r.http = h.URL + "/v1/traces"
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, r)
	go srv.Serve(lis) //nolint:errcheck // it ends when the test stops it
	t.Cleanup(srv.Stop)
	r.grpc = "http://" + lis.Addr().String()
	return r
}

// Export implements collector.TraceServiceServer.
func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		for k, v := range texts(rs.GetResource().GetAttributes()) {
			r.resource[k] = v
		}
		for _, ss := range rs.GetScopeSpans() {
			r.scopes = append(r.scopes, ss.GetScope().GetName())
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP takes what Export takes.
func (r *receiver) ServeHTTP(w http.ResponseWriter, h *http.Request) {
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

// texts returns attributes as text.
func texts(list []*common.KeyValue) map[string]string {
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

// tree returns the spans below one as text, in order of their start, with the names of
// the span's events.
func (r *receiver) tree(parent []byte, indent string) (lines []string) {
	if len(indent) > 20 {
		return []string{"a span is its own ancestor"}
	}
	var list []*wire.Span
	for _, s := range r.spans {
		if string(s.GetParentSpanId()) == string(parent) {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b *wire.Span) int {
		return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano()))
	})
	for _, s := range list {
		line := indent + s.GetName()
		for _, e := range s.GetEvents() {
			line += " " + e.GetName()
		}
		lines = append(append(lines, line), r.tree(s.GetSpanId(), indent+"  ")...)
	}
	return lines
}

// span returns the only span that is of a name and below another one, "" for any.
func (r *receiver) span(t *testing.T, name, parent string) *wire.Span {
	t.Helper()
	var found *wire.Span
	for _, s := range r.spans {
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
