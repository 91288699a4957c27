package main

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tutti"
	"tutti/client"
)

// pythonExample holds the two-input model as model.py, with the answers of numpy alone.
const pythonExample = "../../examples/backends/python"

// TestPythonStarter serves what "init python" writes, from the folder it was written in.
func TestPythonStarter(t *testing.T) { //nolint:paralleltest // it changes the folder
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	if code := tutti.Main(context.Background(), []string{"tutti", "init", "new", "python"}, &out, &out, components()); code != 0 {
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

// TestPythonExample asks the two-input model over each protocol and encoding, several at a time.
func TestPythonExample(t *testing.T) { //nolint:paralleltest // as the above
	if err := pythonCheck(); err != nil {
		t.Skip(err)
	}
	root, err := filepath.Abs(pythonExample)
	if err != nil {
		t.Fatal(err)
	}
	examples, err := tutti.ReadExamples(root)
	if err != nil {
		t.Fatal(err)
	}
	a := serve(t, "--model-repository="+root)
	for _, c := range []client.Client{
		client.NewHTTP("http://"+a.http, &client.HTTPOptions{JSON: true}), client.NewHTTP("http://"+a.http, nil), dialGRPC(t, a.grpc),
	} {
		askAll(t, c, false, examples)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
