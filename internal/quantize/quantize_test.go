//go:build cgo

package quantize_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/identity"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/onnxfile"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/quantize"
	"github.com/tutti-server/tutti/steps"
)

// product is the configuration of the model x [16] -> y [16], an ensemble around it, and requests to both.
const product = `backend: "onnxruntime"
max_batch_size: 8
dynamic_batching { }
input { name: "x" data_type: TYPE_FP32 dims: 16 }
output { name: "y" data_type: TYPE_FP32 dims: 16 }
`

const around = `platform: "ensemble"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: 16 }
output { name: "OUT" data_type: TYPE_FP32 dims: 16 }
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "mid" } },
  { model_name: "m" model_version: -1 input_map { key: "x" value: "mid" } output_map { key: "y" value: "OUT" } }
] }
`

// repository makes a repository with the model m, whose versions have the given files, the ensemble e, and requests to both.
func repository(t *testing.T, config string, versions ...string) string {
	t.Helper()
	root := t.TempDir()
	put := func(name string, data []byte) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, file := range versions {
		data, err := os.ReadFile(filepath.Join("../../backends/onnx/testdata", file+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		put(fmt.Sprintf("m/%d/model.onnx", i+1), data)
	}
	put("m/1/labels.txt", []byte("a\n"))
	put("m/config.pbtxt", []byte(product+config))
	put("first/config.pbtxt", []byte("backend: \"identity\"\nmax_batch_size: 8\ninput { name: \"INPUT0\" data_type: TYPE_FP32 dims: 16 }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: 16 }\n"))
	put("first/1/.keep", nil)
	put("e/config.pbtxt", []byte(around))
	put("e/1/.keep", nil)
	var requests []any
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // for a test
	for i := range 6 {
		data := make([]float64, 32)
		for k := range data {
			data[k] = random.Float64()*4 - 2
		}
		name, to := "x", "m"
		if i%2 == 1 {
			name, to = "IN", "e"
		}
		requests = append(requests, map[string]any{"ensemble": to, "inputs": []any{map[string]any{"name": name, "datatype": "FP32", "shape": []int{2, 16}, "data": data}}})
	}
	text, err := json.Marshal(map[string]any{"requests": requests})
	if err != nil {
		t.Fatal(err)
	}
	put("expected.json", text)
	return root
}

func settings(t *testing.T, root string) *quantize.Settings {
	t.Helper()
	return &quantize.Settings{
		Dir: filepath.Join(root, "m"),
		Settings: lab.Settings{
			Components: tutti.Components{Backends: func(*steps.Registry) []backends.Factory {
				return []backends.Factory{identity.NewFactory(), onnx.NewFactory()}
			}},
			BackendConfig: options.BackendConfig{"onnxruntime": {"library-path": preparedtest.Runtime(t, "onnxruntime")}},
		},
		Python: func() (string, error) { return preparedtest.Runtime(t, "quantizer"), nil },
	}
}

// bound returns a bound.
func bound(t *testing.T, value string) *precision.Bound {
	t.Helper()
	b, err := precision.ParseBound(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loads returns why the model cannot be loaded, nil if it can.
func loads(t *testing.T, s *quantize.Settings) error {
	t.Helper()
	l, err := lab.Open(t.Context(), &s.Settings, filepath.Dir(s.Dir), "m")
	if err == nil {
		err = l.Close(context.WithoutCancel(t.Context()))
	}
	return err
}

// TestMeasure measures a version that is there, through the requests to an ensemble, and checks what its record permits.
func TestMeasure(t *testing.T) {
	t.Parallel()
	root := repository(t, `parameters { key: "precision" value { string_value: "fp32, 2=int8" } } parameters { key: "fidelity" value { string_value: "cosine=0.99" } }`, "mlp", "mlp_int8")
	s := settings(t, root)
	s.Ensemble = "e"
	if err := loads(t, s); err == nil || !strings.Contains(err.Error(), "it was never measured") {
		t.Fatalf("before the measurement: %v", err)
	}
	r, err := quantize.Measure(t.Context(), s, 2)
	if err != nil {
		t.Fatal(err)
	}
	o := r.Record.Outputs[0]
	if r.Missed != "" || r.Change != nil || r.Record.Requests != 3 || o.Rows != 6 || *o.Cosine < 0.99 || *o.Cosine == 1 || r.Record.Reference.Version != 1 {
		t.Errorf("%+v, %+v", r, o)
	}
	if err := loads(t, s); err != nil {
		t.Errorf("after it: %v", err)
	}
	var text bytes.Buffer
	if err := r.Report(&text); err != nil || !strings.Contains(text.String(), "it has the fidelity 'cosine=0.99'") {
		t.Errorf("%v, %s", err, text.String())
	}
	// A swapped file is refused, and measured again it loads.
	file := filepath.Join(root, "m", "2", "model.onnx")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(data, 0xA2, 0x06, 0x00), 0o600); err != nil { // an unknown field
		t.Fatal(err)
	}
	if err := loads(t, s); err == nil || !strings.Contains(err.Error(), "is not the file that was measured on") {
		t.Errorf("a swapped file: %v", err)
	}
	if _, err := quantize.Measure(t.Context(), s, 2); err != nil || loads(t, s) != nil {
		t.Errorf("measured again: %v, %v", err, loads(t, s))
	}
}

// TestMeasureMissed checks that the figures of a version beyond the bound are stored, and refuse it.
func TestMeasureMissed(t *testing.T) {
	t.Parallel()
	root := repository(t, "", "mlp", "mlp_int8")
	s := settings(t, root)
	s.Bound, s.Write = bound(t, "difference=0"), true
	r, err := quantize.Measure(t.Context(), s, 2)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Missed, "output 'y' has a difference of 0.0") || !strings.Contains(r.Diff, `+parameters { key: "precision" value { string_value: "fp32, 2=int8" } }`) {
		t.Errorf("missed '%s', change\n%s", r.Missed, r.Diff)
	}
	if err := loads(t, s); err == nil || !strings.Contains(err.Error(), "does not have the fidelity 'difference=0': output 'y' has a difference") {
		t.Errorf("%v", err)
	}
}

// TestGoldenByBound checks that golden requests of the model in fp32 are compared with a version in int8 as the fidelity says.
func TestGoldenByBound(t *testing.T) {
	t.Parallel()
	root := repository(t, `parameters { key: "precision" value { string_value: "fp32, 2=int8" } } parameters { key: "fidelity" value { string_value: "cosine=0.99" } }`, "mlp", "mlp_int8")
	golden := func(y string) {
		if err := os.MkdirAll(filepath.Join(root, "m", "golden"), 0o750); err != nil {
			t.Fatal(err)
		}
		text := `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [0.1,0.2,0.35,0.4,1,2,3,4,5,6,7,8,9,10,11,12.3]}],
			"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 16], "data": ` + y + `}]}`
		if err := os.WriteFile(filepath.Join(root, "m", "golden", "a.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := settings(t, root)
	if _, err := quantize.Measure(t.Context(), s, 2); err != nil {
		t.Fatal(err)
	}
	golden("[0.1,0.1,0.15,0.05,0.6,1,1,1,1,1,1,1,1,1,1,1.3]")
	if err := loads(t, s); err != nil {
		t.Errorf("close golden: %v", err)
	}
	golden("[9,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1]")
	if err := loads(t, s); err == nil || !strings.Contains(err.Error(), "golden requests of model 'm' miss the fidelity 'cosine=0.99': output 'y' has a cosine of") {
		t.Errorf("other golden: %v", err)
	}
}

// TestGoldenOfEnsemble checks golden requests of an ensemble whose step is in int8: they keep their tolerance, the error says why the
// response differs, and the fidelity of the ensemble is a bound instead. That bound does not loosen them while the step is in fp32.
func TestGoldenOfEnsemble(t *testing.T) {
	t.Parallel()
	root := repository(t, `parameters { key: "precision" value { string_value: "fp32, 2=int8" } }`, "mlp", "mlp_int8")
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "e", "golden"), 0o750); err != nil {
		t.Fatal(err)
	}
	golden := func(y string) {
		put("e/golden/a.json", `{"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 16], "data": [0.1,0.2,0.35,0.4,1,2,3,4,5,6,7,8,9,10,11,12.3]}],
			"outputs": [{"name": "OUT", "datatype": "FP32", "shape": [1, 16], "data": `+y+`}]}`)
	}
	s := settings(t, root)
	ensemble := func() string {
		l, err := lab.Open(t.Context(), &s.Settings, root, "e")
		if err != nil {
			return err.Error()
		}
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		return ""
	}
	const right, near, other = "[0.1,0.1,0.15,0.05,0.6,1,1,1,1,1,1,1,1,1,1,1.3]", "[0.1,0.1,0.15,0.05,0.6,1,1,1,1,1,1,1,1,1,1,1.4]", "[9,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1]"
	const fidelity = `parameters { key: "fidelity" value { string_value: "cosine=0.99" } }`
	for _, tt := range []struct{ name, y, config, policy, want string }{
		{"tolerance", right, "", "", "version 2 of its model 'm' computes in int8. To compare the ensemble by a bound, give it the parameter 'fidelity', for example 'cosine=0.985'"},
		{"bound", right, fidelity, "", ""},
		{"beyond the bound", other, fidelity, "", "golden requests of model 'e' miss the fidelity 'cosine=0.99': output 'OUT' has a cosine of"},
		{"no bound", right, strings.ReplaceAll(fidelity, "cosine=0.99", "close"), "", "'close' is no condition"},
		{"fp32", right, fidelity, "version_policy { specific { versions: 1 } }", ""},
		{"fp32, near", near, fidelity, "version_policy { specific { versions: 1 } }", "golden request 'a.json' of model 'e': output 'OUT' has 1.3"},
	} {
		golden(tt.y)
		put("e/config.pbtxt", around+tt.config)
		put("m/config.pbtxt", product+`parameters { key: "precision" value { string_value: "fp32, 2=int8" } }`+tt.policy)
		if got := ensemble(); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestMake makes versions with the quantiser: dynamic, calibrated, and one that is not written because it misses the bound.
func TestMake(t *testing.T) {
	t.Parallel()
	preparedtest.Runtime(t, "quantizer")
	root := repository(t, "", "mlp")
	s := settings(t, root)
	s.Bound, s.Write = bound(t, "cosine=0.99"), true
	r, err := quantize.Make(t.Context(), s, precision.INT8)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes[0] == 0 || r.Bytes[1] == 0 || r.Bytes[0] == r.Bytes[1] {
		t.Errorf("sizes %v, want those of the two versions", r.Bytes)
	}
	if r.Version != 2 || r.Missed != "" || r.Products != 1 || r.Kept != 0 || r.Record.Requests != 3 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"model.onnx", "labels.txt", "fidelity.json"} {
		if _, err := os.Stat(filepath.Join(root, "m", "2", name)); err != nil {
			t.Error(err)
		}
	}
	if err := loads(t, s); err != nil {
		t.Error(err)
	}
	s.Calibration = []string{filepath.Join(root, "expected.json")}
	if r, err = quantize.Make(t.Context(), s, precision.INT8); err != nil || r.Version != 3 || r.Record.Reference.Version != 1 {
		t.Fatalf("calibrated: %+v, %v", r, err)
	}
	s.Bound = bound(t, "difference=0")
	if r, err = quantize.Make(t.Context(), s, precision.INT8); err != nil || r.Missed == "" || r.Folder != "" {
		t.Fatalf("beyond the bound: %+v, %v", r, err)
	}
	entries, err := filepath.Glob(filepath.Join(root, "m", "*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(root, "m", ".*"))
	if err != nil || len(entries) != 4 || len(hidden) != 0 { // 1, 2, 3, config.pbtxt
		t.Errorf("%v, %v, %v", entries, hidden, err)
	}
}

// TestSmoothed checks that a model with a few large channels keeps its fidelity with all products in int8, where unsmoothed ones had a
// cosine of 0.85: the scales go into the layer normalisation that only products read, and elsewhere into a multiplication.
func TestSmoothed(t *testing.T) {
	t.Parallel()
	s := settings(t, repository(t, "", "encoder"))
	s.Bound = bound(t, "cosine=0.98")
	r, err := quantize.Make(t.Context(), s, precision.INT8)
	if err != nil {
		t.Fatal(err)
	}
	if r.Missed != "" || r.Kept != 0 || r.Products != 4 || r.Smoothed != 4 {
		t.Fatalf("%+v, %+v", r, r.Record.Outputs)
	}
	file, err := onnxfile.Summarise(filepath.Join(r.Folder, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	// Each product in int8 has two, the model has one of its own.
	if got := file.Ops[onnxfile.Op{Type: "Mul"}] - 2*r.Products - 1; got != 2 {
		t.Errorf("%d multiplications smooth, want 2: those of the tensors that other operators than a layer normalisation make, or than products read", got)
	}
	var text bytes.Buffer
	if err := r.Report(&text); err != nil || !strings.Contains(text.String(), "4 of 4 matrix products read smoothed activations\n") {
		t.Errorf("%v, %s", err, text.String())
	}
}

// TestMistakes checks calls that make nothing.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		versions []string
		change   func(s *quantize.Settings)
		to       precision.Precision
		want     string
	}{
		"no folder":       {[]string{"mlp"}, func(s *quantize.Settings) { s.Dir += "x" }, precision.INT8, "expected the folder of a model: "},
		"no versions":     {nil, func(s *quantize.Settings) { _ = os.RemoveAll(filepath.Join(s.Dir, "1")) }, precision.INT8, "' has no version folder, expected the folder of a model"},
		"no model file":   {nil, nil, precision.INT8, "model.onnx: no such file or directory"},
		"other backend":   {[]string{"mlp"}, func(s *quantize.Settings) { s.Dir = filepath.Join(filepath.Dir(s.Dir), "first") }, precision.INT8, "model 'first' is of backend 'identity', expected onnxruntime or openvino"},
		"no such version": {[]string{"mlp"}, func(s *quantize.Settings) { s.Reference = 7 }, precision.INT8, "model 'm' has no version 7, expected one of [1]"},
		"of a quantised":  {[]string{"mlp_int8"}, nil, precision.INT8, "model.onnx' is int8, expected a file in fp32"},
		"not ONNX": {[]string{"mlp"}, func(s *quantize.Settings) {
			_ = os.WriteFile(filepath.Join(s.Dir, "1", "model.onnx"), []byte("x"), 0o600)
		}, precision.INT8, "cannot be read as an ONNX model"},
		"unknown ensemble": {[]string{"mlp"}, func(s *quantize.Settings) { s.Ensemble = "ghost" }, precision.INT8, "ghost"},
		"missing file":     {[]string{"mlp"}, func(s *quantize.Settings) { s.Data = []string{"none.jsonl"} }, precision.INT8, "none.jsonl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings(t, repository(t, "", tt.versions...))
			if tt.change != nil {
				tt.change(s)
			}
			if _, err := quantize.Make(t.Context(), s, tt.to); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
