package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// edgeRepo writes models with extreme but valid configurations. For example, steps200 is an ensemble of 200 steps.
func edgeRepo(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ports = "input { name: \"INPUT0\" data_type: TYPE_FP32 dims: -1 }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: -1 }\n"
	write("rows", "backend: \"identity\" max_batch_size: 4 dynamic_batching {}\n"+ports)
	write("whole", "backend: \"identity\"\n"+ports)
	ensemble := func(name, of, more string, n int) {
		var b strings.Builder
		fmt.Fprintf(&b, "platform: \"ensemble\" %s\n%sensemble_scheduling {\n", more, ports)
		for i := range n {
			in, out := fmt.Sprint("t", i), fmt.Sprint("t", i+1)
			if i == 0 {
				in = "INPUT0"
			}
			if i == n-1 {
				out = "OUTPUT0"
			}
			fmt.Fprintf(&b, "step { model_name: %q model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }\n", of, in, out)
		}
		b.WriteString("}\n")
		write(name, b.String())
	}
	ensemble("both_rows", "rows", "max_batch_size: 4", 2)
	ensemble("both_whole", "whole", "", 2)
	ensemble("steps200", "rows", "max_batch_size: 4", 200)
	var wide strings.Builder
	wide.WriteString("backend: \"identity\" max_batch_size: 4 dynamic_batching {}\n")
	for i := range 200 {
		fmt.Fprintf(&wide, "input { name: \"INPUT%d\" data_type: TYPE_FP32 dims: -1 }\noutput { name: \"OUTPUT%d\" data_type: TYPE_FP32 dims: -1 }\n", i, i)
	}
	write("wide200", wide.String())
	return root
}

// TestEdges checks the smallest and the largest valid requests, and requests just beyond the limits.
func TestEdges(t *testing.T) {
	t.Parallel()
	a := serve(t, "--model-repository="+edgeRepo(t), "--http-max-input-size=134217728")
	h := client.NewHTTP("http://"+a.http, nil)
	t.Cleanup(func() { _ = h.Close() })
	g := dialGRPC(t, a.grpc)
	t.Cleanup(func() { _ = g.Close() })
	large := int64(1 << 20)
	if !testing.Short() {
		large = 25 << 20 // 100 MiB
	}
	tests := []struct {
		model  string
		shape  []int64
		inputs int
		want   string // the error
	}{
		{"rows", []int64{0, 3}, 1, ""},
		{"both_rows", []int64{0, 3}, 1, ""},
		{"rows", []int64{1, 0}, 1, ""},
		{"both_rows", []int64{4, 0}, 1, ""},
		{"whole", []int64{0}, 1, ""},
		{"both_whole", []int64{0}, 1, ""},
		{"rows", []int64{}, 1, "input 'INPUT0' has no shape but model requires batch dimension for 'rows'"},
		{"both_rows", []int64{}, 1, "input 'INPUT0' has no shape but model requires batch dimension for 'both_rows'"},
		{"whole", []int64{}, 1, "unexpected shape"},
		{"both_whole", []int64{}, 1, "unexpected shape"},
		{"rows", []int64{5, 1}, 1, "batch-size must be <= 4"},
		{"both_rows", []int64{5, 1}, 1, "batch-size must be <= 4"},
		{"steps200", []int64{3, 2}, 1, ""},
		{"wide200", []int64{2, 3}, 200, ""},
		{"wide200", []int64{2, 3}, 199, "expected 200 inputs but got 199"},
		{"wide200", []int64{2, 3}, 201, "unexpected inference input 'INPUT200' for model 'wide200'"},
		{"whole", []int64{large}, 1, ""},
		{"both_whole", []int64{large}, 1, ""},
		{"rows", []int64{1, large}, 1, ""},
	}
	for _, tt := range tests {
		for _, c := range []client.Client{h, g} {
			if err := sendEdge(t.Context(), c, tt.model, tt.shape, tt.inputs); tt.want == "" && err != nil ||
				tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%T, model %s, %d inputs of %v: %v, want %q", c, tt.model, tt.inputs, tt.shape, err, tt.want)
			}
		}
	}
}

// sendEdge sends inputs of the given shape to an identity model and compares the outputs with them.
func sendEdge(ctx context.Context, c client.Client, model string, shape []int64, inputs int) error {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for k := range data {
		data[k] = float32(k)
	}
	req := &client.Request{Model: model}
	for k := range inputs {
		req.Inputs = append(req.Inputs, client.Of(fmt.Sprint("INPUT", k), shape, data...))
	}
	resp, err := c.Infer(ctx, req)
	if err != nil {
		return err
	}
	if len(resp.Outputs) != inputs {
		return fmt.Errorf("%d outputs", len(resp.Outputs))
	}
	for k := range resp.Outputs {
		out := &resp.Outputs[k]
		got, err := client.Values[float32](out)
		if err != nil || !slices.Equal(out.Shape, shape) || !slices.Equal(got, data) {
			return fmt.Errorf("%s has the shape %v: %w", out.Name, out.Shape, err)
		}
	}
	return nil
}
