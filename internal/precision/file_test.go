package precision_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/precision"
)

// TestOfFile checks the precision of model files.
func TestOfFile(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]precision.Precision{
		"../../backends/onnx/testdata/mlp.onnx":        precision.FP32,
		"../../backends/onnx/testdata/mlp_int8.onnx":   precision.INT8,
		"../../backends/onnx/testdata/mlp_fp16.onnx":   precision.FP16,
		"../../backends/onnx/testdata/types.onnx":      precision.FP32, // without weights
		"../../backends/openvino/testdata/mlp.xml":     precision.FP32,
		"../../backends/openvino/testdata/frozen.pb":   precision.None,
		"../../backends/openvino/testdata/saved":       precision.None,
		"../../backends/openvino/testdata/strings.xml": precision.FP32,
	} {
		got, err := precision.OfFile(path)
		if got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

// TestOfIR checks what makes a file of OpenVINO's IR a quantised one, and damaged files.
func TestOfIR(t *testing.T) {
	t.Parallel()
	layer := func(kind, data string) string {
		return `<layer id="1" name="n" type="` + kind + `">` + data + `</layer>`
	}
	for _, tt := range []struct {
		text string
		want precision.Precision
		err  string
	}{
		{`<net name="m">` + layer("MatMul", "") + `</net>`, precision.FP32, ""},
		{`<net>` + layer("FakeQuantize", "") + `</net>`, precision.INT8, ""},
		{`<net>` + layer("Const", `<data element_type="i8" shape="64, 64" offset="0" size="4096"/>`) + `</net>`, precision.INT8, ""},
		{`<net>` + layer("Const", `<data element_type="u8" shape="1" offset="0" size="1"/>`) + `</net>`, precision.FP32, ""},
		{`<net>` + layer("Parameter", `<data element_type="u8" shape="64, 64"/>`) + `</net>`, precision.FP32, ""},
		{`<net>` + layer("Const", ""), "", "unexpected EOF"},
		{`<other/>`, "", "it has no element 'net'"},
		{``, "", "it has no element 'net'"},
	} {
		path := filepath.Join(t.TempDir(), "model.xml")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := precision.OfFile(path)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v; want %q, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}
