package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// acceleratorCase is a block of config.pbtxt and the error of a model with it, empty if the model is served.
type acceleratorCase struct{ block, refused, refusedOnCPU string }

const noGPU = "but no GPUs are available, start with --gpu-fallback=cpu"

// acceleratorCases are the blocks in Triton's documentation, and common variants of them.
var acceleratorCases = map[string]acceleratorCase{
	"tensorrt":   {`optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" } ] } }`, noGPU, ""},
	"precision":  {`optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" parameters { key: "precision_mode" value: "FP16" } parameters { key: "max_workspace_size_bytes" value: "1073741824" } } ] } }`, noGPU, ""},
	"cuda":       {`optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "cuda" parameters { key: "cudnn_conv_use_max_workspace" value: "0" } } ] } }`, noGPU, ""},
	"abacus":     {`optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "abacus" } ] } }`, noGPU, ""},
	"openvino":   {`optimization { execution_accelerators { cpu_execution_accelerator : [ { name : "openvino" } ] } }`, "execution accelerator 'openvino' needs OpenVINOExecutionProvider", "execution accelerator 'openvino' needs OpenVINOExecutionProvider"},
	"xnnpack":    {`optimization { execution_accelerators { cpu_execution_accelerator : [ { name : "xnnpack" parameters { key: "intra_op_num_threads" value: "2" } } ] } }`, "execution accelerator 'xnnpack' needs XnnpackExecutionProvider", "execution accelerator 'xnnpack' needs XnnpackExecutionProvider"},
	"counter":    {`optimization { execution_accelerators { cpu_execution_accelerator : [ { name : "counter" } ] } }`, "unknown Execution Accelerator 'counter' is requested", "unknown Execution Accelerator 'counter' is requested"},
	"nothing":    {`optimization { execution_accelerators { } }`, "", ""},
	"on_cpu":     {`instance_group { kind: KIND_CPU } optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" } ] } }`, "", ""},
	"kind_gpu":   {`instance_group { kind: KIND_GPU }`, "has kind KIND_GPU " + noGPU, ""},
	"gpus":       {`instance_group { kind: KIND_GPU gpus: [ 0, 1 ] count: 2 }`, "specifies invalid or unsupported gpu id 0. GPUs with at least", ""},
	"kind_model": {`instance_group { kind: KIND_MODEL }`, "", ""},
	"auto":       {`instance_group { kind: KIND_AUTO gpus: [ 0 ] }`, "", ""},
}

// acceleratedModels writes a model for each case.
func acceleratedModels(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(examplesDir, "digits", "digits_cnn", "1", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for name, tt := range acceleratorCases {
		dir := filepath.Join(root, name, "1")
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		text := "platform: \"onnxruntime_onnx\"\nmax_batch_size: 8\n" + tt.block + "\n"
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "model.onnx"), file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestAccelerators checks models with execution accelerators and GPU instance groups on a machine without a GPU:
// each is served or has its expected error. With --gpu-fallback=cpu, those for GPUs run on the CPU with one
// warning.
// shows: config.accelerators config.gpu_fallback
func TestAccelerators(t *testing.T) {
	cudatest.NotAtDevices(t, "it checks the errors of a server without GPUs")
	t.Parallel()
	requireRuntime(t)
	root := acceleratedModels(t)
	for _, fallback := range []string{"none", "cpu"} {
		t.Run(fallback, func(t *testing.T) {
			t.Parallel()
			a, log := serveLogged(t, components(), "--model-repository", root, "--exit-on-error=false", "--gpu-fallback="+fallback)
			var out, errs bytes.Buffer
			cli.Main(t.Context(), []string{"tutti", "validate", "--gpu-fallback=" + fallback, root}, &out, &errs, components())
			for name, tt := range acceleratorCases {
				want := tt.refused
				if fallback == "cpu" {
					want = tt.refusedOnCPU
				}
				if got := reason(t, a, name); (want == "") != (got == "") || !strings.Contains(got, want) {
					t.Errorf("model %s is refused because of %q, want %q", name, got, want)
				}
				if want != "" && !strings.Contains(out.String(), want) {
					t.Errorf("validate does not say %q of %s:\n%s%s", want, name, &out, &errs)
				}
				warned := 0
				if tt.refused != tt.refusedOnCPU && fallback == "cpu" {
					warned = 1
				}
				if n := strings.Count(log.String(), "model '"+name+"' runs on the CPU, because there are no such GPUs"); n != warned {
					t.Errorf("%d warnings about %s, want %d", n, name, warned)
				}
			}
		})
	}
}

// reason returns the reason in the index of a model that is not ready, and an empty string for a ready one.
func reason(t *testing.T, a addresses, model string) string {
	t.Helper()
	resp, err := http.Post("http://"+a.http+"/v2/repository/index", "application/json", nil) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list []struct{ Name, State, Reason string }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.Name == model && m.State == "READY" {
			return ""
		}
		if m.Name == model {
			return m.Reason
		}
	}
	return "it is not in the index"
}

// TestAcceleratorsByRequest checks that a load request with each block as an override, over HTTP and gRPC, succeeds
// or fails as expected.
// shows: config.accelerators
func TestAcceleratorsByRequest(t *testing.T) {
	cudatest.NotAtDevices(t, "it checks the errors of a server without GPUs")
	t.Parallel()
	requireRuntime(t)
	root := acceleratedModels(t)
	a := serve(t, "--model-repository", root, "--model-control-mode=explicit", "--load-model=nothing")
	client := dialStub(t, a.grpc)
	for name, tt := range acceleratorCases {
		cfg := &modelconfig.ModelConfig{}
		if err := prototext.Unmarshal([]byte(`backend: "onnxruntime" max_batch_size: 8 `+tt.block), cfg); err != nil {
			t.Fatal(err)
		}
		override, err := protojson.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.RepositoryModelLoad(t.Context(), &inference.RepositoryModelLoadRequest{ModelName: name, Parameters: map[string]*inference.ModelRepositoryParameter{
			"config": {ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: string(override)}},
		}})
		compareError(t, "gRPC "+name, tt.refused, fmt.Sprint(err))
		body, err := json.Marshal(map[string]any{"parameters": map[string]string{"config": string(override)}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post("http://"+a.http+"/v2/repository/models/"+name+"/load", "application/json", bytes.NewReader(body)) //nolint:noctx // ends with the server
		if err != nil {
			t.Fatal(err)
		}
		var said struct{ Error string }
		_ = json.NewDecoder(resp.Body).Decode(&said) // there is no body when it was loaded
		_ = resp.Body.Close()
		compareError(t, "HTTP "+name, tt.refused, said.Error)
	}
	if got := reason(t, a, "nothing"); got != "" {
		t.Errorf("the model that served is gone: %s", got)
	}
}

// compareError compares the error of a load request with the expected one.
func compareError(t *testing.T, what, want, got string) {
	t.Helper()
	if ok := got == "" || got == "<nil>"; ok != (want == "") || !ok && !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
