package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/tune"
)

// TestTuneVersion checks that tune measures a version in another precision that has its fidelity, beside the current one.
func TestTuneVersion(t *testing.T) {
	t.Parallel()
	runtime := "--backend-config=onnxruntime,library-path=" + requireRuntime(t)
	const ports = "\nmax_batch_size: 8\ninput { name: \"x\" data_type: TYPE_FP32 dims: 16 }\noutput { name: \"y\" data_type: TYPE_FP32 dims: 16 }\n"
	root := t.TempDir()
	copied(t, "../../backends/onnx/testdata/mlp.onnx", filepath.Join(root, "m", "1", "model.onnx"))
	copied(t, "../../backends/onnx/testdata/mlp_int8.onnx", filepath.Join(root, "m", "2", "model.onnx"))
	if err := os.MkdirAll(filepath.Join(root, "e", "1"), 0o750); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "m", "config.pbtxt"), []byte(`backend: "onnxruntime"`+ports+"version_policy { specific { versions: 1 } }\n"+
		`parameters { key: "precision" value { string_value: "fp32, 2=int8" } }`+"\n"+`parameters { key: "fidelity" value { string_value: "cosine=0.99" } }`+"\n"))
	writeFile(t, filepath.Join(root, "e", "config.pbtxt"), []byte(`platform: "ensemble"`+ports+
		`ensemble_scheduling { step [ { model_name: "m" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } ] }`))
	request := filepath.Join(root, "request.json")
	writeFile(t, request, []byte(`{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [0.1,0.2,0.35,0.4,1,2,3,4,5,6,7,8,9,10,11,12.3]}]}`))
	if text, ok := runCommand(t, "quantize", filepath.Join(root, "m"), "--measure", "2", "--data", request, runtime); !ok {
		t.Fatal(text)
	}
	text, ok := runCommand(t, "tune", root, "e", "--slo-ms", "10000", "--rate", "10", "--brief", "-o", "json", "--data", request, runtime)
	var d tune.Data
	if err := json.Unmarshal([]byte(text[max(strings.Index(text, "{"), 0):]), &d); !ok || err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	m := d.Models[0]
	if len(m.Versions) != 1 || m.Versions[0] != (tune.VersionData{Version: 2, Precision: "int8"}) {
		t.Errorf("versions %+v, want version 2 in int8, which was tried", m.Versions)
	}
	if first, last := m.Costs[0], m.Costs[len(m.Costs)-1]; first.Version != 0 || last.Version != 2 || first.One <= 0 || last.One <= 0 {
		t.Errorf("costs %+v, want those of the current version and of version 2", m.Costs)
	}
}
