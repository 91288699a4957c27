package main

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/proto/inference"
)

// detail is the body of /v2/health/ready?verbose.
type detail struct {
	Ready    bool
	Degraded []infer.Degradation
}

func detailOf(t *testing.T, a addresses) (code int, d detail) {
	t.Helper()
	code, text := fetch(t, "http://"+a.http+"/v2/health/ready?verbose", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return code, d
}

// TestDegraded checks the list of what is degraded, and that readiness has no body without the parameter.
func TestDegraded(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+copyRepo(t))
	if code, d := detailOf(t, a); code != http.StatusOK || !d.Ready || d.Degraded == nil || len(d.Degraded) != 0 {
		t.Errorf("of a sound server: %d %+v", code, d)
	}
	broken := copyRepo(t)
	writeModel(t, broken, "broken", `backend: "nonsense"`)
	a = serve(t, "--model-repository="+broken, "--exit-on-error=false")
	code, d := detailOf(t, a)
	if code != http.StatusBadRequest || d.Ready || len(d.Degraded) != 1 || d.Degraded[0].What != "model" || d.Degraded[0].Name != "broken" || d.Degraded[0].Reason == "" {
		t.Fatalf("of a broken model: %d %+v", code, d)
	}
	first := d.Degraded[0].Since
	if first.IsZero() || first.After(time.Now()) {
		t.Errorf("of a broken model: since %v", first)
	}
	if _, d = detailOf(t, a); len(d.Degraded) != 1 || !d.Degraded[0].Since.Equal(first) {
		t.Errorf("of a broken model, once more: %+v, want since %v", d, first)
	}
	if code, text := fetch(t, "http://"+a.http+"/v2/health/ready", ""); code != http.StatusBadRequest || text != "" {
		t.Errorf("without the parameter: %d %q", code, text)
	}
}

// TestMemoryLimit starts a server that has more memory than its limit: requests are refused, with a time after which to send them
// again, and health says why.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--model-repository="+copyRepo(t), "--memory-limit-bytes=1000000")
	p.await("requests are refused, the memory is full")
	const reason = "of the 1000000 bytes of --memory-limit-bytes are in use"
	resp, err := http.Post("http://"+p.http+"/v2/models/copy/infer", "application/json", strings.NewReader(drainInput)) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("over HTTP: %s, %v", resp.Status, resp.Header)
	}
	_, err = dialStub(t, p.grpc).ModelInfer(t.Context(), drainRequest("copy"))
	if s := status.Convert(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), reason) {
		t.Errorf("over gRPC: %v", err)
	}
	if code, d := detailOf(t, p.addresses); code != http.StatusBadRequest || len(d.Degraded) != 1 || d.Degraded[0].What != "memory" || !strings.Contains(d.Degraded[0].Reason, reason) {
		t.Errorf("health: %d %+v", code, d)
	}
}

// TestLargeTensor requests the sums of all pairs of two lists, which need more memory than the server may have. They are refused before any
// of it is in use: requests of 128 kB would end a server otherwise.
func TestLargeTensor(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeModel(t, root, "pairs", `backend: "native" parameters { key: "step" value { string_value: "tensor" } } parameters { key: "op" value { string_value: "add" } }
		input [ { name: "A" data_type: TYPE_FP32 dims: [ -1, 1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 1, -1 ] } ] output [ { name: "C" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]`)
	p := startServer(t, "--model-repository="+root, "--memory-limit-bytes=1000000000")
	for _, tt := range []struct {
		n     int64
		code  codes.Code
		want  string
		retry bool
	}{
		{3_000, codes.OK, "", false},
		{15_000, codes.Unavailable, "bytes that are left of the 1000000000 bytes of --memory-limit-bytes", true},
		{16_000, codes.ResourceExhausted, "a tensor of 1024000000 bytes is too large", false},
	} {
		list, trailer := make([]byte, 4*tt.n), metadata.MD{}
		resp, err := dialStub(t, p.grpc).ModelInfer(t.Context(), &inference.ModelInferRequest{
			ModelName: "pairs", RawInputContents: [][]byte{list, list},
			Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "A", Datatype: "FP32", Shape: []int64{tt.n, 1}}, {Name: "B", Datatype: "FP32", Shape: []int64{1, tt.n}}},
		}, grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.Trailer(&trailer))
		if s := status.Convert(err); s.Code() != tt.code || !strings.Contains(s.Message(), tt.want) || tt.retry != (trailer.Get("retry-after") != nil) {
			t.Errorf("%d pairs: %v, %v, want %s with %q", tt.n, err, trailer, tt.code, tt.want)
		}
		if err == nil && int64(len(resp.GetRawOutputContents()[0])) != 4*tt.n*tt.n {
			t.Errorf("%d pairs: a response of %d bytes", tt.n, len(resp.GetRawOutputContents()[0]))
		}
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatalf("no peak of the memory: %v", err)
	}
	if peak, err := strconv.Atoi(string(m[1])); err != nil || peak > 850_000 {
		t.Errorf("the server had %s kB at once, expected at most 850000", m[1])
	}
}

var workerPID = regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`)

// children returns the processes that a process has started.
func children(t *testing.T, parent int) (list []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if m := workerPID.FindSubmatch(text); err == nil && m != nil && string(m[1]) == strconv.Itoa(parent) {
			list = append(list, pid)
			list = append(list, children(t, pid)...)
		}
	}
	return list
}

// TestDeadWorker kills the process of a Python model: within a second the model and the server are not ready and health says why,
// and then another process serves.
func TestDeadWorker(t *testing.T) {
	t.Parallel()
	requirePython(t)
	root := t.TempDir()
	writeModel(t, root, "py", `backend: "python" input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [1] }] output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [1] }]`)
	writeFile(t, root+"/py/1/model.py", []byte(`import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]) for r in requests]
`))
	p := startServer(t, "--model-repository="+root)
	ask := func() error {
		_, err := dialStub(t, p.grpc).ModelInfer(context.Background(), drainRequest("py"))
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for _, pid := range children(t, p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	code, d := http.StatusOK, detail{}
	for code == http.StatusOK {
		code, d = detailOf(t, p.addresses)
	}
	t.Logf("not ready %v after the kill", time.Since(killed))
	if len(d.Degraded) != 1 || d.Degraded[0].Name != "py" || !strings.Contains(d.Degraded[0].Reason, "is not healthy") {
		t.Errorf("health: %d %+v", code, d)
	}
	if code, _ := fetch(t, "http://"+p.http+"/v2/models/py/ready", ""); code == http.StatusOK {
		t.Error("the model is ready")
	}
	if err := ask(); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	if code, d := detailOf(t, p.addresses); code != http.StatusOK || len(d.Degraded) != 0 {
		t.Errorf("health of the new process: %d %+v", code, d)
	}
}
