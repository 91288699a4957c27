package starter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/starter"
)

// TestOpenONNX checks the inputs, outputs and other facts that are read of ONNX files.
func TestOpenONNX(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, ports, last string }{
		{"fixed_batch", "input FP32 [1,3,64,64] -> output FP32 [1,10]", "Gemm"},
		{"keras_nhwc", "input_1 FP32 [-1,64,64,3] -> predictions FP32 [-1,10]", "Softmax"},
		{"hf_vision", "pixel_values FP32 [-1,-1,-1,-1] -> logits FP32 [-1,10]", "Gemm"},
		{"ir3", "data FP32 [1,1,32,32] -> prob FP32 [1,10]", "Softmax"}, // its weights are no inputs
		{"half", "input FP16 [-1,3,64,64] -> logits FP16 [-1,10]", "Gemm"},
		{"no_shape", "data FP32 [-1,3,64,64] -> prob FP32 of unknown shape", "Gemm"},
		{"bert_static", "input_ids INT32 [1,32], attention_mask INT32 [1,32], token_type_ids INT32 [1,32] -> logits FP32 [1,3]", "MatMul"},
		{"tabular", "X FP32 [-1,4] -> Y FP32 [-1,2], S FP32 [-1]", "MatMul"},
		{"strings", "S BYTES [-1,1] -> T BYTES [-1,1]", ""},
		{"scalar", "S FP32 [] -> T FP32 []", ""},
	} {
		m, err := starter.Open(filepath.Join("testdata", tt.file+".onnx"))
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		if d := cmp.Diff(tt.ports, list(m.Inputs)+" -> "+list(m.Outputs)); d != "" {
			t.Errorf("%s (-want +got): %s", tt.file, d)
		}
		if last := m.Last[m.Outputs[0].Name]; last != tt.last {
			t.Errorf("%s ends in '%s', want '%s'", tt.file, last, tt.last)
		}
	}
	m, err := starter.Open("testdata/external_data.onnx")
	if err != nil || !cmp.Equal(m.External, []string{"external_data.onnx_data"}) {
		t.Errorf("external data: %v, %v", m, err)
	}
}

func list(ports []starter.Port) string {
	all := make([]string, len(ports))
	for i := range ports {
		all[i] = ports[i].String()
	}
	return strings.Join(all, ", ")
}

// TestOpenDamaged reads every beginning of a model, and models with one byte changed: none may crash, and no beginning is a model.
func TestOpenDamaged(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/distilbert.onnx")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	open := func(content []byte) (*starter.Model, error) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return starter.Open(path)
	}
	graph := len(data) - 16 // the operator set, which follows the graph, may be missing
	for n := range graph {
		if n > 200 && n%37 != 0 { // most bytes are weights
			continue
		}
		if m, err := open(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read as a model with the inputs %s", n, len(data), list(m.Inputs))
		}
	}
	for i := 0; i < len(data); i += 23 {
		changed := append([]byte{}, data...)
		changed[i] ^= 0x55
		_, _ = open(changed) // an error, or a model with other names
	}
}

// FuzzOpen reads any content as an ONNX file.
func FuzzOpen(f *testing.F) {
	data, err := os.ReadFile("testdata/scalar.onnx")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := starter.Open(path); err == nil && m.Format == "" {
			t.Error("a model of no format")
		}
	})
}
