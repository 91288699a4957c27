//go:build cgo

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends/onnx/onnxtest"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// gpuOnnxModels are models of ONNX files by name, each on the GPU and, with the suffix _cpu, on the host.
var gpuOnnxModels = map[string]struct{ file, config string }{
	"mlp":     {"mlp.onnx", "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 2000 }"},
	"again":   {"mlp.onnx", "max_batch_size: 8"},
	"nonzero": {"nonzero.onnx", ""},
	"strings": {"strings.onnx", ""},
	"loop":    {"loop.onnx", ""},
}

// gpuOnnxRepository writes those models and ensembles over two of them: chain, and chain_cpu.
func gpuOnnxRepository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, config, file string) {
		t.Helper()
		writeOnnxModel(t, root, name, config, file)
	}
	for name, m := range gpuOnnxModels {
		gpu := "instance_group { kind: KIND_GPU gpus: 0 }"
		if name == "again" {
			gpu = "instance_group { gpus: 0 }" // KIND_AUTO
		}
		write(name, "backend: \"onnxruntime\" "+gpu+" "+m.config, m.file)
		write(name+"_cpu", "backend: \"onnxruntime\" instance_group { kind: KIND_CPU } "+m.config, m.file)
	}
	for _, suffix := range []string{"", "_cpu"} {
		write("chain"+suffix, fmt.Sprintf(`platform: "ensemble" max_batch_size: 8
			input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 16 }
			ensemble_scheduling { step [
				{ model_name: "mlp%s" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "h" } },
				{ model_name: "again%s" model_version: -1 input_map { key: "x" value: "h" } output_map { key: "y" value: "y" } } ] }`, suffix, suffix), "")
	}
	return root
}

