package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/steps"
)

// said is what an error says to programs, besides its delay.
type said struct {
	code      string // the HTTP status, or the gRPC code
	reason    string
	retryable bool
	step      string
}

// overHTTP sends a request that fails and returns what the body says, with the delay. The headers must say the same.
func overHTTP(t *testing.T, a addresses, model, body string) (said, time.Duration) {
	t.Helper()
	resp, err := http.Post("http://"+a.http+"/v2/models/"+model+"/infer", "application/json", strings.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var e struct {
		Error, Reason, Step string
		Retryable           bool
		After               int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(text, &e); err != nil || e.Error == "" {
		t.Fatalf("model %s: %s, %s: expected an error", model, resp.Status, text)
	}
	h, after := resp.Header, strconv.FormatInt(e.After, 10)
	if h.Get("tutti-error-reason") != e.Reason || h.Get("tutti-error-retryable") != strconv.FormatBool(e.Retryable) ||
		e.After > 0 && (h.Get("tutti-retry-after-ms") != after || h.Get("retry-after") != strconv.FormatInt((e.After+999)/1000, 10)) {
		t.Errorf("model %s: the headers %v differ from %s", model, h, text)
	}
	return said{strconv.Itoa(resp.StatusCode), e.Reason, e.Retryable, e.Step}, time.Duration(e.After) * time.Millisecond
}

// overGRPC is overHTTP for gRPC, of which ErrorInfo and RetryInfo say it.
func overGRPC(t *testing.T, a addresses, req *inference.ModelInferRequest) (said, time.Duration) {
	t.Helper()
	_, err := dialStub(t, a.grpc).ModelInfer(t.Context(), req)
	return detailsOf(t, err)
}

// detailsOf returns what the details of a gRPC error say.
func detailsOf(t *testing.T, err error) (s said, after time.Duration) {
	t.Helper()
	if err == nil {
		t.Fatal("expected an error")
	}
	st := status.Convert(err)
	s.code = st.Code().String()
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			m := d.GetMetadata()
			s.reason, s.retryable, s.step = d.GetReason(), m["retryable"] == "true", m["step"]
		case *errdetails.RetryInfo:
			after = d.GetRetryDelay().AsDuration()
		}
	}
	return s, after
}

// refusedAlike sends a request over HTTP and gRPC, both of which must be refused with 503, for the same reason and with a delay if delayed.
func refusedAlike(t *testing.T, a addresses, model, id, reason, step string, delayed bool) {
	t.Helper()
	body, req := batchInput, batchRequest(model)
	if id != "" {
		body, req.Id = strings.Replace(body, "{", `{"id":"`+id+`",`, 1), id
	}
	got, after := overHTTP(t, a, model, body)
	if want := (said{"503", reason, true, step}); got != want || delayed != (after > 0) {
		t.Errorf("model %s over HTTP: %+v after %v, want %+v", model, got, after, want)
	}
	got, after = overGRPC(t, a, req)
	if want := (said{"Unavailable", reason, true, step}); got != want || delayed != (after > 0) {
		t.Errorf("model %s over gRPC: %+v after %v, want %+v", model, got, after, want)
	}
}

const batchInput = `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,1],"data":[7]}]}`

func batchRequest(model string) *inference.ModelInferRequest {
	req := drainRequest(model)
	req.Inputs[0].Shape = []int64{1, 1}
	return req
}

// reasonsPorts are the ports of all models of TestReasons.
const reasonsPorts = `max_batch_size: 1 input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }] `

// oneStep is the configuration of an ensemble of one step.
func oneStep(model string) string {
	return `platform: "ensemble" ` + reasonsPorts + `ensemble_scheduling { step { model_name: "` + model + `" model_version: -1
		input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } } }`
}

// relayModel is a Python model that passes the error of a call on in a way.
func relayModel(way string) string {
	return `import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(r) for r in requests]

    def respond(self, r):
        call = pb.InferenceRequest(model_name="outer", requested_output_names=["OUTPUT0"], inputs=r.inputs()).exec()
        assert call.has_error() and call.error().reason() == "QUEUE_FULL" and call.error().retry_after() > 0
        ` + way + "\n"
}

