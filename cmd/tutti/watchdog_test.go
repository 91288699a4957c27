package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"syscall"
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

const watchedConfig = `backend: "python" input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]
instance_group { count: 2 kind: KIND_CPU } `

// ended is the start of the errors of requests that the watchdog has ended.
const ended = "an execution of model 'py' takes longer than 500ms, its limit, which --watchdog-secs or the parameter watchdog_secs sets; it was ended; send the request again"

// again reports whether an error says that a worker has ended or is started, and not that the watchdog has ended the request.
func again(text string) bool {
	return strings.Contains(text, "is not healthy") || strings.Contains(text, "is started again in")
}

// servedBy sends a request until neither the watchdog nor the end of a worker ends it: on a slow machine any request may be stuck.
func servedBy(t *testing.T, stub inference.GRPCInferenceServiceClient, x int32) string {
	t.Helper()
	for {
		got := outcome(stub.ModelInfer(t.Context(), requestOf(x)))
		if !strings.Contains(got, "send the request again") && !again(got) {
			return got
		}
	}
}

// hang sends a request that hangs until it does not end because a worker was killed before.
func hang(ctx context.Context, stub inference.GRPCInferenceServiceClient) error {
	for {
		_, err := stub.ModelInfer(ctx, requestOf(-1))
		if err == nil || !again(err.Error()) {
			return err
		}
	}
}

// TestWatchdogRecycles sends requests that hang to a Python model, the second one when its workers must be started first: they fail so
// that they may be sent again, and others are served meanwhile and afterwards.
func TestWatchdogRecycles(t *testing.T) {
	t.Parallel()
	requirePython(t)
	root := t.TempDir()
	writeModel(t, root, "py", watchedConfig+`parameters { key: "watchdog_secs" value { string_value: "0.5" } }`)
	writeFile(t, root+"/py/1/model.py", []byte(watchedPython))
	p := startServer(t, "--model-repository="+root, "--strict-parameters=true", "--memory-limit-bytes=0")
	stub := dialStub(t, p.grpc)
	for _, what := range []string{"at a live worker", "at a worker that is started"} {
		hung := make(chan error, 1)
		go func() { hung <- hang(t.Context(), stub) }()
		if got := servedBy(t, stub, 7); got != "7" {
			t.Errorf("%s, beside the request that hangs: got %s", what, got)
		}
		if err := <-hung; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), ended) {
			t.Errorf("%s, the request that hangs: %v", what, err)
		}
		if got := servedBy(t, stub, 7); got != "7" {
			t.Errorf("%s, afterwards: got %s", what, got)
		}
		for _, pid := range children(t, p.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	p.await("an instance is recycled")
	_, text := fetch(t, "http://"+p.metrics+"/metrics", "")
	for _, name := range []string{"ensemble_stuck_executions_total", "ensemble_recycled_instances_total"} {
		if !regexp.MustCompile(name + `\{model="py",version="1"\} [1-9]`).MatchString(text) {
			t.Errorf("no metric %s", name)
		}
	}
}

// TestWatchdogMemory makes the process of a Python model too large: it is recycled, and the next request is served.
func TestWatchdogMemory(t *testing.T) {
	t.Parallel()
	requirePython(t)
	root := t.TempDir()
	writeModel(t, root, "py", watchedConfig+`parameters { key: "memory_limit_bytes" value { string_value: "200000000" } }`)
	writeFile(t, root+"/py/1/model.py", []byte(watchedPython))
	a, log := serveLogged(t, components(), "--model-repository="+root, "--strict-parameters=true", "--memory-limit-bytes=0")
	stub := dialStub(t, a.grpc)
	if got := outcome(stub.ModelInfer(t.Context(), requestOf(250_000_000))); got != "250000000" && !strings.Contains(got, "more than its parameter memory_limit_bytes of 200000000") {
		t.Fatalf("the large request: got %s", got)
	}
	if !log.await(func(text string) bool {
		return strings.Contains(text, "more than its parameter memory_limit_bytes of 200000000")
	}) {
		t.Error("the large process is not reported")
	}
	for range 4 {
		if got := servedBy(t, stub, 7); got != "7" {
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
	if code != 200 || !d.Ready || len(d.Degraded) != 1 || d.Degraded[0].Name != "held" || !strings.HasPrefix(d.Degraded[0].Reason, "an execution of model 'held' takes longer than 1s") {
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
