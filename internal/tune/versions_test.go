//go:build cgo

package tune_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/quantize"
	"github.com/tutti-server/tutti/internal/tune"
	"github.com/tutti-server/tutti/steps"
)

// TestVersions checks which versions in other precisions are tried: those that have the fidelity that is demanded and with which the
// ensemble loads. The network has the reason for others, and how to make one where there is none.
func TestVersions(t *testing.T) {
	t.Parallel()
	const (
		ports    = "\nmax_batch_size: 8\ninput { name: \"x\" data_type: TYPE_FP32 dims: 16 }\noutput { name: \"y\" data_type: TYPE_FP32 dims: 16 }\n"
		declared = `parameters { key: "precision" value { string_value: "fp32, 2=int8" } }` + "\n"
		first    = "version_policy { specific { versions: 1 } }\n"
		demand   = `parameters { key: "fidelity" value { string_value: "cosine=0.99" } }` + "\n"
		request  = `{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [0.1,0.2,0.35,0.4,1,2,3,4,5,6,7,8,9,10,11,12.3]}]`
		golden   = request + `, "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 16], "data": [0.1,0.1,0.15,0.05,0.6,1,1,1,1,1,1,1,1,1,1,1.3]}]}`
	)
	for _, tt := range []struct {
		name, config, step, golden string
		third                      bool // version 3 is another model, against which version 2 was not measured
		measured                   bool
		want                       tune.Version
		refused                    string
	}{
		{name: "tried", config: declared + first + demand, measured: true, want: tune.Version{Number: 2, Precision: precision.INT8}},
		{name: "the original", config: declared + demand, measured: true, want: tune.Version{Number: 1, Precision: precision.FP32}},
		{name: "not measured", config: declared + first + demand, want: tune.Version{Number: 2, Precision: precision.INT8}, refused: "it was never measured"},
		{name: "no fidelity", config: declared + first, measured: true, want: tune.Version{Number: 2, Precision: precision.INT8}, refused: "the configuration demands no fidelity: set the parameter 'fidelity'"},
		{name: "golden", config: declared + first + demand, golden: golden, measured: true, want: tune.Version{Number: 2, Precision: precision.INT8}, refused: "To compare the ensemble by a bound"},
		{name: "named by a step", config: declared + "version_policy { all { } }\n" + demand, step: "1", measured: true, want: tune.Version{Number: 2, Precision: precision.INT8}, refused: "model 'e' cannot be loaded"},
		{name: "of another model", config: declared + demand, third: true, measured: true},
		{name: "none", config: "version_policy { specific { versions: 1 } }\n", measured: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			step := "-1"
			if tt.step != "" {
				step = tt.step
			}
			files := map[string]string{
				"m/config.pbtxt": `backend: "onnxruntime"` + ports + tt.config, "request.json": request + "}", "e/1/.keep": "",
				"e/config.pbtxt": `platform: "ensemble"` + ports + `ensemble_scheduling { step [ { model_name: "m" model_version: ` + step +
					` input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } ] }`,
				"m/1/model.onnx": model(t, "mlp"), "m/2/model.onnx": model(t, "mlp_int8"),
			}
			if tt.third {
				files["m/3/model.onnx"] = model(t, "mlp")
			}
			if tt.golden != "" {
				files["e/golden/a.json"] = tt.golden
			}
			s := tune.Settings{
				Root: written(t, files), Ensemble: "e",
				Components:    tutti.Components{Backends: func(*steps.Registry) []backends.Factory { return []backends.Factory{onnx.NewFactory()} }},
				BackendConfig: options.BackendConfig{"onnxruntime": {"library-path": preparedtest.Runtime(t, "onnxruntime")}},
			}
			s.Data = []string{filepath.Join(s.Root, "request.json")}
			if tt.measured {
				measure := &quantize.Settings{Dir: filepath.Join(s.Root, "m"), Data: s.Data, Reference: 1, Settings: lab.Settings{Components: s.Components, BackendConfig: s.BackendConfig}}
				if _, err := quantize.Measure(t.Context(), measure, 2); err != nil {
					t.Fatal(err)
				}
			}
			n, err := tune.Variants(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			m, text := &n.Models[0], n.VersionsText()
			if tt.want == (tune.Version{}) {
				offer := fmt.Sprintf("tutti quantize %s --to int8 --ensemble e --fidelity cosine=0.99 --write", filepath.Join(s.Root, "m"))
				if len(m.Versions) != 0 || (m.Offer == offer) != precision.Machine().ExactInt8() || strings.Contains(text, offer) != (m.Offer == offer) {
					t.Errorf("%+v, %q, want the offer %s\n%s", m.Versions, m.Offer, offer, text)
				}
				return
			}
			if len(m.Versions) != 1 || m.Offer != "" || m.Versions[0].Version != tt.want || !strings.Contains(m.Versions[0].Refused, tt.refused) || (m.Versions[0].Refused == "") != (tt.refused == "") {
				t.Fatalf("%+v, %q, want %s, refused because of '%s'", m.Versions, m.Offer, tt.want, tt.refused)
			}
			_, costs := m.Costs[tune.Execution{Version: tt.want, Threads: 1}]
			if costs != (tt.refused == "") || strings.Contains(text, "m: "+tt.want.String()+" was tried, too.\n") != costs {
				t.Errorf("it is measured: %v\n%s", costs, text)
			}
		})
	}
}

// model returns a file of the ONNX backend's tests.
func model(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../backends/onnx/testdata/" + name + ".onnx")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// written writes files and returns their folder.
func written(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
