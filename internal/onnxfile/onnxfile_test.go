package onnxfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/onnxfile"
)

const testdata = "../../backends/onnx/testdata"

// TestSummarise checks the operators and weights of models that a runtime loads.
func TestSummarise(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file   string
		op     onnxfile.Op
		weight uint64
		n      int64
	}{
		{"mlp", onnxfile.Op{Type: "MatMul"}, onnxfile.Float, 256},
		{"mlp_int8", onnxfile.Op{Type: "MatMulInteger"}, onnxfile.Int8, 256},
		{"mlp_fp16", onnxfile.Op{Type: "Cast"}, onnxfile.Float16, 256},
		{"custom", onnxfile.Op{Domain: "tutti.test", Type: "Twice"}, onnxfile.Float, 0},
		{"far", onnxfile.Op{Type: "Add"}, onnxfile.Float, 64}, // in a file of its own
	} {
		s, err := onnxfile.Summarise(filepath.Join(testdata, tt.file+".onnx"))
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Ops[tt.op] == 0 || s.Weights[tt.weight] != tt.n {
			t.Errorf("%s: %v", tt.file, s)
		}
	}
}

// TestSummariseDamaged reads every beginning of a model: none may crash, and those within the graph are errors.
func TestSummariseDamaged(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(testdata, "mlp_int8.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	for n := range len(data) {
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := onnxfile.Summarise(path); err == nil && n < len(data)-16 {
			t.Errorf("the first %d bytes are a model: %v", n, s)
		}
	}
	for name, want := range map[string]string{"": "is empty, expected an ONNX model", "no model": "it is no ONNX model"} {
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := onnxfile.Summarise(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	if _, err := onnxfile.Summarise(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a folder: %v", err)
	}
}

// TestMapShortened checks that a file that becomes shorter while it is read is an error and does not end the process.
func TestMapShortened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	err := onnxfile.Map(path, func(data []byte) error {
		if err := os.Truncate(path, 0); err != nil {
			return err
		}
		if data[1<<15] != 0 {
			return errors.New("it has content")
		}
		return nil
	})
	if !errors.Is(err, onnxfile.ErrTruncated) {
		t.Errorf("%v, want %v", err, onnxfile.ErrTruncated)
	}
}

// FuzzSummarise checks that no content crashes the reader.
func FuzzSummarise(f *testing.F) {
	for _, name := range []string{"mlp_int8", "custom", "loop"} {
		data, err := os.ReadFile(filepath.Join(testdata, name+".onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = onnxfile.Summarise(path)
	})
}
