package otlp_test

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/otlp/otlptest"
)

// received returns the spans of what trace does, with Triton's settings alone.
func received(t *testing.T, trace func(*tracing.Tracer)) *otlptest.Receiver {
	t.Helper()
	r := otlptest.New(t)
	tr, logged, end := start(t, "1", [2]string{"url", r.HTTP})
	trace(tr)
	end()
	if logged.Len() > 0 {
		t.Error(logged)
	}
	return r
}

// TestTritonSpans compares what is sent by default with what Triton sends.
func TestTritonSpans(t *testing.T) {
	t.Parallel()
	r := received(t, ensemble)
	want := []string{
		"InferRequest HTTP_RECV_START HTTP_RECV_END INFER_RESPONSE_COMPLETE HTTP_SEND_END",
		"  pipe REQUEST_START REQUEST_END",
		"    a REQUEST_START QUEUE_START REQUEST_END",
		"      compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END",
		"    b REQUEST_START QUEUE_START REQUEST_END",
		"    c REQUEST_START QUEUE_START REQUEST_END",
	}
	client, _ := hex.DecodeString("b7ad6b7169203331")
	if diff := cmp.Diff(want, r.Tree(client, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, s := range r.Spans {
		if s.GetKind() != wire.Span_SPAN_KIND_SERVER || len(s.GetLinks()) > 0 {
			t.Errorf("span %s is of kind %v with %d links", s.GetName(), s.GetKind(), len(s.GetLinks()))
		}
		for key := range otlptest.Texts(s.GetAttributes()) {
			if !strings.HasPrefix(key, "triton.") {
				t.Errorf("span %s has the attribute %s", s.GetName(), key)
			}
		}
	}
}

// TestReports has the model of a step report spans and points.
func TestReports(t *testing.T) {
	t.Parallel()
	r := received(t, func(tr *tracing.Tracer) {
		x := tr.Sample("m", 1, "")
		x.SetModel(1, false)
		came := telemetry.Now()
		x.Stamp(tracing.RequestStart, came)
		for _, name := range []string{"READ_START", "READ_END", "POINT", "A_START", "B_START", "POINT", "B_END", "A_END", "_START", "OTHER_END", "OPEN_START"} {
			x.Report(0, name)
		}
		x.Report(1, "ANOTHER_STEP")
		end := telemetry.Now()
		x.Step(&tracing.Step{Single: true, Model: "m", Ready: came, Enqueued: came, Done: end, Execution: tracing.Execution{Start: came, InputEnd: came, InferEnd: end, End: end, Batch: 1}})
		x.Stamp(tracing.RequestEnd, end)
		x.End()
	})
	want := []string{
		"InferRequest",
		"  m REQUEST_START QUEUE_START REQUEST_END POINT _START OTHER_END",
		"    compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END",
		"    READ READ_START READ_END",
		"    A A_START A_END",
		"      B B_START POINT B_END",
		"    OPEN OPEN_START",
	}
	if diff := cmp.Diff(want, r.Tree(nil, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCalls has the second step of an ensemble call a model.
func TestCalls(t *testing.T) {
	t.Parallel()
	r := received(t, func(tr *tracing.Tracer) {
		outer := tr.Sample("pipe", 1, "")
		outer.SetModel(1, true)
		now := telemetry.Now()
		outer.Step(&tracing.Step{Model: "first", Ready: now, Enqueued: now, Done: now})
		c := outer.Context(1, 0)
		var o tracing.Origin
		o.Context = c
		inner := tr.SampleFrom("called", 1, "", &o)
		inner.SetOrigin(&o)
		inner.Stamp(tracing.InferResponseComplete, now)
		inner.End()
		outer.Step(&tracing.Step{Node: 1, Model: "caller", Ready: now, Enqueued: now, Done: now})
		outer.End()
	})
	got := r.Tree(nil, "")
	slices.Sort(got) // all began at once
	want := []string{"      called", "    caller REQUEST_START QUEUE_START REQUEST_END", "    first REQUEST_START QUEUE_START REQUEST_END", "  pipe", "InferRequest"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	caller, called := r.Span(t, "caller", ""), r.Span(t, "called", "")
	if string(called.GetParentSpanId()) != string(caller.GetSpanId()) || string(called.GetTraceId()) != string(caller.GetTraceId()) {
		t.Errorf("the call is not below its caller:\n%s", strings.Join(got, "\n"))
	}
	if up, of := otlptest.Texts(caller.GetAttributes()), otlptest.Texts(called.GetAttributes()); of["triton.trace_parent_id"] != up["triton.trace_id"] {
		t.Errorf("the call is of trace %s, the caller is %s", of["triton.trace_parent_id"], up["triton.trace_id"])
	}
}
