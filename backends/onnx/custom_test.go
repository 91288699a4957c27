//go:build cgo

package onnx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/onnx/onnxtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestCustomOperators checks a model that uses an operator of a custom library.
// shows: config.operators
func TestCustomOperators(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := filepath.Join(dir, "1")
	model, err := os.ReadFile(filepath.Join("testdata", "custom.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(version, "model.onnx"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	onnxtest.Operators(t, filepath.Join(dir, "twice.so"))
	if err := os.WriteFile(filepath.Join(dir, "twice.c"), []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openBackend(t, nil)
	load := func(file string) (backends.Model, error) {
		cfg := parseConfig(t, `model_operations { op_library_filename: "`+file+`" }`)
		return b.Load(t.Context(), backends.Settings{Model: "m", Dir: version, ModelDir: dir, Config: cfg, Instances: 1})
	}
	if _, err := load("twice.c"); err == nil || !strings.Contains(err.Error(), "operator library '"+filepath.Join(dir, "twice.c")+"': onnx runtime error") {
		t.Errorf("loading something else = %v", err)
	}
	m, err := load("twice.so")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := runTwice(t, m); got != 8 {
		t.Errorf("twice 4 is %v", got)
	}
}

func runTwice(t *testing.T, m backends.Model) float32 {
	t.Helper()
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.FP32, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	*(*float32)(in.Pointer()) = 4
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool}
	if err := x.Execute(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	defer b.Out[0].Release()
	return *(*float32)(b.Out[0].Pointer())
}
