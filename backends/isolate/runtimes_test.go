//go:build cgo

package isolate_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/isolate"
	"github.com/tutti-server/tutti/backends/openvino"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/backends/tensorflow"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
)

// TestRuntimes compares what a model of each other runtime returns in a process and in this one.
func TestRuntimes(t *testing.T) { //nolint:tparallel // one runtime at a time: they take much memory
	t.Parallel()
	for _, tt := range []struct {
		factory backends.Factory
		runtime string
		files   map[string]string // in the version folder, by their sources
		config  string
		columns int64
	}{
		{openvino.NewFactory(), "openvino", map[string]string{"model.xml": "openvino/testdata/mlp.xml", "model.bin": "openvino/testdata/mlp.bin"}, "max_batch_size: 8", 16},
		{
			pytorch.NewFactory(), "pytorch",
			map[string]string{"model.pt": "pytorch/testdata/identity.pt"},
			`max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }`, 3,
		},
		{
			pytorch.NewFactory(), "pytorch",
			map[string]string{"model.pt": "pytorch/testdata/writes.pt"},
			`max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }`, 3,
		},
		{tensorflow.NewFactory(), "tensorflow", map[string]string{"model.savedmodel": "tensorflow/testdata/two.savedmodel"}, "", 2},
	} {
		t.Run(tt.runtime, func(t *testing.T) {
			library := preparedtest.Runtime(t, tt.runtime)
			s := settings(t, tt.runtime, nil, tt.config)
			for to, from := range tt.files {
				place(t, filepath.Join(s.Dir, to), filepath.Join("..", from))
			}
			cfg, err := config.Parse("config.pbtxt", []byte(`name: "`+tt.runtime+`" `+tt.config))
			if err != nil {
				t.Fatal(err)
			}
			s.Config = cfg
			run := func(isolated bool) []float32 {
				b, err := isolate.Around(tt.factory)[0].New(backends.Options{Config: map[string]string{"library-path": library}, Isolate: isolated, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					preparedtest.Skip(t, tt.runtime, err)
				}
				defer b.Close()
				m, err := b.Load(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				x, err := m.NewInstance(t.Context(), tensor.Place{})
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				if n := len(children(t, tt.runtime)); isolated != (n == 1) {
					t.Errorf("%d processes, isolated: %v", n, isolated)
				}
				return output(t, s.Alloc, m, x, tt.columns)
			}
			want, got := run(false), run(true)
			if len(want) == 0 || len(got) != len(want) {
				t.Fatalf("%v, want %v", got, want)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%v, want %v", got, want)
				}
			}
		})
	}
}

// place copies a file or a folder.
func place(tb testing.TB, to, from string) {
	tb.Helper()
	info, err := os.Stat(from)
	if err != nil {
		tb.Fatal(err)
	}
	if info.IsDir() {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			tb.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(from)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// output executes a batch of one row and returns the first output.
func output(tb testing.TB, a tensor.Allocator, m backends.Model, x backends.Instance, columns int64) []float32 {
	tb.Helper()
	sig := m.Signature()
	batch := &backends.Batch{Rows: 1, Requests: make([]backends.Request, 1), Out: make([]tensor.Tensor, len(sig.Outputs)), Allocator: a}
	for range sig.Inputs {
		in, err := tensor.New(a, tensor.FP32, tensor.Of(1, columns))
		if err != nil {
			tb.Fatal(err)
		}
		for i := range tensor.Slice[float32](&in) {
			tensor.Slice[float32](&in)[i] = float32(i * i % 5)
		}
		batch.In = append(batch.In, in)
	}
	defer tensor.ReleaseAll(batch.In)
	defer tensor.ReleaseAll(batch.Out)
	if err := x.Execute(tb.Context(), batch); err != nil {
		tb.Fatal(err)
	}
	return append([]float32(nil), tensor.Slice[float32](&batch.Out[0])...)
}
