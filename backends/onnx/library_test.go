//go:build cgo

package onnx

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// LibraryPath returns the path of ONNX Runtime, or skips the test.
func LibraryPath(tb testing.TB) string {
	tb.Helper()
	return preparedtest.Runtime(tb, "onnxruntime")
}

func openTest(tb testing.TB) *library {
	tb.Helper()
	l, err := openLibrary(LibraryPath(tb), start{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.release)
	return l
}

// TestTable checks calls through the function table: a wrong position would call another function.
func TestTable(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	major, minor, ok := strings.Cut(l.version, ".")
	minor, _, _ = strings.Cut(minor, ".")
	if n, err := strconv.Atoi(minor); !ok || major != "1" || err != nil || n < 24 {
		t.Errorf("version %q, want 1.24 or newer", l.version)
	}
	set := defaultSettings(1)
	s, err := openSession(t.Context(), l, filepath.Join("testdata", "mlp.onnx"), &set)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	want := port{Name: "x", DType: tensor.FP32, Shape: []int64{-1, 16}, Native: native{ort: 1, symbols: []string{"batch", ""}}}
	if len(s.ins) != 1 || len(s.outs) != 1 || s.ins[0].Name != want.Name || s.ins[0].DType != want.DType ||
		s.ins[0].Shape[1] != 16 || s.ins[0].Native.symbols[0] != "batch" || s.outs[0].Name != "y" {
		t.Errorf("declared %+v and %+v, want %+v and the like", s.ins, s.outs, want)
	}
}

func TestOpenSessionRefuses(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	model, err := os.ReadFile(filepath.Join("testdata", "mlp.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty": {}, "text": []byte("not a model"), "truncated": model[:len(model)/2], "bad operator": []byte(strings.Replace(string(model), "MatMul", "MatMil", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "model.onnx")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			set := defaultSettings(1)
			s, err := openSession(t.Context(), l, path, &set)
			if err == nil {
				s.close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), "onnx runtime error") {
				t.Errorf("error %q does not carry the runtime's", err)
			}
		})
	}
}

func TestOpenLibraryRefuses(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "none.so"), "other library": "libm.so.6"} {
		if l, err := openLibrary(path, start{}); err == nil || status.CodeOf(err) != status.Unavailable {
			t.Errorf("%s: openLibrary = %v, %v, want it unavailable", name, l, err)
		}
	}
}

// loadMLP returns an instance of the small model and a batch of one row.
func loadMLP(tb testing.TB) (*instance, *backends.Batch) {
	tb.Helper()
	b, err := NewFactory().New(backends.Options{Config: map[string]string{"library-path": LibraryPath(tb)}})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(`default_model_filename: "mlp.onnx" max_batch_size: 8`), cfg); err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), backends.Settings{Model: "mlp", Dir: "testdata", Config: cfg, Instances: 2})
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(1, 16))
	if err != nil {
		tb.Fatal(err)
	}
	clear(in.Bytes())
	tb.Cleanup(func() {
		in.Release()
		_ = x.Close()
		_ = m.Close()
		_ = b.Close()
	})
	return x.(*instance), &backends.Batch{
		Requests: make([]backends.Request, 1), Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool,
	}
}

func TestExecuteAllocatesNothing(t *testing.T) {
	x, b := loadMLP(t)
	for name, unsure := range map[string]bool{"batch memory": false, "runtime memory": true} {
		x.m.unsure.Store(unsure)
		n := testing.AllocsPerRun(200, func() {
			if err := x.Execute(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			b.Out[0].Release()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations per batch, want none", name, n)
		}
	}
}

func BenchmarkExecute(b *testing.B) {
	x, batch := loadMLP(b)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Execute(ctx, batch); err != nil {
			b.Fatal(err)
		}
		batch.Out[0].Release()
	}
}

func BenchmarkExecuteRuntimeMemory(b *testing.B) {
	x, batch := loadMLP(b)
	x.m.unsure.Store(true)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Execute(ctx, batch); err != nil {
			b.Fatal(err)
		}
		batch.Out[0].Release()
	}
}