// writeOnnxModel writes a model with a file of backends/onnx/testdata, or none.
func writeOnnxModel(t *testing.T, root, name, config, file string) {
	t.Helper()
	dir := filepath.Join(root, name, "1")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(config), 0o600)
	}
	if err == nil && file != "" {
		var content []byte
		if content, err = os.ReadFile(filepath.Join("../../backends/onnx/testdata", file)); err == nil {
			err = os.WriteFile(filepath.Join(dir, "model.onnx"), content, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serveOnnxGPU runs a server of gpuOnnxRepository as serveOnnxGPUFrom does.
func serveOnnxGPU(t *testing.T, args ...string) addresses {
	t.Helper()
	return serveOnnxGPUFrom(t, gpuOnnxRepository(t), args...)
}

// serveOnnxGPUFrom runs a server on the stand-in for ONNX Runtime with CUDA. After its end the stand-in and the checking driver must have
// found no fault, and nothing may be left.
func serveOnnxGPUFrom(t *testing.T, root string, args ...string) addresses {
	t.Helper()
	driver, runtime := cudatest.Library(t), onnxtest.Library(t)
	t.Cleanup(func() {
		cudatest.Check(t)
		onnxtest.Check(t)
		for _, name := range []string{"sessions", "values"} {
			if n := onnxtest.Count(t, name); n != 0 {
				t.Errorf("%d %s are left", n, name)
			}
		}
	})
	return serve(t, append([]string{"--model-repository=" + root, "--cuda-driver=" + driver, "--backend-config=onnxruntime,library-path=" + runtime}, args...)...)
}

// row is a request of one row with elements from a number on.
func rowOf(from int) string {
	var list []string
	for i := range 16 {
		list = append(list, strconv.Itoa((from+i*3)%11))
	}
	return `{"inputs":[{"name":"x","shape":[1,16],"datatype":"FP32","data":[` + strings.Join(list, ",") + `]}]}`
}

var modelName = regexp.MustCompile(`"model_name":"[a-z0-9_]*"`)

// same sends a body to a model on the GPU and to its twin on the host, and compares the responses. It reports the failure of either.
func same(t *testing.T, a addresses, model, body string) {
	t.Helper()
	code, got := post(t, "http://"+a.http+"/v2/models/"+model+"/infer", body)
	wantCode, want := post(t, "http://"+a.http+"/v2/models/"+model+"_cpu/infer", body)
	if code != http.StatusOK || wantCode != http.StatusOK || modelName.ReplaceAllString(got, "") != modelName.ReplaceAllString(want, "") {
		t.Errorf("%s: %d %s\non the CPU: %d %s", model, code, got, wantCode, want)
	}
}

// copiesLine is a sample of a ledger: the direction and the reason of copies.
var copiesLine = regexp.MustCompile(`^ensemble_copies_total\{direction="([^"]*)",.*reason="([^"]*)"`)

// TestOnnxGPU checks models at a GPU over HTTP: their results are those of the CPU, nothing is copied between the steps of an ensemble,
// and no run waits for the device.
func TestOnnxGPU(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	a := serveOnnxGPU(t)
	waited := onnxtest.Count(t, "synchronized")
	var all sync.WaitGroup
	for client := range 8 {
		all.Go(func() {
			for i := range 6 {
				same(t, a, "chain", rowOf(client+8*i))
			}
		})
	}
	all.Wait()
	for _, n := range []string{"3", "6", "1"} { // another shape each time, the last one's response has no elements
		data := map[string]string{"3": "1,0,2", "6": "0,0,5,6,7,0", "1": "0"}[n]
		same(t, a, "nonzero", `{"inputs":[{"name":"x","shape":[`+n+`],"datatype":"FP32","data":[`+data+`]}]}`)
	}
	same(t, a, "strings", `{"inputs":[{"name":"x","shape":[2,1],"datatype":"BYTES","data":["a","bc"]}]}`)
	if n := onnxtest.Count(t, "synchronized") - waited; n != 0 {
		t.Errorf("%d runs waited for the device", n)
	}
	moves := map[string][]string{}
	for line := range strings.Lines(metricsOf(t, a)) {
		if m := copiesLine.FindStringSubmatch(line); m != nil {
			moves[m[2]] = append(moves[m[2]], m[1])
		}
	}
	for reason, list := range moves {
		want := map[string]string{"device_step": "host_to_device", "response": "device_to_host", "rows": "within_device"}[reason]
		if slices.ContainsFunc(list, func(s string) bool { return s != want }) {
			t.Errorf("copies for %s: %v, want only %q", reason, list, want)
		}
	}
	for _, metric := range []string{`model="again"`, `tensor="h"`} {
		for line := range strings.Lines(metricsOf(t, a)) {
			if strings.HasPrefix(line, "ensemble_copies_total") && strings.Contains(line, metric) && strings.Contains(line, `reason="device_step"`) {
				t.Errorf("the second step was not on the GPU, or its input not: %s", line)
			}
		}
	}
}

// TestOnnxGPUTrouble checks that a request without memory, a client that leaves, and an unload while requests run end as they should,
// and that the server goes on.
func TestOnnxGPUTrouble(t *testing.T) { //nolint:paralleltest // takes the memory of the process's driver
	a := serveOnnxGPU(t, "--model-control-mode=explicit", "--load-model=*")
	url := "http://" + a.http + "/v2/models/"
	cudatest.Set(t, "oom", 1)
	code, text := post(t, url+"nonzero/infer", `{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,0,2]}]}`)
	cudatest.Set(t, "oom", 0)
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "cuMemAllocFromPoolAsync at device:0: out of memory") {
		t.Errorf("a request without memory: %d %s", code, text)
	}
	same(t, a, "nonzero", `{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,0,2]}]}`)

	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"loop/infer",
		strings.NewReader(`{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[1099511627776]},{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	runs := onnxtest.Count(t, "runs")
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		left <- err
	}()
	for onnxtest.Count(t, "runs") == runs { // until it runs
		same(t, a, "strings", `{"inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","data":["z"]}]}`)
		if onnxtest.Count(t, "runs") > runs+1 {
			break
		}
	}
	cancel()
	if err := <-left; err == nil {
		t.Error("an endless run has ended")
	}
	same(t, a, "loop", `{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[3]},{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`)

	var all sync.WaitGroup
	for client := range 4 {
		all.Go(func() {
			for i := range 20 {
				code, text := post(t, url+"mlp/infer", rowOf(client+i))
				if code != http.StatusOK && code != http.StatusNotFound && code != http.StatusServiceUnavailable && code != http.StatusBadRequest {
					t.Errorf("while the model is unloaded: %d %s", code, text)
				}
			}
		})
	}
	for range 3 {
		for _, what := range []string{"unload", "load"} {
			if code, text := post(t, "http://"+a.http+"/v2/repository/models/mlp/"+what, "{}"); code != http.StatusOK {
				t.Errorf("%s: %d %s", what, code, text)
			}
		}
	}
	all.Wait()
	same(t, a, "mlp", rowOf(1))
}

// TestOnnxGPULost checks that the requests of a lost device fail with its reason, that those of the host go on, and that the server ends
// without an error.
func TestOnnxGPULost(t *testing.T) { //nolint:paralleltest // loses the device of the process's driver
	driver := cudatest.Library(t)
	t.Cleanup(func() { cudatest.Set(t, "revive", 0) })
	s, err := tutti.Open(t.Context(), tutti.Settings{
		Args: append([]string{
			"--model-repository=" + gpuOnnxRepository(t), "--cuda-driver=" + driver, "--backend-config=onnxruntime,library-path=" + onnxtest.Library(t),
		}, freePorts...), Components: components(), Stderr: io.Discard,
	})
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + s.HTTPAddress() + "/v2/models/"
	same(t, addresses{http: s.HTTPAddress()}, "nonzero", `{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,0,2]}]}`)
	cudatest.Set(t, "lose", 0)
	for range 3 {
		code, text := post(t, url+"mlp/infer", rowOf(1))
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "CUDA_ERROR_LAUNCH_FAILED") {
			t.Errorf("a request to a lost device: %d %s", code, text)
		}
	}
	if code, text := post(t, url+"mlp_cpu/infer", rowOf(1)); code != http.StatusOK {
		t.Errorf("a request to the host: %d %s", code, text)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("the end of the server: %v", err)
	}
}
