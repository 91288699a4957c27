package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// torchPorts are the inputs and outputs of the models in backends/pytorch/testdata that this test serves.
var torchPorts = map[string]string{
	"embed": `max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 3 } input { name: "index" data_type: TYPE_INT64 dims: 1 }
		output { name: "Y__0" data_type: TYPE_FP32 dims: 3 } output { name: "ROWS__1" data_type: TYPE_FP32 dims: [ 1, 2 ] }`,
	"dictionary": `input { name: "b" data_type: TYPE_FP32 dims: -1 } input { name: "a" data_type: TYPE_FP32 dims: -1 }
		output { name: "diff" data_type: TYPE_FP32 dims: -1 } output { name: "sum" data_type: TYPE_FP32 dims: -1 }`,
	"lists": `input { name: "X__1" data_type: TYPE_FP32 dims: -1 } input { name: "X__0" data_type: TYPE_FP32 dims: -1 }
		output { name: "Y__0" data_type: TYPE_FP32 dims: -1 } output { name: "Y__1" data_type: TYPE_FP32 dims: -1 }`,
	"arguments": `input { name: "X__0" data_type: TYPE_FP32 dims: -1 } input { name: "X__1" data_type: TYPE_FP32 dims: -1 }
		output { name: "y" data_type: TYPE_FP32 dims: -1 }`,
	"shapes": `input { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] } output { name: "T__0" data_type: TYPE_FP32 dims: [ 3, 2 ] }
		output { name: "N__1" data_type: TYPE_INT64 dims: [ -1, 2 ] } output { name: "S__2" data_type: TYPE_FP32 dims: 1 }`,
	"strings": `input { name: "text" data_type: TYPE_STRING dims: -1 }
		output { name: "UPPER__0" data_type: TYPE_STRING dims: -1 } output { name: "LENGTH__1" data_type: TYPE_INT64 dims: -1 }`,
}

// torchRequests are requests to them.
var torchRequests = map[string]string{
	"embed":      `{"inputs":[{"name":"x","datatype":"FP32","shape":[2,3],"data":[0,1,2,3,4,5]},{"name":"index","datatype":"INT64","shape":[2,1],"data":[9,0]}]}`,
	"dictionary": `{"inputs":[{"name":"b","datatype":"FP32","shape":[2],"data":[1,2]},{"name":"a","datatype":"FP32","shape":[2],"data":[5,7]}]}`,
	"lists":      `{"inputs":[{"name":"X__1","datatype":"FP32","shape":[1],"data":[1]},{"name":"X__0","datatype":"FP32","shape":[2],"data":[5,6]}]}`,
	"arguments":  `{"inputs":[{"name":"X__0","datatype":"FP32","shape":[2],"data":[5,1]},{"name":"X__1","datatype":"FP32","shape":[2],"data":[2,2]}]}`,
	"shapes":     `{"inputs":[{"name":"x","datatype":"FP32","shape":[2,3],"data":[1,0,0,0,0,2]}]}`,
	"strings":    `{"inputs":[{"name":"text","datatype":"BYTES","shape":[3],"data":["ab","","cd"]}]}`,
}