// heldServer starts a server with the backend held, and returns a function that sends a request to a model of it and waits until the model
// executes it, or until it is queued if others are before it. The request ends when h.let is received from, and its response goes to done.
func heldServer(t *testing.T, args ...string) (a addresses, h *held, send func(model string, queued int), done chan string) {
	t.Helper()
	h, done = &held{begun: make(chan struct{}), let: make(chan struct{})}, make(chan string, 8)
	c := components()
	plain := c.Backends
	c.Backends = func(known *steps.Registry) []backends.Factory { return append(slices.Clone(plain(known)), h.factory()) }
	a = serveWith(t, c, args...)
	send = func(model string, queued int) {
		go func() {
			_, text := fetch(t, "http://"+a.http+"/v2/models/"+model+"/infer", strings.Replace(batchInput, "{", `{"id":"`+strings.Repeat("x", 3000)+`",`, 1))
			done <- text
		}()
		if queued == 0 {
			<-h.begun
			return
		}
		for want := regexp.MustCompile(`nv_inference_pending_request_count\{model="` + model + `",version="1"\} ` + strconv.Itoa(queued)); !want.MatchString(metricsOf(t, a)); {
			if t.Context().Err() != nil {
				t.Fatal("the request was not queued")
			}
		}
	}
	return a, h, send, done
}

// succeed checks that n requests of a heldServer succeed once they are released.
func succeed(t *testing.T, h *held, done chan string, n int) {
	t.Helper()
	for i := range n {
		h.let <- struct{}{}
		if i < n-1 {
			<-h.begun
		}
	}
	for range n {
		if text := <-done; !strings.Contains(text, `"data":[7]`) {
			t.Errorf("a request that had room: %s", text)
		}
	}
}

// TestReasons checks what requests are refused with by a queue that is full and by one whose timeout has passed, over HTTP and gRPC alike: for
// the model, for an ensemble with it, for a step at another server, and for Python models that pass on the error of a call.
func TestReasons(t *testing.T) {
	t.Parallel()
	root, near := t.TempDir(), t.TempDir()
	writeModel(t, root, "full", `backend: "held" `+reasonsPorts+`dynamic_batching { default_queue_policy { max_queue_size: 1 } }`)
	writeModel(t, root, "timed", `backend: "held" `+reasonsPorts+`dynamic_batching { default_queue_policy { default_timeout_microseconds: 1 } }`)
	writeModel(t, root, "outer", oneStep("full"))
	writeModel(t, root, "waits", oneStep("timed"))
	python := pythonCheck() == nil
	if python {
		for name, way := range map[string]string{
			"returns": "return pb.InferenceResponse(error=call.error())", "makes": "return pb.InferenceResponse(error=pb.TritonError(call.error().message(), call.error().code()))",
			"raises": "raise pb.TritonModelException(call.error().message())",
		} {
			writeModel(t, root, name, `backend: "python" `+reasonsPorts)
			writeFile(t, filepath.Join(root, name, "1", "model.py"), []byte(relayModel(way)))
			writeModel(t, root, "e_"+name, oneStep(name))
		}
	}
	a, h, send, done := heldServer(t, "--model-repository="+root)
	writeFile(t, mkdir(t, near, "far")+"/config.pbtxt", []byte(`backend: "remote" parameters [ { key: "endpoint" value { string_value: "`+a.grpc+`" } }, { key: "remote_model" value { string_value: "outer" } } ]`))
	writeModel(t, near, "ens", oneStep("far"))
	b := serve(t, "--model-repository="+near)

	send("full", 0)
	send("full", 1)
	refusedAlike(t, a, "full", "", "QUEUE_FULL", "", true)
	refusedAlike(t, a, "outer", "", "QUEUE_FULL", "full", true)
	refusedAlike(t, b, "far", "", "QUEUE_FULL", "full", true)
	refusedAlike(t, b, "ens", "", "QUEUE_FULL", "far/full", true)
	if python {
		for _, name := range []string{"returns", "makes", "raises"} {
			refusedAlike(t, a, name, "", "QUEUE_FULL", "outer/full", true)
			refusedAlike(t, a, "e_"+name, "", "QUEUE_FULL", name+"/outer/full", true)
		}
	}
	succeed(t, h, done, 2)

	send("timed", 0)
	refusedAlike(t, a, "timed", "", "QUEUE_TIMEOUT", "", false)
	refusedAlike(t, a, "waits", "", "QUEUE_TIMEOUT", "timed", false)
	succeed(t, h, done, 1)
}

// TestReasonOfBytes checks what a request is refused with while others use the limit of bytes.
func TestReasonOfBytes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeModel(t, root, "full", `backend: "held" `+reasonsPorts)
	a, h, send, done := heldServer(t, "--model-repository="+root, "--max-inflight-bytes=4096")
	send("full", 0)
	refusedAlike(t, a, "full", strings.Repeat("y", 3000), "BYTES_IN_FLIGHT", "", true)
	succeed(t, h, done, 1)
}

// mkdir makes a folder and returns its path.
func mkdir(t *testing.T, root, name string) string {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
