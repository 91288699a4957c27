package fil_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/fil"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

const features = 8

func rows(n int, x ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, []int64{int64(n), features}, append(x, make([]float32, n*features-len(x))...)...)
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	in := rows(3, 1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3)
	bad := []backendtest.Bad{
		{Name: "dtype", In: []backendtest.Value{backendtest.Of(tensor.FP64, []int64{1, features}, make([]float64, features)...)}, Code: status.InvalidArg},
		{Name: "features", In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{1, 7}, make([]float32, 7)...)}, Code: status.InvalidArg},
		{Name: "rank", In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{features}, make([]float32, features)...)}, Code: status.InvalidArg},
		{Name: "short", In: []backendtest.Value{{DType: tensor.FP32, Dims: []int64{2, features}, Data: make([]byte, 4*features)}}, Code: status.InvalidArg},
		{Name: "absent", In: []backendtest.Value{{}}, Code: status.InvalidArg},
		{Name: "count", In: nil, Code: status.Internal},
	}
	backendtest.Run(t, fil.NewFactory(), backends.Options{},
		backendtest.Fixture{Name: "xgboost", Rows: 3, Settings: settings(t, "xgb_binary_logistic.json", ""), In: []backendtest.Value{in}, Bad: bad},
		backendtest.Fixture{Name: "lightgbm", Rows: 3, Settings: settings(t, "lgb_multiclass.txt", param("predict_proba", "true")), In: []backendtest.Value{in}, Bad: bad},
		backendtest.Fixture{Name: "treelite", Rows: 3, Settings: settings(t, "skl_forest.tl", ""), In: []backendtest.Value{in}, Bad: bad},
	)
}

// TestOutputs checks the four forms of the output against each other.
func TestOutputs(t *testing.T) {
	t.Parallel()
	in := rows(5, 1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, 0, 0, 0, 0, 0, 2, -2, 1)
	of := func(file, more string) [][]float32 {
		t.Helper()
		m, err := load(t, settings(t, file, more))
		if err != nil {
			t.Fatal(err)
		}
		out, err := predict(t, m, in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	proba, yes := param("predict_proba", "true"), param("is_classifier", "true")
	one := of("xgb_binary_logistic.json", yes+proba)
	both := of("xgb_binary_logistic.json", proba+` output { name: "output__0" data_type: TYPE_FP32 dims: [ 2 ] }`)
	high := of("xgb_binary_logistic.json", param("output_class", "TRUE")+param("threshold", "0.9"))
	plain := of("xgb_binary_logistic.json", "")
	raw := of("xgb_binary_logistic.json", param("is_classifier", "false")+proba)
	three, class := of("xgb_multi_softprob.ubj", proba), of("xgb_multi_softprob.ubj", "")
	for i := range one {
		p := one[i][0]
		if both[i][0] != 1-p || both[i][1] != p || raw[i][0] != p {
			t.Errorf("row %d: both classes %v and raw %v, want those of %v", i, both[i], raw[i], p)
		}
		for _, c := range []struct{ got, threshold float32 }{{high[i][0], 0.9}, {plain[i][0], 0.5}} {
			if (c.got == 1) != (p > c.threshold) || c.got != 0 && c.got != 1 {
				t.Errorf("row %d: class %v above %v, want that of %v", i, c.got, c.threshold, p)
			}
		}
		if three[i][int(class[i][0])] != slices.Max(three[i]) {
			t.Errorf("row %d: class %v, want that of %v", i, class[i], three[i])
		}
	}
}

// TestLoadRefuses checks the errors of configurations that cannot be served.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	input := func(dims string) string { return ` input { name: "input__0" data_type: TYPE_FP32 dims: ` + dims + ` }` }
	const model = "xgb_binary_logistic.json"
	tests := map[string]struct{ file, more, want string }{
		"type":           {model, param("model_type", "xgbost"), "unexpected value 'xgbost' of parameter 'model_type': expected one of lightgbm, treelite_checkpoint, xgboost, xgboost_json, xgboost_ubj. Did you mean \"xgboost\"?"},
		"classifier":     {model, param("is_classifier", "maybe"), "unexpected value 'maybe' of parameter 'is_classifier': expected true or false"},
		"threshold":      {model, param("threshold", "half"), "unexpected value 'half' of parameter 'threshold': expected a number"},
		"nan threshold":  {model, param("threshold", "nan"), "unexpected value 'nan'"},
		"algo":           {model, param("algo", "FAST"), "unexpected value 'FAST' of parameter 'algo': expected one of ALGO_AUTO, NAIVE, TREE_REORG, BATCH_TREE_REORG"},
		"storage":        {model, param("storage_type", "X"), "parameter 'storage_type'"},
		"layout":         {model, param("layout", "X"), "parameter 'layout'"},
		"blocks":         {model, param("blocks_per_sm", "-1"), "parameter 'blocks_per_sm'"},
		"chunk":          {model, param("chunk_size", "3"), "parameter 'chunk_size': expected a power of 2 from 1 to 32"},
		"threads":        {model, param("cpu_nthread", "x"), "parameter 'cpu_nthread'"},
		"transfer":       {model, param("transfer_threshold", "x"), "parameter 'transfer_threshold'"},
		"experimental":   {model, param("use_experimental_optimizations", "x"), "parameter 'use_experimental_optimizations'"},
		"features":       {model, input("9"), "dimension 2 is 8 in the model and 9 in the configuration"},
		"input name":     {model, ` input { name: "x" data_type: TYPE_FP32 dims: 8 }`, "unexpected inference input 'x', allowed inputs are: input__0"},
		"input type":     {model, ` input { name: "input__0" data_type: TYPE_FP64 dims: 8 }`, "configuration expects datatype TYPE_FP64"},
		"optional":       {model, ` input { name: "input__0" data_type: TYPE_FP32 dims: 8 optional: true }`, "input 'input__0' is optional"},
		"columns":        {model, ` output { name: "output__0" data_type: TYPE_FP32 dims: 2 }`, "dimension 2 is 1 in the model and 2 in the configuration"},
		"shap columns":   {model, ` output { name: "treeshap_output" data_type: TYPE_FP32 dims: 8 }`, "dimension 2 is 9 in the model and 8 in the configuration"},
		"targets":        {"xgb_targets.json", param("is_classifier", "true"), "is true, but the model is one of regression with 3 targets"},
		"missing":        {"none.json", "", "unable to find 'testdata/none.json'"},
		"linear":         {"refused_linear.txt", "", "it has a linear model in each leaf (linear_tree)"},
		"json as ubj":    {model, param("model_type", "xgboost_ubj"), "expected XGBoost's UBJSON, found"},
		"json as binary": {model, param("model_type", "xgboost"), "this is JSON or UBJSON, for which the parameter 'model_type' is xgboost_json or xgboost_ubj"},
		"json as text":   {model, param("model_type", "lightgbm"), `expected "tree" of a LightGBM model`},
		"json as tl":     {model, param("model_type", "treelite_checkpoint"), "expected a checkpoint of version 4 or 3.9"},
		"text as json":   {"lgb_binary.txt", param("model_type", "xgboost_json"), "expected '{'"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := load(t, settings(t, tt.file, tt.more)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load = %v, want %q", err, tt.want)
			}
		})
	}
}

