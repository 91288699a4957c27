package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/steps"
)

const watchedPython = `import triton_python_backend_utils as pb_utils
import time

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            x = int(pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()[0])
            if x < 0:
                time.sleep(3600)
            if x > 1000:
                self.kept = bytearray(b"x" * x)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]) for r in requests]
`

func requestOf(x int32) *inference.ModelInferRequest {
	r := drainRequest("py")
	r.Inputs[0].Contents.IntContents[0] = x
	return r
}

// TestWatchdogRecycles sends a request that hangs to a Python model, and one that makes its process too large: the requests fail so
// that they may be sent again, and others are served meanwhile and afterwards.
func TestWatchdogRecycles(t *testing.T) {
	t.Parallel()
	requirePython(t)
	root := t.TempDir()
	writeModel(t, root, "py", `backend: "python" input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]
instance_group { count: 2 kind: KIND_CPU } parameters { key: "watchdog_secs" value { string_value: "1" } } parameters { key: "memory_limit_bytes" value { string_value: "200000000" } }`)
	writeFile(t, root+"/py/1/model.py", []byte(watchedPython))
	a, log := serveLogged(t, components(), "--model-repository="+root, "--strict-parameters=true", "--memory-limit-bytes=0")
	stub := dialStub(t, a.grpc)
	hung := make(chan error, 1)
	go func() {
		_, err := stub.ModelInfer(context.Background(), requestOf(-1))
		hung <- err
	}()
	others := 0
	for done := false; !done; others++ {
		select {
		case err := <-hung:
			const want = "an execution of model 'py' takes longer than 1s, its limit, which --watchdog-secs or the parameter watchdog_secs sets; it was ended, send the request again"
			if s := status.Convert(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), want) {
				t.Errorf("the request that hangs: %v", err)
			}
			done = true
		default:
		}
		if got := outcome(stub.ModelInfer(t.Context(), requestOf(7))); got != "7" {
			t.Fatalf("request %d beside it: got %s", others, got)
		}
	}
	if !log.await(func(text string) bool { return strings.Contains(text, "an instance is recycled") }) {
		t.Error("nothing is logged")
	}
	if text := metricsOf(t, a); !strings.Contains(text, `ensemble_stuck_executions_total{model="py",version="1"} 1`) || !strings.Contains(text, `ensemble_recycled_instances_total{model="py",version="1"} 1`) {
		t.Error("no metrics")
	}
	if got := outcome(stub.ModelInfer(t.Context(), requestOf(250_000_000))); got != "250000000" && !strings.Contains(got, "memory_limit_bytes") {
		t.Fatalf("the large request: got %s", got)
	}
	if !log.await(func(text string) bool {
		return strings.Contains(text, "more than its parameter memory_limit_bytes of 200000000")
	}) {
		t.Error("the large process is not reported")
	}
	for range 4 {
		if got := outcome(stub.ModelInfer(t.Context(), requestOf(7))); got != "7" && !strings.Contains(got, "memory_limit_bytes") {
			t.Errorf("afterwards: got %s", got)
		}
	}
}

// TestWatchdogReports holds an execution in the server's process: it is reported once, and listed as degraded until it ends.
func TestWatchdogReports(t *testing.T) {
	t.Parallel()
	h := &held{begun: make(chan struct{}), let: make(chan struct{})}
	c := components()
	plain := c.Backends
	c.Backends = func(known *steps.Registry) []backends.Factory { return append(slices.Clone(plain(known)), h.factory()) }
	a, log := serveLogged(t, c, "--model-repository="+drainRepo(t), "--watchdog-secs=1")
	stub, done := dialStub(t, a.grpc), make(chan string, 1)
	go func() { done <- outcome(stub.ModelInfer(context.Background(), drainRequest("held"))) }()
	<-h.begun
	if !log.await(func(text string) bool { return strings.Contains(text, "an instance is stuck") }) {
		t.Fatal("nothing is logged")
	}
	code, d := detailOf(t, a)
	if code != 200 || !d.Ready || len(d.Degraded) != 1 || d.Degraded[0].Name != "held" || !strings.HasPrefix(d.Degraded[0].Reason, "1 executions take longer than 1s") {
		t.Errorf("health: %d %+v", code, d)
	}
	close(h.let)
	if got := <-done; got != "7" {
		t.Errorf("the request: got %s", got)
	}
	if !log.await(func(text string) bool { return strings.Contains(text, "an execution that was stuck has ended") }) {
		t.Error("the end is not logged")
	}
	if _, d := detailOf(t, a); len(d.Degraded) != 0 {
		t.Errorf("health afterwards: %+v", d)
	}
	if n := strings.Count(log.String(), "an instance is stuck"); n != 1 {
		t.Errorf("it was reported %d times", n)
	}
}
