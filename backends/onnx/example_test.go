//go:build cgo

package onnx

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// example is the repository of the two-input model, with the responses of ONNX Runtime's Python interface.
const example = "../../examples/backends/onnx"

type exampleTensor struct {
	Name, Datatype string
	Shape          []int64
	Data           []float64
}

// tensor returns the tensor in the backend's form.
func (e *exampleTensor) tensor(tb testing.TB) tensor.Tensor {
	tb.Helper()
	t, err := tensor.New(tensor.NewPool(), tensor.ParseDType(e.Datatype), tensor.Of(e.Shape...))
	if err != nil {
		tb.Fatal(err)
	}
	for i, v := range e.Data {
		switch t.DType {
		case tensor.Int64:
			elements[int64](&t)[i] = int64(v)
		default:
			elements[float32](&t)[i] = float32(v)
		}
	}
	return t
}

// elements returns the elements of a tensor.
func elements[T int64 | float32](t *tensor.Tensor) []T {
	return unsafe.Slice((*T)(t.Pointer()), int(t.Shape.Elements()))
}

type exampleRequest struct {
	Name            string
	Inputs, Outputs []exampleTensor
}

func readExample(tb testing.TB) []exampleRequest {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(example, "expected.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var file struct{ Requests []exampleRequest }
	if err := json.Unmarshal(data, &file); err != nil {
		tb.Fatal(err)
	}
	return file.Requests
}

// loadExample returns an instance of the example's model.
func loadExample(tb testing.TB) backends.Instance {
	tb.Helper()
	dir := filepath.Join(example, "simple_onnx")
	text, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		tb.Fatal(err)
	}
	cfg := parseConfig(tb, string(text))
	m, err := openBackend(tb, map[string]string{"intra_op_thread_count": "1"}).
		Load(tb.Context(), backends.Settings{Model: cfg.GetName(), Version: 1, ModelDir: dir, Dir: filepath.Join(dir, "1"), Config: cfg, Instances: 1})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Close() })
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = x.Close() })
	return x
}

func (r *exampleRequest) batch(tb testing.TB) *backends.Batch {
	tb.Helper()
	b := &backends.Batch{Rows: int(r.Inputs[0].Shape[0]), Out: make([]tensor.Tensor, len(r.Outputs)), Allocator: tensor.NewPool()}
	b.Requests = []backends.Request{{Ctx: tb.Context(), Rows: b.Rows}}
	for i := range r.Inputs {
		b.In = append(b.In, r.Inputs[i].tensor(tb))
	}
	tb.Cleanup(func() { tensor.ReleaseAll(b.In) })
	return b
}

func TestExample(t *testing.T) {
	t.Parallel()
	x := loadExample(t)
	for _, r := range readExample(t) {
		b := r.batch(t)
		if err := x.Execute(t.Context(), b); err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		for i := range b.Out {
			want := r.Outputs[i].tensor(t)
			if diff := cmp.Diff(elements[float32](&want), elements[float32](&b.Out[i]), cmpopts.EquateApprox(0, 1e-6)); diff != "" || !want.Shape.Equal(b.Out[i].Shape) {
				t.Errorf("%s, %s, shape %s (-want +got):\n%s", r.Name, r.Outputs[i].Name, b.Out[i].Shape, diff)
			}
			want.Release()
			b.Out[i].Release()
		}
	}
}

// BenchmarkOverhead measures a call of the two-input model with one row, which hardly computes.
// bench/peers/backends/onnx.py measures the same call in ONNX Runtime's Python interface.
func BenchmarkOverhead(b *testing.B) {
	x, batch := loadExample(b), readExample(b)[0].batch(b)
	ctx := b.Context()
	b.Run("simple_onnx", func(b *testing.B) {
		backendtest.Overhead(b, func() {
			if err := x.Execute(ctx, batch); err != nil {
				b.Fatal(err)
			}
			for i := range batch.Out {
				batch.Out[i].Release()
			}
		})
	})
}
