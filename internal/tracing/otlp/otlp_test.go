package otlp_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/otlp"
	"github.com/tutti-server/tutti/internal/tracing/otlp/otlptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clientParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// start returns a tracer that exports by a protocol, its log, and a function that closes both.
func start(t *testing.T, rate string, pairs ...[2]string) (*tracing.Tracer, *bytes.Buffer, func()) {
	t.Helper()
	set, err := otlp.ParseSettings(pairs, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	x, err := otlp.New(t.Context(), set, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := tracing.New(tracing.Options{
		Settings: tracing.Settings{Mode: tracing.ModeOpenTelemetry, Level: []string{"TIMESTAMPS"}, Rate: rate, Exporter: set.Shown()},
		Sinks:    []tracing.Sink{x},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr, &logged, func() {
		if err := errors.Join(tr.Close(), x.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}
}

// ensemble traces a request of an ensemble of two steps. The first executed in a batch with another request, the
// second was cached.
func ensemble(tr *tracing.Tracer) {
	now := telemetry.Now()
	o := tracing.Origin{Start: tracing.HTTPRecvStart, Done: tracing.HTTPRecvEnd, Read: tr.Begin()}
	o.Read.End()
	o.Follow(clientParent, "vendor=1")
	x := tr.SampleFrom("pipe", 3, "r1", &o)
	x.SetOrigin(&o)
	x.SetModel(3, true)
	mate := tr.SampleFrom("pipe", 3, "r2", &o)
	x.Stamp(tracing.RequestStart, now+10)
	x.Due(now+100, now+110)
	x.Predict(&tracing.Forecast{Node: 0, Step: "first", End: now + 90})
	x.Predict(&tracing.Forecast{Node: 2, Step: "last", End: now + 110})
	run := tracing.Execution{Start: now + 40, InputEnd: now + 50, InferEnd: now + 80, End: now + 90, Batch: x.NextBatch(), Rows: 1, BatchRows: 3, Members: 2, Held: now + 30}
	b := tracing.Batch{Execution: run, Model: "a", Version: 1}
	b.Join(x)
	b.Join(mate)
	x.Executed(&b)
	x.Event(&tracing.Event{Kind: tracing.EventCopy, At: now + 45, Node: 0, Tensor: "T", Bytes: 64, To: tensor.Place{Kind: tensor.Device}, Reason: "input"})
	x.Event(&tracing.Event{
		Kind: tracing.EventSpill, At: now + 46, Node: 0, Tensor: "T", Bytes: 64, From: tensor.Place{Kind: tensor.Device}, To: tensor.Place{Kind: tensor.Pinned}, Reason: "full",
	})
	x.Step(&tracing.Step{Node: 0, After: -1, Model: "a", Version: 1, Ready: now + 20, Enqueued: now + 21, Done: now + 95, Execution: run})
	x.Event(&tracing.Event{Kind: tracing.EventCacheHit, At: now + 97, Node: 1})
	x.Step(&tracing.Step{Node: 1, Model: "b", Version: 2, Ready: now + 95, Enqueued: now + 96, Done: now + 99, Cached: true})
	x.Step(&tracing.Step{Node: 2, After: 1, Model: "c", Version: 2, Ready: now + 99, Enqueued: now + 100, Done: now + 101, Failed: true, Code: status.Unavailable})
	x.Event(&tracing.Event{Kind: tracing.EventRefused, At: now + 101, Node: 2, Reason: "full"})
	x.Fail(&status.Error{Code: status.Unavailable, Msg: "no place for it", Reason: status.QueueFull, Step: "last", Finish: 3 * time.Millisecond})
	x.Stamp(tracing.InferResponseComplete, now+105)
	x.Stamp(tracing.RequestEnd, now+110)
	x.Stamp(tracing.HTTPSendEnd, now+120)
	x.End()
	mate.End()
}

// TestExport checks the spans of a request by both protocols.
func TestExport(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{otlp.ProtocolHTTP, otlp.ProtocolGRPC} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			r := otlptest.New(t)
			url := map[string]string{otlp.ProtocolHTTP: r.HTTP, otlp.ProtocolGRPC: r.GRPC}[protocol]
			tr, logged, end := start(t, "0", [2]string{"url", url}, [2]string{"protocol", protocol}, [2]string{"resource", "host.name=h"}, [2]string{"detail", "true"})
			ensemble(tr)
			if tr.Sample("pipe", 3, "") != nil {
				t.Error("at rate 0 a request is traced that follows no trace")
			}
			end()
			if logged.Len() > 0 {
				t.Error(logged)
			}
			checkSpans(t, r)
		})
	}
}

func checkSpans(t *testing.T, r *otlptest.Receiver) {
	t.Helper()
	want := []string{
		"InferRequest HTTP_RECV_START HTTP_RECV_END INFER_RESPONSE_COMPLETE HTTP_SEND_END",
		"  pipe REQUEST_START REQUEST_END forecast forecast",
		"    a REQUEST_START QUEUE_START copy spill REQUEST_END",
		"      queue",
		"      batch",
		"      compute COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END",
		"        input",
		"        infer",
		"        output",
		"    b REQUEST_START QUEUE_START cache_hit REQUEST_END",
		"    c REQUEST_START QUEUE_START refused REQUEST_END",
	}
	client, _ := hex.DecodeString("b7ad6b7169203331")
	if diff := cmp.Diff(want, r.Tree(client, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Resource["service.name"] != "triton-inference-server" || r.Resource["host.name"] != "h" || r.Scopes[0] != "triton-server" {
		t.Errorf("resource %v, scopes %v", r.Resource, r.Scopes)
	}
	root := r.Span(t, "InferRequest", hex.EncodeToString(client))
	if id := hex.EncodeToString(root.GetTraceId()); id != clientParent[3:35] || root.GetTraceState() != "vendor=1" || root.GetStatus().GetMessage() != "no place for it" {
		t.Errorf("the root is %v", root)
	}
	pipe := r.Span(t, "pipe", hex.EncodeToString(root.GetSpanId()))
	got := otlptest.Texts(pipe.GetAttributes())
	if got["triton.model_name"] != "pipe" || got["triton.request_id"] != "r1" || got["triton.model_version"] != "int_value:3" || got["triton.trace_parent_id"] != "int_value:0" {
		t.Errorf("attributes %v", got)
	}
	for name, want := range map[string]string{
		"tutti.deadline_ns": "int_value:90", "tutti.predicted_ns": "int_value:100", "error.type": "QUEUE_FULL", "tutti.step": "last", "tutti.predicted_finish_ms": "int_value:3",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	var forecasts []map[string]string
	for _, e := range pipe.GetEvents() {
		if e.GetName() == "forecast" {
			forecasts = append(forecasts, otlptest.Texts(e.GetAttributes()))
		}
	}
	if diff := cmp.Diff([]map[string]string{
		{"tutti.step": "first", "tutti.node": "int_value:0", "tutti.predicted_ns": "int_value:80", "tutti.end_ns": "int_value:85"},
		{"tutti.step": "last", "tutti.node": "int_value:2", "tutti.predicted_ns": "int_value:100"},
	}, forecasts); diff != "" {
		t.Errorf("forecasts (-want +got):\n%s", diff)
	}
	step := r.Span(t, "a", "")
	if otlptest.Texts(step.GetAttributes())["triton.trace_parent_id"] != got["triton.trace_id"] {
		t.Errorf("the step's are %v, the ensemble's %v", step.GetAttributes(), got)
	}
	for _, e := range step.GetEvents() {
		want := map[string]string{"tutti.tensor": "T", "tutti.bytes": "int_value:64", "tutti.from": "device:0", "tutti.to": "pinned", "tutti.reason": "full"}
		if got := otlptest.Texts(e.GetAttributes()); e.GetName() == "spill" && !maps.Equal(got, want) {
			t.Errorf("the spill has %v, want %v", got, want)
		}
	}
	// The batch and its members are linked both ways.
	compute := r.Span(t, "compute", hex.EncodeToString(step.GetSpanId()))
	links := compute.GetLinks()
	if len(links) != 1 {
		t.Fatalf("%d links", len(links))
	}
	for _, s := range r.Spans {
		if string(s.GetSpanId()) != string(links[0].GetSpanId()) {
			continue
		}
		if s.GetName() != "batch" || string(s.GetTraceId()) != string(links[0].GetTraceId()) || len(s.GetLinks()) != 2 || string(s.GetLinks()[0].GetSpanId()) != string(root.GetSpanId()) {
			t.Errorf("the batch is %v", s)
		}
		return
	}
	t.Error("the batch is missing")
}

// TestCollectorGone checks that without a collector the loss is logged once, and that neither requests nor Close
// block.
func TestCollectorGone(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("no", 10), http.StatusBadRequest)
	}))
	t.Cleanup(refuses.Close)
	tr, logged, end := start(t, "1", [2]string{"url", refuses.URL}, [2]string{"bsp_max_export_batch_size", "1"})
	for range 5 {
		tr.Sample("m", 1, "").End()
	}
	end()
	if n := strings.Count(logged.String(), "spans are lost"); n != 1 {
		t.Errorf("logged %d times: %s", n, logged)
	}
	if !strings.Contains(logged.String(), `msg="not everything was exported" traces=0 spans=10`) {
		t.Errorf("the end says %s", logged)
	}
	tr.Sample("m", 1, "").End() // after the end nothing is traced
}

func TestParseSettings(t *testing.T) {
	t.Parallel()
	env := map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "x", "OTEL_SERVICE_NAME": "s"}
	tests := []struct {
		pairs [][2]string
		env   map[string]string
		want  otlp.Settings
		err   string
	}{
		{want: otlp.Settings{URL: "http://localhost:4318/v1/traces", Protocol: "http/protobuf", Resource: map[string]string{"service.name": "triton-inference-server"}, QueueSize: 2048, BatchSize: 512, Delay: 5 * time.Second}},
		{env: env, want: otlp.Settings{URL: "http://localhost:4318/v1/traces", Protocol: "http/protobuf", Resource: map[string]string{"service.name": "s"}, QueueSize: 100, BatchSize: 100, Delay: 20 * time.Millisecond}},
		{
			pairs: [][2]string{{"url", "collector:1/v1"}, {"resource", "a=b=c"}, {"resource", "service.name=n"}, {"bsp_max_queue_size", "8"}, {"bsp_schedule_delay", "7"}, {"bsp_max_export_batch_size", "6"}},
			env:   env,
			want:  otlp.Settings{URL: "http://collector:1/v1", Protocol: "http/protobuf", Resource: map[string]string{"service.name": "n", "a": "b=c"}, QueueSize: 8, BatchSize: 6, Delay: 7 * time.Millisecond},
		},
		{pairs: [][2]string{{"protocol", "grpc"}}, want: otlp.Settings{URL: "http://localhost:4317", Protocol: "grpc", Resource: map[string]string{"service.name": "triton-inference-server"}, QueueSize: 2048, BatchSize: 512, Delay: 5 * time.Second}},
		{pairs: [][2]string{{"url", "ftp://h"}}, err: "--trace-config opentelemetry,url is 'ftp://h', expected http://HOST:PORT/PATH or https://HOST:PORT/PATH"},
		{pairs: [][2]string{{"protocol", "json"}}, err: "--trace-config opentelemetry,protocol is 'json', expected http/protobuf or grpc"},
		{pairs: [][2]string{{"resource", "x"}}, err: "--trace-config opentelemetry,resource is 'x', expected KEY=VALUE"},
		{pairs: [][2]string{{"bsp_schedule_delay", "0"}}, err: "--trace-config opentelemetry,bsp_schedule_delay is '0', expected a number from 1 to 1073741824"},
		{pairs: [][2]string{{"bsp_max_queue_size", "5"}, {"bsp_max_export_batch_size", "6"}}, err: "--trace-config opentelemetry,bsp_max_export_batch_size is 6, expected at most bsp_max_queue_size, which is 5"},
		{pairs: [][2]string{{"speed", "1"}}, err: "unknown setting 'opentelemetry,speed' of --trace-config, expected one of: url, protocol, resource, bsp_max_queue_size, bsp_schedule_delay, bsp_max_export_batch_size, detail"},
		{pairs: [][2]string{{"detail", "x"}}, err: "--trace-config opentelemetry,detail is 'x', expected true or false"},
	}
	for _, tt := range tests {
		got, err := otlp.ParseSettings(tt.pairs, func(k string) string { return tt.env[k] })
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%v: %v, want %s", tt.pairs, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", tt.pairs, err)
			continue
		}
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.pairs, diff)
		}
	}
	s := otlp.Settings{URL: "http://me:secret@h/p"}
	if got := fmt.Sprint(s.Shown()); strings.Contains(got, "secret") {
		t.Error("a password is shown: " + got)
	}
}
