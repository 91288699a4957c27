//go:build cgo

package pytorch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// simple returns the settings of the example.
func simple(tb testing.TB) backends.Settings {
	tb.Helper()
	dir := filepath.Join("..", "..", "examples", "backends", "pytorch", "simple_pytorch")
	text, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		tb.Fatal(err)
	}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal(text, cfg); err != nil {
		tb.Fatal(err)
	}
	return backends.Settings{
		Model: cfg.GetName(), Version: 1, ModelDir: dir, Dir: filepath.Join(dir, "1"), Config: cfg, Instances: 1, Alloc: tensor.NewPool(),
	}
}

// TestExample compares the responses of the example with those of PyTorch's Python interface.
func TestExample(t *testing.T) {
	t.Parallel()
	m, err := load(t, simple(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "backends", "pytorch", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	type values struct {
		Shape []int64
		Data  []float32
	}
	var expected struct {
		Requests []struct{ Inputs, Outputs [2]values }
	}
	if err := json.Unmarshal(data, &expected); err != nil || len(expected.Requests) == 0 {
		t.Fatal(err)
	}
	for _, r := range expected.Requests {
		var index []int64
		for _, v := range r.Inputs[1].Data {
			index = append(index, int64(v))
		}
		got, err := run(t, m, fp32(r.Inputs[0].Shape, r.Inputs[0].Data...), backendtest.Of(tensor.Int64, r.Inputs[1].Shape, index...))
		if err != nil {
			t.Fatal(err)
		}
		want := []backendtest.Value{fp32(r.Outputs[0].Shape, r.Outputs[0].Data...), fp32(r.Outputs[1].Shape, r.Outputs[1].Data...)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows of %v (-want +got):\n%s", r.Inputs[0].Shape, diff)
		}
	}
}

// oneRow returns an instance of the example and a batch of one row.
func oneRow(tb testing.TB) (backends.Instance, *backends.Batch) {
	tb.Helper()
	m, err := load(tb, simple(tb))
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, 2), Allocator: pool}
	for _, v := range []backendtest.Value{fp32([]int64{1, 3}, 0, 0, 0), backendtest.Of[int64](tensor.Int64, []int64{1, 2}, 0, 0)} {
		b.In = append(b.In, v.Tensor(tb, pool))
	}
	tb.Cleanup(func() {
		tensor.ReleaseAll(b.In)
		_ = x.Close()
	})
	return x, b
}

// TestExecuteAllocBudget checks that executions make no Go allocation in the steady state.
func TestExecuteAllocBudget(t *testing.T) {
	x, b := oneRow(t)
	if n := testing.AllocsPerRun(200, func() {
		if err := x.Execute(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		tensor.ReleaseAll(b.Out)
	}); n != 0 {
		t.Errorf("%v allocations per batch, want none", n)
	}
}

// BenchmarkOverhead measures an execution of the two-input model and the release of its outputs.
// bench/peers/backends/pytorch.py measures PyTorch's own call.
func BenchmarkOverhead(b *testing.B) {
	x, batch := oneRow(b)
	ctx := b.Context()
	b.Run("simple_pytorch", func(b *testing.B) {
		backendtest.Overhead(b, func() {
			if err := x.Execute(ctx, batch); err != nil {
				b.Fatal(err)
			}
			tensor.ReleaseAll(batch.Out)
		})
	})
}
