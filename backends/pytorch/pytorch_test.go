//go:build cgo

package pytorch_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// options returns the options of a backend with PyTorch.
func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{Log: slog.New(slog.DiscardHandler), Config: map[string]string{"library-path": pytorch.LibraryPath(tb)}}
}

// settings creates a version folder with one of the models in testdata.
func settings(tb testing.TB, file, pbtxt string) backends.Settings {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		tb.Fatal(err)
	}
	return settingsOf(tb, "model"+filepath.Ext(file), data, pbtxt)
}

func settingsOf(tb testing.TB, name string, data []byte, pbtxt string) backends.Settings {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		tb.Fatal(err)
	}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.Name = "m"
	return backends.Settings{
		Model: "m", Version: 3, Dir: dir, ModelDir: filepath.Dir(dir), Config: cfg, Instances: 1,
		Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// load loads a model, which the test closes.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	factory := pytorch.NewFactory()
	if _, err := os.Stat(filepath.Join(s.Dir, "model.pt2")); err == nil {
		factory = pytorch.NewPackageFactory()
	}
	b, err := factory.New(options(tb))
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), s)
	tb.Cleanup(func() {
		if m != nil {
			_ = m.Close()
		}
		_ = b.Close()
	})
	return m, err
}

// run executes one batch on a new instance.
func run(tb testing.TB, m backends.Model, in ...backendtest.Value) ([]backendtest.Value, error) {
	tb.Helper()
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	defer x.Close()
	return execute(tb.Context(), tb, x, m, in...)
}

func execute(ctx context.Context, tb testing.TB, x backends.Instance, m backends.Model, in ...backendtest.Value) ([]backendtest.Value, error) {
	tb.Helper()
	pool := tensortest.NewChecked(tb, nil)
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: pool}
	for _, v := range in {
		if v.DType == tensor.Invalid {
			b.In = append(b.In, tensor.Tensor{})
			continue
		}
		b.In = append(b.In, v.Tensor(tb, pool))
		if m.Signature().MaxBatch > 0 {
			b.Rows = int(v.Dims[0])
		}
	}
	defer tensor.ReleaseAll(b.In)
	defer tensor.ReleaseAll(b.Out)
	if err := x.Execute(ctx, b); err != nil {
		return nil, err
	}
	var out []backendtest.Value
	for i := range b.Out {
		out = append(out, backendtest.ValueOf(&b.Out[i]))
	}
	return out, nil
}

func fp32(dims []int64, elems ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, dims, elems...)
}

const embed = `max_batch_size: 8
	input { name: "x" data_type: TYPE_FP32 dims: 3 } input { name: "index" data_type: TYPE_INT64 dims: 1 }
	output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 3 } output { name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 1, 2 ] }`

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	x := fp32([]int64{2, 3}, 0, 1, 2, 3, 4, 5)
	index := backendtest.Of[int64](tensor.Int64, []int64{2, 1}, 9, 0)
	want := []backendtest.Value{fp32([]int64{2, 3}, 2, 2.5, 3, 3.5, 4, 4.5), fp32([]int64{2, 1, 2}, 18, 19, 0, 1)}
	backendtest.Run(t, pytorch.NewFactory(), options(t),
		backendtest.Fixture{
			Name: "batch", Rows: 2, Settings: settings(t, "embed.pt", embed), In: []backendtest.Value{x, index}, Want: want,
			Bad: []backendtest.Bad{
				{Name: "dtype", In: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{2, 3}, make([]int32, 6)...), index}, Code: status.InvalidArg},
				{Name: "shape", In: []backendtest.Value{fp32([]int64{2, 2}, 0, 1, 2, 3), index}, Code: status.InvalidArg},
				{Name: "rank", In: []backendtest.Value{fp32([]int64{6}, 0, 1, 2, 3, 4, 5), index}, Code: status.InvalidArg},
				{Name: "short", In: []backendtest.Value{fp32([]int64{2, 3}, 0, 1, 2, 3, 4), index}, Code: status.InvalidArg},
				{Name: "absent", In: []backendtest.Value{{}, index}, Code: status.InvalidArg},
				{Name: "outside the table", In: []backendtest.Value{x, backendtest.Of[int64](tensor.Int64, []int64{2, 1}, 10, 0)}, Code: status.Internal},
			},
		},
		backendtest.Fixture{
			Name: "input handed through", Rows: 2,
			Settings: settings(t, "identity.pt", `max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }`),
			In:       []backendtest.Value{x}, Want: []backendtest.Value{x},
		},
		backendtest.Fixture{
			Name: "input written", Rows: 2,
			Settings: settings(t, "writes.pt", `max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }`),
			In:       []backendtest.Value{x}, Want: []backendtest.Value{fp32([]int64{2, 3}, 1, 2, 3, 4, 5, 6)},
		},
		backendtest.Fixture{
			Name: "strings",
			Settings: settings(t, "strings.pt", `input { name: "text" data_type: TYPE_STRING dims: -1 }
				output { name: "UPPER__0" data_type: TYPE_STRING dims: -1 } output { name: "LENGTH__1" data_type: TYPE_INT64 dims: -1 }`),
			In: []backendtest.Value{backendtest.Strings([]int64{3}, "ab", "", "c\x00d")},
			Want: []backendtest.Value{
				backendtest.Strings([]int64{3}, "AB", "", "C\x00D"), backendtest.Of[int64](tensor.Int64, []int64{3}, 2, 0, 3),
			},
			Bad: []backendtest.Bad{{Name: "cut off", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1}, Data: []byte{9, 0, 0, 0, 'a'}}}}},
		},
	)
}
