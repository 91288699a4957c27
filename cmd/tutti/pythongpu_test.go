//go:build cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// pythonGPUModels are two identity steps at GPU 0 around a Python model that computes there, as an ensemble that must not copy between
// its steps.
func pythonGPUModels(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	code, err := os.ReadFile("../../backends/python/testdata/gpu/model/1/model.py")
	if err != nil {
		t.Fatal(err)
	}
	there := `backend: "sim" max_batch_size: 8 parameters { key: "sim.backend" value { string_value: "identity" } } instance_group { kind: KIND_GPU gpus: 0 }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }`
	link := `step { model_name: %q model_version: -1 input_map { key: %q value: %q } output_map { key: %q value: %q } }
`
	for name, text := range map[string]string{
		"first": there, "last": there,
		"work": `backend: "python" max_batch_size: 8 input { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
instance_group { kind: KIND_GPU gpus: 0 } dynamic_batching { } parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }
parameters { key: "CASE" value { string_value: "compute" } }`,
		"chain": `platform: "ensemble" max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
parameters { key: "require_resident" value { string_value: "true" } }
ensemble_scheduling {
` + fmt.Sprintf(link, "first", "INPUT0", "X", "OUTPUT0", "a") + fmt.Sprintf(link, "work", "IN", "a", "OUT", "b") + fmt.Sprintf(link, "last", "INPUT0", "b", "OUTPUT0", "Y") + "}",
	} {
		dir := filepath.Join(root, name, "1")
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600)
		}
		if err == nil && name == "work" {
			err = os.WriteFile(filepath.Join(dir, "model.py"), code, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestPythonGPU checks, over HTTP and gRPC, an ensemble whose Python step is between two steps of another backend on a GPU: no copy to the host but
// that of the response.
func TestPythonGPU(t *testing.T) { //nolint:paralleltest // it sets the environment
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	mini, err := filepath.Abs("../../backends/python/testdata/minigpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TUTTI_TEST_MINIGPU", mini)
	driver := cudatest.Library(t)
	t.Cleanup(func() { cudatest.Check(t) })
	a := serve(t, "--model-repository="+pythonGPUModels(t), "--cuda-driver="+driver)
	viaHTTP := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = viaHTTP.Close() }()
	viaGRPC, err := client.NewGRPC(a.grpc, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = viaGRPC.Close() }()
	for i := range 6 {
		c := client.Client(viaHTTP)
		if i%2 == 1 {
			c = viaGRPC
		}
		x := []float32{float32(i), -1, 0.5, 2}
		resp, err := c.Infer(t.Context(), &client.Request{Model: "chain", Inputs: []client.Tensor{client.Of("X", []int64{1, 4}, x...)}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Values[float32](resp.Output("Y"))
		if err != nil || !slices.Equal(got, x) {
			t.Errorf("%v, %v; want %v", got, err, x)
		}
	}
	for line := range strings.SplitSeq(metricsOf(t, a), "\n") {
		if strings.HasPrefix(line, "ensemble_copies_total{") && !strings.Contains(line, `reason="process"`) &&
			!strings.Contains(line, `model="first",reason="device_step"`) && !strings.Contains(line, `reason="response"`) {
			t.Errorf("an unexpected move: %s", line)
		}
	}
}