// torchModels writes every model twice, of KIND_CPU and at GPU 0, embed also at GPU 1, and ensembles of two steps of embed.
func torchModels(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, config, file string) {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if file == "" {
			return
		}
		data, err := os.ReadFile(filepath.Join("../../backends/pytorch/testdata", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name, "1", "model.pt"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	kinds := map[string]string{"cpu": "kind: KIND_CPU", "gpu": "kind: KIND_GPU gpus: 0"}
	for kind, group := range kinds {
		for name, ports := range torchPorts {
			write(name+"_"+kind, `platform: "pytorch_libtorch" `+ports+` instance_group { `+group+` }`, name+".pt")
		}
		step := func(x, y, more string) string {
			return fmt.Sprintf(`step { model_name: "embed_%s" model_version: -1 input_map { key: "x" value: "%s" } input_map { key: "index" value: "index" }
				output_map { key: "Y__0" value: "%s" } %s }`, kind, x, y, more)
		}
		write("chain_"+kind, `platform: "ensemble" `+torchPorts["embed"]+` ensemble_scheduling { `+
			step("x", "half", "")+step("half", "Y__0", `output_map { key: "ROWS__1" value: "ROWS__1" }`)+` }`, "")
	}
	write("embed_gpu1", `platform: "pytorch_libtorch" `+torchPorts["embed"]+` instance_group { kind: KIND_GPU gpus: 1 }`, "embed.pt")
	return root
}

// torchFlags are the flags of a server of torchModels on GPUs of the checking driver, with the stand-in for PyTorch's CUDA library.
// When the test ends, after the server, the driver must have found no fault.
func torchFlags(t *testing.T) []string {
	t.Helper()
	driver := cudatest.Library(t)
	cudatest.Require(t)
	torch := preparedtest.Script(t, "pytorch-cuda", "prepare-torch-cuda", preparedtest.Runtime(t, "pytorch"))
	t.Cleanup(func() { cudatest.Check(t) })
	return []string{
		"--model-repository=" + torchModels(t), "--cuda-driver=" + driver, "--backend-config=pytorch,library-path=" + torch,
		"--model-control-mode=explicit", "--load-model=*",
	}
}

// postTo sends a request and returns the status and the body.
func postTo(t *testing.T, a addresses, path, body string) (code int, text string) {
	t.Helper()
	resp, err := http.Post("http://"+a.http+path, "application/json", strings.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(all)
}

func inferTorch(t *testing.T, a addresses, model, body string) (code int, text string) {
	t.Helper()
	code, text = postTo(t, a, "/v2/models/"+model+"/infer", body)
	return code, strings.Replace(text, `"model_name":"`+model+`"`, "", 1)
}

// TestPyTorchAtGPU sends requests to TorchScript models at a GPU and on the CPU: the responses are the same, and between two steps at
// the GPU nothing is copied. Memory that runs out fails its request only, and a model may be unloaded while it executes.
func TestPyTorchAtGPU(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	a := serve(t, torchFlags(t)...)
	for name, body := range torchRequests {
		for range 3 { // PyTorch profiles the first runs and optimizes the next
			wantCode, want := inferTorch(t, a, name+"_cpu", body)
			code, got := inferTorch(t, a, name+"_gpu", body)
			if code != http.StatusOK || wantCode != http.StatusOK || got != want {
				t.Errorf("%s at the GPU: %d %s\non the CPU: %d %s", name, code, got, wantCode, want)
			}
		}
	}
	const requests = 5
	_, want := inferTorch(t, a, "chain_cpu", torchRequests["embed"])
	before := cudatest.Count(t)
	for range requests {
		if code, got := inferTorch(t, a, "chain_gpu", torchRequests["embed"]); code != http.StatusOK || got != want {
			t.Errorf("two steps at the GPU: %d %s\non the CPU: %s", code, got, want)
		}
	}
	after := cudatest.Count(t)
	if up, down := after.Up-before.Up, after.Down-before.Down; up != 2*requests || down != 2*requests {
		t.Errorf("%d copies to the GPU and %d from it in %d requests with two inputs and two outputs", up, down, requests)
	}
	if n := after.Within - before.Within + after.Peer - before.Peer; n != 0 {
		t.Errorf("%d copies between steps, want none", n)
	}
	_, one := inferTorch(t, a, "embed_cpu", torchRequests["embed"])
	if code, got := inferTorch(t, a, "embed_gpu1", torchRequests["embed"]); code != http.StatusOK || got != one {
		t.Errorf("at GPU 1: %d %s", code, got)
	}
	torchPressure(t, a, want)
	torchUnload(t, a)
}

// torchPressure checks that a request fails alone while the GPU has no memory.
func torchPressure(t *testing.T, a addresses, want string) {
	t.Helper()
	cudatest.Set(t, "oom", 1)
	code, got := inferTorch(t, a, "chain_gpu", torchRequests["embed"])
	cudatest.Set(t, "oom", 0)
	if code != http.StatusServiceUnavailable || !strings.Contains(got, "out of memory") {
		t.Errorf("without memory: %d %s", code, got)
	}
	if code, got := inferTorch(t, a, "chain_gpu", torchRequests["embed"]); code != http.StatusOK || got != want {
		t.Errorf("with memory again: %d %s", code, got)
	}
}

// torchUnload unloads a model while requests execute, and loads it again.
func torchUnload(t *testing.T, a addresses) {
	t.Helper()
	_, want := inferTorch(t, a, "embed_cpu", torchRequests["embed"])
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 20 {
				code, got := inferTorch(t, a, "embed_gpu", torchRequests["embed"])
				if code == http.StatusOK && got != want || code != http.StatusOK && !strings.Contains(got, "embed_gpu") {
					t.Errorf("while the model is unloaded: %d %s, want %s", code, got, want)
				}
			}
		})
	}
	for range 3 {
		for _, action := range []string{"unload", "load"} {
			if code, text := postTo(t, a, "/v2/repository/models/embed_gpu/"+action, "{}"); code != http.StatusOK {
				t.Errorf("%s: %d %s", action, code, text)
			}
		}
	}
	wait.Wait()
	if code, got := inferTorch(t, a, "embed_gpu", torchRequests["embed"]); code != http.StatusOK || got != want {
		t.Errorf("loaded again: %d %s", code, got)
	}
}

// TestPyTorchLost checks a server one of whose GPUs is lost: its models are not ready, those of the other GPU and of the CPU serve on.
func TestPyTorchLost(t *testing.T) {
	const key = "TUTTI_TEST_ALONE" // a lost device stays lost in its process
	if os.Getenv(key) != t.Name() {
		cudatest.Library(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test program
		cmd.Env = append(os.Environ(), key+"="+t.Name())
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: ") && !strings.Contains(string(out), "--- SKIP: ") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	s, err := tutti.Open(t.Context(), tutti.Settings{Args: append(torchFlags(t), freePorts...), Components: components()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // a server that stops waits for its clients to leave
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("the server's end = %v", err)
		}
	})
	a := addresses{http: s.HTTPAddress()}
	body := torchRequests["embed"]
	_, want := inferTorch(t, a, "embed_cpu", body)
	cudatest.Set(t, "lose", 0)
	if code, got := inferTorch(t, a, "embed_gpu", body); code != http.StatusServiceUnavailable || !strings.Contains(got, "device:0") {
		t.Errorf("at the lost GPU: %d %s", code, got)
	}
	for model, ready := range map[string]bool{"embed_gpu": false, "embed_gpu1": true, "embed_cpu": true} {
		resp, err := http.Get("http://" + a.http + "/v2/models/" + model + "/ready") //nolint:noctx // ends with the server
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if (resp.StatusCode == http.StatusOK) != ready {
			t.Errorf("%s is ready: %d, want %v", model, resp.StatusCode, ready)
		}
	}
	for _, model := range []string{"embed_gpu1", "embed_cpu"} {
		code, got := postTo(t, a, "/v2/models/"+model+"/infer", body)
		if code != http.StatusOK || strings.Replace(got, `"model_name":"`+model+`"`, "", 1) != want {
			t.Errorf("%s after the loss: %d %s", model, code, got)
		}
	}
}
