package main

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

// isolatedLoop writes an isolated model of ONNX Runtime that adds 1 to x, n times.
func isolatedLoop(t *testing.T, root, text string) {
	t.Helper()
	copyModel(t, root, "loop", "loop.onnx", text)
}

// copyModel writes a model with a file of the tests of ONNX Runtime.
func copyModel(t *testing.T, root, name, file, text string) {
	t.Helper()
	writeModel(t, root, name, `backend: "onnxruntime" parameters { key: "isolation" value { string_value: "process" } } `+text)
	model, err := os.ReadFile(filepath.Join("..", "..", "backends", "onnx", "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, name, "1", "model.onnx"), model)
}

// loops sends a request of n rounds from 5 on, and returns the result.
func loops(ctx context.Context, stub inference.GRPCInferenceServiceClient, n int64) (float32, error) {
	m, err := stub.ModelInfer(ctx, &inference.ModelInferRequest{ModelName: "loop", Inputs: []*inference.ModelInferRequest_InferInputTensor{
		{Name: "n", Datatype: "INT64", Shape: []int64{1}, Contents: &inference.InferTensorContents{Int64Contents: []int64{n}}},
		{Name: "x", Datatype: "FP32", Shape: []int64{1}, Contents: &inference.InferTensorContents{Fp32Contents: []float32{5}}},
	}})
	if err != nil {
		return 0, err
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(m.GetRawOutputContents()[0])), nil
}

// forever is a number of rounds that does not end.
const forever = 1 << 40

// TestWatchdogIsolated sends requests that hang in native code to an isolated model, one of them to a process that is killed before: they fail
// so that they may be sent again, and others are served meanwhile and afterwards.
func TestWatchdogIsolated(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	isolatedLoop(t, root, `instance_group { count: 2 kind: KIND_CPU } parameters { key: "watchdog_secs" value { string_value: "0.5" } }`)
	p := startServer(t, "--model-repository="+root, "--strict-parameters=true", "--memory-limit-bytes=0", "--backend-config=onnxruntime,library-path="+requireRuntime(t))
	stub := dialStub(t, p.grpc)
	const why = "an execution of model 'loop' takes longer than 500ms, its limit, which --watchdog-secs or the parameter watchdog_secs sets; it was ended; send the request again"
	served := func(when string) {
		t.Helper()
		for { // on a slow machine any request may be stuck, and any process may have been killed
			got, err := loops(t.Context(), stub, 3)
			if status.Code(err) == codes.Unavailable {
				continue
			}
			if got != 8 || err != nil {
				t.Errorf("%s: got %v, %v", when, got, err)
			}
			return
		}
	}
	for _, when := range []string{"at first", "after a kill"} {
		hung := make(chan error, 1)
		go func() {
			for {
				_, err := loops(t.Context(), stub, forever)
				if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "takes longer than") {
					hung <- err
					return
				}
			}
		}()
		served(when + ", beside the request that hangs")
		if err := <-hung; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why) {
			t.Errorf("%s, the request that hangs: %v", when, err)
		}
		served(when + ", afterwards")
		for _, pid := range children(t, p.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	p.await("an instance is recycled")
	_, text := fetch(t, "http://"+p.metrics+"/metrics", "")
	for _, name := range []string{"ensemble_stuck_executions_total", "ensemble_recycled_instances_total", "tutti_isolated_restarts_total"} {
		if !regexp.MustCompile(name + `\{model="loop",version="1"\} [1-9]`).MatchString(text) {
			t.Errorf("no metric %s", name)
		}
	}
}

// TestWatchdogIsolatedMemory has an isolated model allocate more than its limit: its process is recycled, and the next request is served.
func TestWatchdogIsolatedMemory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	copyModel(t, root, "fill", "fill.onnx", `parameters { key: "memory_limit_bytes" value { string_value: "400000000" } }`)
	p := startServer(t, "--model-repository="+root, "--strict-parameters=true", "--memory-limit-bytes=0", "--backend-config=onnxruntime,library-path="+requireRuntime(t))
	stub := dialStub(t, p.grpc)
	fill := func(n int64) (float32, error) {
		m, err := stub.ModelInfer(t.Context(), &inference.ModelInferRequest{ModelName: "fill", Inputs: []*inference.ModelInferRequest_InferInputTensor{
			{Name: "shape", Datatype: "INT64", Shape: []int64{1}, Contents: &inference.InferTensorContents{Int64Contents: []int64{n}}},
		}})
		if err != nil {
			return 0, err
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(m.GetRawOutputContents()[0])), nil
	}
	const why = "bytes of memory, more than its parameter memory_limit_bytes of 400000000"
	if _, err := fill(1 << 27); err != nil && (status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why)) {
		t.Errorf("the large request: %v", err)
	}
	p.await(why)
	for {
		got, err := fill(1000)
		if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), why) {
			continue // it was sent to the large process
		}
		if got != 1000 || err != nil {
			t.Errorf("afterwards: %v, %v", got, err)
		}
		return
	}
}

// TestDegradedIsolated takes the file of an isolated model away and kills one of its two processes: health lists the model, which is still
// ready and serves, until the file is back.
func TestDegradedIsolated(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	isolatedLoop(t, root, `instance_group { count: 2 kind: KIND_CPU }`)
	p := startServer(t, "--model-repository="+root, "--memory-limit-bytes=0", "--backend-config=onnxruntime,library-path="+requireRuntime(t))
	path := filepath.Join(root, "loop", "1", "model.onnx")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if code, d := detailOf(t, p.addresses); code != 200 || len(d.Degraded) != 0 {
		t.Errorf("of a sound model: %d %+v", code, d)
	}
	pids := children(t, p.cmd.Process.Pid)
	if len(pids) != 2 {
		t.Fatalf("processes %v, want two", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		code, d := detailOf(t, p.addresses)
		if code != 200 || !d.Ready {
			t.Fatalf("not ready: %d %+v", code, d)
		}
		if len(d.Degraded) == 0 {
			continue // not noticed yet
		}
		x := d.Degraded[0]
		if x.What != "model" || x.Name != "loop" || x.Since.IsZero() || !strings.HasPrefix(x.Reason, "1 of 2 instances cannot serve: ") {
			t.Fatalf("degraded: %+v", d.Degraded)
		}
		if strings.Contains(x.Reason, "model.onnx") {
			break // a start has failed
		}
	}
	for stub := dialStub(t, p.grpc); ; {
		got, err := loops(t.Context(), stub, 3)
		if status.Code(err) == codes.Unavailable {
			continue // it was sent to the instance without a process
		}
		if got != 8 || err != nil {
			t.Errorf("meanwhile: %v, %v", got, err)
		}
		break
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	for {
		if _, d := detailOf(t, p.addresses); len(d.Degraded) == 0 {
			return
		}
	}
}
