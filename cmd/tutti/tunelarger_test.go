package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/tune"
)

// TestTuneLarger checks for which models tune tries a larger max_batch_size: those whose file takes larger batches, up to the
// largest one that was measured. It says why for a file that does not, and tries none of a step in Go.
func TestTuneLarger(t *testing.T) {
	t.Parallel()
	openvino := "--backend-config=openvino,library-path=" + preparedtest.Runtime(t, "openvino")
	const four = "# a file with a batch of 4\nbackend: \"openvino\"\nmax_batch_size: 4\ninput { name: \"x\" data_type: TYPE_FP32 dims: 3 }\noutput { name: \"y\" data_type: TYPE_FP32 dims: 3 }\n" +
		"parameters { key: \"SKIP_OV_DYNAMIC_BATCHSIZE\" value { string_value: \"YES\" } }\nparameters { key: \"ENABLE_BATCH_PADDING\" value { string_value: \"YES\" } }\n"
	root := t.TempDir()
	copied(t, "../../backends/openvino/testdata/four.xml", filepath.Join(root, "full", "1", "model.xml"))
	copied(t, "../../backends/openvino/testdata/four.bin", filepath.Join(root, "full", "1", "model.bin"))
	writeFile(t, filepath.Join(root, "full", "config.pbtxt"), []byte(four))
	writeFile(t, filepath.Join(root, "request.json"), []byte(`{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}`))
	for _, tt := range []struct {
		dir, ensemble, model, config string
		args                         []string
		now, largest                 int32
		reason                       string
	}{
		{examplesDir + "/digits", "digits", "digits_cnn", "--backend-config=onnxruntime,library-path=" + requireRuntime(t), nil, 16, 64, ""},
		{root, "full", "full", openvino, []string{"--data", filepath.Join(root, "request.json")}, 4, 4, "max_batch_size 8"},
	} {
		text, ok := runCommand(t, append([]string{"tune", tt.dir, tt.ensemble, "--slo-ms", "10000", "--rate", "10", "--brief", "-o", "json", tt.config}, tt.args...)...)
		var d tune.Data
		if err := json.Unmarshal([]byte(text[max(strings.Index(text, "{"), 0):]), &d); !ok || err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, m := range d.Models {
			switch beyond := m.Costs[0].Beyond; {
			case m.Name != tt.model:
				if m.Fixed != "" || beyond != nil {
					t.Errorf("%+v: a step in Go has no file", m)
				}
			case m.Largest < tt.now || m.Largest > tt.largest || (m.Largest > tt.now) != (tt.reason == "") || (beyond != nil) != (tt.reason == ""):
				t.Errorf("%s: %+v, want max_batch_size up to %d, and the error beyond %d", tt.ensemble, m, tt.largest, tt.now)
			case !strings.Contains(m.Fixed, tt.reason) || (m.Fixed != "") != (tt.reason != ""):
				t.Errorf("%s: max_batch_size stays because of '%s', want '%s'", tt.ensemble, m.Fixed, tt.reason)
			}
		}
	}
}

// copied copies a file into a folder, which it makes.
func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o750)
	}
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, text)
}
