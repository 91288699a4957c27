package grpcapi_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/internal/tracing"
)

// TestTrace checks the timestamps of unary and streamed requests, from the first byte to the last.
func TestTrace(t *testing.T) {
	t.Parallel()
	e := servertest.NewStreams()
	traced := servertest.NewTraced(t, e)
	c, _, s := serveWith(t, grpcapi.Settings{Infer: traced, Catalog: e, Tracer: traced.Tracer})
	for _, req := range []string{`id: "one"` + xAB, `id: "bad" inputs { name: "X" datatype: "?" }`, `model_name: "fail" id: "failed"` + xAB} {
		_, _ = c.ModelInfer(t.Context(), message(t, req))
	}
	stream, err := c.ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sc := &streamClient{stream, t}
	sc.send(`id: "streamed"`+xAB, `model_name: "repeat" id: "many"`+xAB)
	sc.recv()
	sc.recv()
	sc.recv()
	if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	whole := []string{"GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "GRPC_SEND_START", "GRPC_SEND_END"}
	got := traced.Stamps(t)
	if diff := cmp.Diff(4, count(got["many"], "GRPC_SEND_START")+count(got["many"], "GRPC_SEND_END")); diff != "" {
		t.Errorf("many: %v", got["many"])
	}
	delete(got, "many")
	if diff := cmp.Diff(map[string][]string{"one": whole, "streamed": whole, "failed": whole[:2]}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func count(list []string, name string) (n int) {
	for _, s := range list {
		if s == name {
			n++
		}
	}
	return n
}

// ended counts the traces that have ended.
type ended struct{ n atomic.Int32 }

func (e *ended) Trace(*tracing.Trace) { e.n.Add(1) }
func (*ended) Batch(*tracing.Batch)   {}

// TestTraceOfGrownResponse checks that a response that is larger than its estimate gives up its trace once: the request
// still holds it.
func TestTraceOfGrownResponse(t *testing.T) {
	t.Parallel()
	sink := &ended{}
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{sink}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	x := tr.SampleFrom("m", 1, "id", &tracing.Origin{})
	resp := infer.NewResponse()
	resp.Trace = x.Hold()
	resp.Params = infer.Params{{Key: "long", Kind: infer.ParamString, String: strings.Repeat("x", 64<<10)}}
	data := grpcapi.MarshalResponse(resp)
	data.Free()
	if n := sink.n.Load(); n != 0 {
		t.Errorf("the trace has ended %d times while the request holds it", n)
	}
	x.End()
	if n := sink.n.Load(); n != 1 {
		t.Errorf("the trace has ended %d times, want once", n)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