// TestTruncated loads each model of testdata cut at many places. Each must be refused, not crash.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		for _, file := range g.Files {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				data, err := os.ReadFile(filepath.Join("testdata", file))
				if err != nil {
					t.Fatal(err)
				}
				if kind := filepath.Ext(file); kind == ".txt" {
					data = data[:strings.Index(string(data), "end of trees")]
				} else if kind == ".model" {
					data = data[:len(data)/2] // attributes that are not read follow the trees
				}
				s := settings(t, file, "")
				s.Dir = t.TempDir()
				for cut := 0; cut < len(data); cut += len(data)/37 + 1 {
					if err := os.WriteFile(filepath.Join(s.Dir, file), data[:cut], 0o600); err != nil {
						t.Fatal(err)
					}
					if _, err := load(t, s); err == nil {
						t.Errorf("cut at byte %d of %d: loaded", cut, len(data))
					}
				}
			})
		}
	}
}

// TestLargeBatch checks that a batch that is split over threads has the predictions of its rows.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	const n = 40_000
	s := settings(t, "xgb_parallel_tree.json", param("predict_proba", "true")+param("cpu_nthread", "3"))
	s.Config.MaxBatchSize = n
	m, err := load(t, s)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, n*features)
	for i := range x {
		x[i] = float32(i*7919%1000)/250 - 2
	}
	got, err := predict(t, m, rows(n, x...))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1, 13_333, 13_334, 26_667, n - 1} {
		one, err := predict(t, m, rows(1, x[i*features:][:features]...))
		if err != nil || !slices.Equal(got[i], one[0]) {
			t.Errorf("row %d is %v in the batch, alone %v, %v", i, got[i], one, err)
		}
	}
}

// TestCancelled checks that a batch ends when it is cancelled before its execution, and between its parts, on one thread and on several.
func TestCancelled(t *testing.T) {
	t.Parallel()
	const n = 40_000
	for _, tt := range []struct {
		threads string
		checks  int32 // that pass
	}{{"1", 0}, {"1", 1}, {"3", 0}, {"3", 1}, {"3", 3}} {
		s := settings(t, "xgb_parallel_tree.json", param("cpu_nthread", tt.threads))
		s.Config.MaxBatchSize = n
		m, err := load(t, s)
		if err != nil {
			t.Fatal(err)
		}
		inst, err := m.NewInstance(t.Context(), tensor.Place{})
		if err != nil {
			t.Fatal(err)
		}
		a := tensortest.NewChecked(t, nil)
		b := &backends.Batch{Rows: n, In: []tensor.Tensor{rows(n).Tensor(t, a)}, Out: make([]tensor.Tensor, 1), Allocator: a}
		ctx := &cancelled{Context: t.Context()}
		ctx.left.Store(tt.checks)
		if err := inst.Execute(ctx, b); status.CodeOf(err) != status.Cancelled {
			t.Errorf("Execute on %s threads of a batch that is cancelled after %d checks = %v", tt.threads, tt.checks, err)
		}
		tensor.ReleaseAll(b.In)
		tensor.ReleaseAll(b.Out)
	}
}

// cancelled is a context that is cancelled after a number of calls of Err.
type cancelled struct {
	context.Context
	left atomic.Int32
}

func (c *cancelled) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}
