package precision_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/precision"
)

// version makes the folder of a version with a record.
func version(tb testing.TB, change func(r *precision.Record)) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "2")
	if err := os.MkdirAll(filepath.Join(dir, "model.onnx"), 0o700); err != nil {
		tb.Fatal(err)
	}
	write(tb, filepath.Join(dir, "model.onnx", "model.onnx"), "weights")
	write(tb, filepath.Join(dir, "labels.txt"), "a\nb\n")
	files, err := precision.Hashes(dir)
	if err != nil {
		tb.Fatal(err)
	}
	cosine, top1 := 0.995, 1.0
	r := &precision.Record{
		Backend: "onnxruntime", Precision: precision.INT8, Files: files, Requests: 3, Exact: true, Processor: "test", Measured: time.Unix(1e9, 0).UTC(),
		Outputs: []precision.Output{{Name: "y", Datatype: "FP32", Rows: 3, Cosine: &cosine, MeanCosine: &cosine, Difference: &cosine, Top1: &top1}},
	}
	if change != nil {
		change(r)
	}
	if err := r.Write(dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// TestGate checks which versions the fidelity of a configuration refuses.
func TestGate(t *testing.T) {
	t.Parallel()
	exact, old := precision.ProcessorOf("new", []string{"avx512_vnni"}), precision.ProcessorOf("old", nil)
	for name, tt := range map[string]struct {
		params  []string
		change  func(r *precision.Record)
		damage  func(t *testing.T, dir string)
		machine precision.Processor
		want    string // "" for a version that loads
	}{
		"good":            {machine: exact},
		"no bound":        {params: []string{"precision", "int8"}, damage: remove, machine: exact},
		"reference":       {params: []string{"precision", "3=int8, fp32", "fidelity", "cosine=1"}, damage: remove, machine: exact},
		"cosine":          {params: []string{"precision", "int8", "fidelity", "cosine=0.999"}, machine: exact, want: "does not have the fidelity 'cosine=0.999': output 'y' has a cosine of 0.995, expected at least 0.999"},
		"never measured":  {damage: remove, machine: exact, want: "it was never measured: there is no '"},
		"undeclared":      {params: []string{"fidelity", "cosine=0.9"}, machine: exact, want: "parameter 'fidelity' needs parameter 'precision'"},
		"bad bound":       {params: []string{"precision", "int8", "fidelity", "cos=1"}, machine: exact, want: "'cos=1' is no condition"},
		"bad precision":   {params: []string{"precision", "half", "fidelity", "cosine=1"}, machine: exact, want: "'half' is no precision"},
		"other precision": {params: []string{"precision", "bf16", "fidelity", "cosine=0.9"}, machine: exact, want: "it was measured in int8 by onnxruntime, and the configuration declares bf16 by onnxruntime"},
		"other backend":   {change: func(r *precision.Record) { r.Backend = "openvino" }, machine: exact, want: "it was measured in int8 by openvino"},
		"swapped file": {damage: func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, "model.onnx", "model.onnx"), "other")
		}, machine: exact, want: "model.onnx' is not the file that was measured on 2001-09-09"},
		"added file":        {damage: func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, "more.bin"), "") }, machine: exact, want: "more.bin' is not the file"},
		"removed file":      {damage: func(_ *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "labels.txt")) }, machine: exact, want: "labels.txt' is not the file"},
		"hidden file":       {damage: func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, ".swp"), "x") }, machine: exact},
		"without VNNI":      {machine: old, want: "it was measured on a processor with exact sums of 8 bit products (test), and this one saturates them (old: "},
		"both without VNNI": {change: func(r *precision.Record) { r.Exact = false }, machine: old},
		"no outputs":        {change: func(r *precision.Record) { r.Outputs = nil }, machine: exact, want: "its stored figures have no outputs"},
		"truncated":         {damage: truncate, machine: exact, want: "is no stored fidelity: unexpected end of JSON input"},
		"of the future": {damage: func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, precision.RecordFile), `{"format": 2}`)
		}, machine: exact, want: "has format 2, expected 1"},
		"a folder": {damage: func(t *testing.T, dir string) {
			t.Helper()
			remove(t, dir)
			_ = os.Mkdir(filepath.Join(dir, precision.RecordFile), 0o700)
		}, machine: exact, want: "is no stored fidelity: expected a file of at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := version(t, tt.change)
			if tt.damage != nil {
				tt.damage(t, dir)
			}
			params := tt.params
			if params == nil {
				params = []string{"precision", "int8", "fidelity", "cosine=0.99"}
			}
			err := precision.Gate(configOf(t, params...), 2, dir, "/models/m", tt.machine)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if d, ok := config.Diagnosed(err); err != nil && strings.Contains(err.Error(), "does not have the fidelity") &&
				(!ok || d.Fix != "measure it: tutti quantize /models/m --measure 2" || d.Field != "parameters.fidelity") {
				t.Errorf("diagnostic %+v", d)
			}
		})
	}
}

func remove(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, precision.RecordFile)); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, dir string) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, precision.RecordFile), 40); err != nil {
		t.Fatal(err)
	}
}

// TestReadRecord checks that a folder without a record says so.
func TestReadRecord(t *testing.T) {
	t.Parallel()
	if _, err := precision.ReadRecord(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// FuzzRecord checks that no content of the file crashes the gate.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format": 1, "precision": "int8", "backend": "onnxruntime", "requests": 1, "outputs": [{"name": "y"}], "files": {}}`))
	f.Add([]byte(`{"format": 1, "outputs": [null], "files": null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, precision.RecordFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = precision.Gate(configOf(t, "precision", "int8", "fidelity", "cosine=0.99"), 2, dir, dir, precision.Processor{})
	})
}
