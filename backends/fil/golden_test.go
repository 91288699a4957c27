package fil_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/fil"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// golden is a case of testdata/expected-*.json: files of one model, rows, and the framework's own predictions.
type golden struct {
	Name        string
	Files       []string
	Rows        [][]*float64
	Predictions [][]float64
	// Classes is set when the predictions are numbers of classes.
	Classes bool
	// Shapley has, for some cases, the Shapley values of all rows.
	Shapley []float64
}

// goldens returns the cases of all frameworks.
func goldens(t *testing.T) (all []golden) {
	t.Helper()
	lists, err := filepath.Glob("testdata/expected-*.json")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no expected predictions: %v", err)
	}
	for _, list := range lists {
		var file struct{ Cases []golden }
		data, err := os.ReadFile(list)
		if err == nil {
			err = json.Unmarshal(data, &file)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file.Cases...)
	}
	return all
}

// input returns the rows as a tensor, with NaN for missing values.
func (g *golden) input() backendtest.Value {
	var x []float32
	for _, row := range g.Rows {
		for _, v := range row {
			if v == nil {
				x = append(x, float32(math.NaN()))
			} else {
				x = append(x, float32(*v))
			}
		}
	}
	return backendtest.Of(tensor.FP32, []int64{int64(len(g.Rows)), int64(len(g.Rows[0]))}, x...)
}

// types are the values of model_type by extension.
var types = map[string]string{".json": "xgboost_json", ".ubj": "xgboost_ubj", ".model": "xgboost", ".txt": "lightgbm", ".tl": "treelite_checkpoint"}

// settings returns the settings of a file in testdata. more is appended to its configuration.
func settings(tb testing.TB, file, more string) backends.Settings {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	text := fmt.Sprintf("name: %q backend: \"fil\" max_batch_size: 64 default_model_filename: %q %s", file, file, more)
	if kind := types[filepath.Ext(file)]; !strings.Contains(more, "model_type") {
		text += param("model_type", kind)
	}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		tb.Fatal(err)
	}
	return backends.Settings{Model: file, Version: 1, Dir: "testdata", ModelDir: tb.TempDir(), Config: cfg, Instances: 1, Alloc: tensor.NewPool()}
}

// param returns a parameter of config.pbtxt.
func param(key, value string) string {
	return fmt.Sprintf(" parameters { key: %q value { string_value: %q } }", key, value)
}

// load loads a model, which the test closes.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	b, err := fil.NewFactory().New(backends.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), s)
	if err == nil {
		tb.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// predict executes a batch and returns the rows of the output.
func predict(t *testing.T, m backends.Model, in backendtest.Value) (out [][]float32, err error) {
	t.Helper()
	all, err := execute(t, m, in)
	if err != nil {
		return nil, err
	}
	for rows, width := int(in.Dims[0]), len(all[0])/int(in.Dims[0]); len(out) < rows; {
		out = append(out, all[0][len(out)*width:][:width])
	}
	return out, nil
}

// execute executes a batch and returns the elements of its outputs.
func execute(t *testing.T, m backends.Model, in backendtest.Value) (out [][]float32, err error) {
	t.Helper()
	a := tensortest.NewChecked(t, nil)
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	b := &backends.Batch{
		Requests: make([]backends.Request, 1), Rows: int(in.Dims[0]), In: []tensor.Tensor{in.Tensor(t, a)},
		Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: a,
	}
	defer tensor.ReleaseAll(b.In)
	defer tensor.ReleaseAll(b.Out)
	if err := x.Execute(t.Context(), b); err != nil {
		return nil, err
	}
	for i := range b.Out {
		out = append(out, slices.Clone(tensor.Slice[float32](&b.Out[i])))
	}
	return out, nil
}

// near reports whether a prediction is the framework's within 1e-6 of its size.
func near(got float32, want float64) bool {
	if math.IsInf(float64(got), 0) || math.IsNaN(want) {
		return float64(got) == float64(float32(want)) || math.IsNaN(want) && got != got
	}
	return math.Abs(float64(got)-want) <= 1e-6*max(1, math.Abs(want))
}

// TestGoldens compares the predictions of every model of testdata, in every format, with the framework's own.
//
// shows: backends.fil
func TestGoldens(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		for _, file := range g.Files {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				more := param("is_classifier", "false")
				if g.Classes {
					more = param("is_classifier", "true")
				}
				m, err := load(t, settings(t, file, more))
				if err != nil {
					t.Fatal(err)
				}
				got, err := predict(t, m, g.input())
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range g.Predictions {
					if len(want) != len(got[i]) {
						t.Fatalf("row %d has %d predictions, want %d", i, len(got[i]), len(want))
					}
					for k := range want {
						if !near(got[i][k], want[k]) {
							t.Errorf("row %d, prediction %d is %v, want %v", i, k, got[i][k], want[k])
						}
					}
				}
			})
		}
	}
}

// TestShapley compares Shapley values with those of the framework. XGBoost computes them in FP32.
func TestShapley(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		for _, file := range g.Files {
			if len(g.Shapley) == 0 {
				continue
			}
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				width, outputs := len(g.Shapley)/len(g.Rows), len(g.Predictions[0])
				more := fmt.Sprintf(` output { name: "treeshap_output" data_type: TYPE_FP32 dims: %d } output { name: "output__0" data_type: TYPE_FP32 dims: %d }`, width, outputs)
				m, err := load(t, settings(t, file, more+param("is_classifier", "false")))
				if err != nil {
					t.Fatal(err)
				}
				got, err := execute(t, m, g.input())
				if err != nil {
					t.Fatal(err)
				}
				tolerance := 1e-6
				if strings.HasPrefix(file, "xgb") {
					tolerance = 2e-6
				}
				for i, want := range g.Shapley {
					if v := float64(got[0][i]); math.Abs(v-want) > tolerance*max(1, math.Abs(want)) {
						t.Errorf("row %d, value %d is %v, want %v", i/width, i%width, v, want)
					}
				}
				for i, want := range g.Predictions[0] {
					if !near(got[1][i], want) {
						t.Errorf("prediction %d is %v, want %v", i, got[1][i], want)
					}
				}
			})
		}
	}
}
