package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/cli"
)

// pythonExample holds the two-input model as model.py. Its expected responses were computed with numpy.
const pythonExample = "../../examples/backends/python"

// TestPythonStarter checks that the files that "init python" writes can be served from their folder.
func TestPythonStarter(t *testing.T) { //nolint:paralleltest // it changes the folder
	requirePython(t)
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	if code := cli.Main(context.Background(), []string{"tutti", "init", "new", "python"}, &out, &out, components()); code != 0 {
		t.Fatalf("init ended with %d: %s", code, &out)
	}
	a := serve(t, "--model-repository=new")
	c := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = c.Close() }()
	resp, err := c.Infer(t.Context(), &client.Request{Model: "python", Inputs: []client.Tensor{client.Text("TEXT", []int64{2, 1}, "two words", "")}})
	if err != nil {
		t.Fatal(err)
	}
	want := []client.Tensor{
		client.Of("count", []int64{2, 1}, int64(2), 0),
		client.Of("lengths", []int64{2, 8}, append([]float32{3, 5}, make([]float32, 14)...)...),
	}
	if d := cmp.Diff(want, resp.Outputs); d != "" {
		t.Errorf("outputs (-want +got):\n%s", d)
	}
}

// TestPythonExample checks the two-input model over each protocol and encoding, several requests at a time.
func TestPythonExample(t *testing.T) { //nolint:paralleltest // as the above
	requirePython(t)
	root, err := filepath.Abs(pythonExample)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := cli.ReadExamples(root)
	if err != nil {
		t.Fatal(err)
	}
	a := serve(t, "--model-repository="+root)
	for _, c := range []client.Client{
		client.NewHTTP("http://"+a.http, &client.HTTPOptions{JSON: true}), client.NewHTTP("http://"+a.http, nil), dialGRPC(t, a.grpc),
	} {
		sendAll(t, c, false, examples)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

const (
	pythonRagged = `backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
output { name: "sum" data_type: TYPE_FP32 dims: 1 }
output { name: "together" data_type: TYPE_INT64 dims: 1 }
` + three
	pythonSums = `import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(pb.get_input_tensor_by_name(r, "x").as_numpy(), len(requests)) for r in requests]

    def one(self, x, n):
        return pb.InferenceResponse([pb.Tensor("sum", x.sum(axis=1, keepdims=True)), pb.Tensor("together", np.full((len(x), 1), n))])
`
)

// TestPythonRagged checks that a Python model gets requests of different shapes in one execution, each with its own
// shape.
func TestPythonRagged(t *testing.T) {
	t.Parallel()
	requirePython(t)
	root := t.TempDir()
	for path, text := range map[string]string{"sums/config.pbtxt": pythonRagged, "sums/1/model.py": pythonSums} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	a := serve(t, "--model-repository="+root)
	c := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = c.Close() }()
	resp := batchForms{c}.together(t, "sums",
		client.Of("x", []int64{1, 3}, float32(1), 2, 3), client.Of("x", []int64{1, 1}, float32(4)), client.Of("x", []int64{1, 2}, float32(5), 6))
	for i, sum := range []float32{6, 4, 11} {
		expectOutput(t, resp[i], "sum", []int64{1, 1}, sum)
		expectOutput(t, resp[i], "together", []int64{1, 1}, int64(3))
	}
}
