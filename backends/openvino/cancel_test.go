//go:build cgo

package openvino

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// newTest returns an instance of a model in a version folder.
func newTest(tb testing.TB, dir, pbtxt string) *instance {
	tb.Helper()
	b, err := NewFactory().New(backends.Options{Config: map[string]string{"library-path": LibraryPath(tb)}})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), backends.Settings{
		Model: "m", Dir: dir, ModelDir: tb.TempDir(), Config: cfg, Instances: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = x.Close()
		_ = m.Close()
		_ = b.Close()
	})
	return x.(*instance)
}

func newBatch(tb testing.TB, outs int, in ...tensor.Tensor) *backends.Batch {
	tb.Helper()
	tb.Cleanup(func() { tensor.ReleaseAll(in) })
	return &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, In: in, Out: make([]tensor.Tensor, outs), Allocator: tensor.NewPool()}
}

func zeros(tb testing.TB, d tensor.DType, dims ...int64) tensor.Tensor {
	tb.Helper()
	t, err := tensor.New(tensor.NewPool(), d, tensor.Of(dims...))
	if err != nil {
		tb.Fatal(err)
	}
	clear(t.Bytes())
	return t
}

// TestCancel checks that a long execution is stopped: the model multiplies matrices of a million elements forty
// times.
func TestCancel(t *testing.T) {
	t.Parallel()
	x := newTest(t, "testdata", `default_model_filename: "chain.xml"
		input { name: "x" data_type: TYPE_FP32 dims: [-1, -1] } output { name: "y" data_type: TYPE_FP32 dims: [-1, -1] }`)
	b := newBatch(t, 1, zeros(t, tensor.FP32, 1024, 1024))
	if err := x.input(0, &b.In[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := x.outputs(b, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.run(ctx, b); status.CodeOf(err) != status.Cancelled {
		t.Errorf("run with a context that is over = %v", err)
	}
	small := newBatch(t, 1, zeros(t, tensor.FP32, 2, 2))
	if err := x.Execute(t.Context(), small); err != nil {
		t.Errorf("Execute after a cancelled one: %v", err)
	}
	tensor.ReleaseAll(small.Out)
}
