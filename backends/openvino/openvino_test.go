//go:build cgo

package openvino_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/openvino"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{Log: slog.New(slog.DiscardHandler), Config: map[string]string{"library-path": openvino.LibraryPath(tb)}}
}

// settings returns the settings of a model in testdata.
func settings(tb testing.TB, file, pbtxt string) backends.Settings {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.Name = file
	if cfg.GetDefaultModelFilename() == "" {
		cfg.DefaultModelFilename = file + ".xml"
	}
	return backends.Settings{
		Model: file, Version: 3, Dir: "testdata", ModelDir: tb.TempDir(), Config: cfg, Instances: 1,
		Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// load loads a model, which the test closes.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	b, err := openvino.NewFactory().New(options(tb))
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), s)
	tb.Cleanup(func() {
		if m != nil {
			_ = m.Close()
		}
		_ = b.Close()
	})
	return m, err
}

func fp32(dims []int64, elems ...float32) backendtest.Value {
	return backendtest.Of(tensor.FP32, dims, elems...)
}

// TestContract runs the contract suite for backends.
func TestContract(t *testing.T) {
	t.Parallel()
	x := make([]float32, 32)
	y := make([]float32, 32)
	for i := range x {
		x[i] = float32(i * i % 7)
		if y[i] = x[i]; i%16 > 0 {
			y[i] = max(0, x[i]-x[i-1])
		}
	}
	backendtest.Run(t, openvino.NewFactory(), options(t),
		backendtest.Fixture{
			Name: "batch", Rows: 2,
			Settings: settings(t, "mlp", `max_batch_size: 8
				input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 16 }`),
			In:   []backendtest.Value{fp32([]int64{2, 16}, x...)},
			Want: []backendtest.Value{fp32([]int64{2, 16}, y...)},
			Bad: []backendtest.Bad{
				{Name: "dtype", In: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{2, 16}, make([]int32, 32)...)}, Code: status.InvalidArg},
				{Name: "shape", In: []backendtest.Value{fp32([]int64{2, 8}, x[:16]...)}, Code: status.InvalidArg},
				{Name: "rank", In: []backendtest.Value{fp32([]int64{32}, x...)}, Code: status.InvalidArg},
				{Name: "short", In: []backendtest.Value{fp32([]int64{2, 16}, x[:31]...)}, Code: status.InvalidArg},
				{Name: "absent", In: []backendtest.Value{{}}, Code: status.InvalidArg},
				{Name: "count", In: nil, Code: status.Internal},
			},
		},
		backendtest.Fixture{
			Name: "runtime memory", Settings: settings(t, "nonzero", `input { name: "x" data_type: TYPE_FP32 dims: -1 }
				output { name: "y" data_type: TYPE_INT64 dims: [1, -1] }`),
			In:   []backendtest.Value{fp32([]int64{4}, 0, 1, 0, 2)},
			Want: []backendtest.Value{backendtest.Of(tensor.Int64, []int64{1, 2}, int64(1), 3)},
		},
		backendtest.Fixture{
			Name: "strings", Rows: 3, Settings: settings(t, "strings", "max_batch_size: 4"),
			In:   []backendtest.Value{backendtest.Strings([]int64{3, 1}, "a", "", "longer than sixteen bytes")},
			Want: []backendtest.Value{backendtest.Strings([]int64{3, 1}, "a", "", "longer than sixteen bytes")},
			Bad: []backendtest.Bad{
				{Name: "zero byte", In: []backendtest.Value{backendtest.Strings([]int64{1, 1}, "a\x00b")}, Code: status.InvalidArg},
				{Name: "cut", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1, 1}, Data: []byte{5, 0, 0, 0, 'a'}}}, Code: status.InvalidArg},
				{Name: "too few", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{2, 1}, Data: []byte{1, 0, 0, 0, 'a'}}}, Code: status.InvalidArg},
				{Name: "far too few", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1 << 50, 1}, Data: []byte{1, 0, 0, 0, 'a'}}}, Code: status.InvalidArg},
				{Name: "too many", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1, 1}, Data: []byte{0, 0, 0, 0, 0, 0, 0, 0}}}, Code: status.InvalidArg},
			},
		},
		backendtest.Fixture{
			Name: "padded", Rows: 2, Settings: settings(t, "four", `max_batch_size: 4
				input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }
				parameters { key: "SKIP_OV_DYNAMIC_BATCHSIZE" value { string_value: "YES" } }
				parameters { key: "ENABLE_BATCH_PADDING" value { string_value: "YES" } }`),
			In:   []backendtest.Value{fp32([]int64{2, 3}, 1, 2, 3, 4, 5, 6)},
			Want: []backendtest.Value{fp32([]int64{2, 3}, 2, 4, 6, 8, 10, 12)},
			Bad:  []backendtest.Bad{{Name: "too many", In: []backendtest.Value{fp32([]int64{5, 3}, make([]float32, 15)...)}, Code: status.InvalidArg}},
		},
	)
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	mlp := func(in, out string) string {
		return `max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 16 ` + in + ` } output { name: "y" data_type: TYPE_FP32 dims: 16 ` + out + ` }`
	}
	param := func(key, value string) string {
		return `parameters { key: "` + key + `" value { string_value: "` + value + `" } }`
	}
	for name, tc := range map[string]struct {
		model, pbtxt, want string
		code               status.Code
	}{
		"datatype of the file": {"int4", "", "unsupported datatype i4 of input 'x'", status.Unsupported},
		"input name": {
			"mlp", strings.Replace(mlp("", ""), `"x"`, `"X"`, 1),
			"unable to load model 'mlp', unexpected inference input 'X', allowed inputs are: x", status.InvalidArg,
		},
		"output name": {
			"mlp", strings.Replace(mlp("", ""), `"y"`, `"Y"`, 1),
			"unable to load model 'mlp', unexpected inference output 'Y', allowed outputs are: y", status.InvalidArg,
		},
		"input count": {
			"mlp", mlp("", "") + `input { name: "z" data_type: TYPE_FP32 dims: 1 }`,
			"unable to load model 'mlp', configuration expects 2 inputs, model provides 1", status.InvalidArg,
		},
		"datatype": {
			"mlp", strings.Replace(mlp("", ""), "TYPE_FP32", "TYPE_INT64", 1),
			"unable to load model 'mlp', configuration expects datatype TYPE_INT64 for input 'x', model provides TYPE_FP32", status.InvalidArg,
		},
		"shape": {
			"mlp", strings.Replace(mlp("", ""), "dims: 16", "dims: 8", 1),
			"model 'mlp', tensor 'x': the model expects 2 dimensions (shape [-1,16]) but the model configuration specifies 2 dimensions " +
				"(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,8])",
			status.InvalidArg,
		},
		"rank": {
			"fixed", `input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: [2, 3] }`,
			"model 'fixed', tensor 'x': the model expects 2 dimensions (shape [2,3]) but the model configuration specifies 1 dimensions (shape [3])",
			status.InvalidArg,
		},
		"no batching": {
			"scalar", `max_batch_size: 4 input { name: "a" data_type: TYPE_FP32 dims: 1 } input { name: "b" data_type: TYPE_FP32 dims: 1 }
				output { name: "y" data_type: TYPE_FP32 dims: 1 }`,
			"for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1", status.InvalidArg,
		},
		"no batching, completed": {
			"fixed", "max_batch_size: 4",
			"autofill failed for model 'fixed': model does not support batching while non-zero max_batch_size is specified", status.InvalidArg,
		},
		"batch above the file's": {
			"four", `max_batch_size: 5 input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }` +
				param("SKIP_OV_DYNAMIC_BATCHSIZE", "YES"),
			"first dimension must be -1 or at least max_batch_size 5", status.InvalidArg,
		},
		"optional": {"mlp", mlp("optional: true", ""), "input 'x' is optional, but every input of the model is needed", status.Unsupported},
		"unranked": {
			"unranked", "", "leaves the number of dimensions of input 'x' open, expected them in the configuration", status.InvalidArg,
		},
		"threads":      {"mlp", param("INFERENCE_NUM_THREADS", "many"), "unexpected value 'many' of parameter 'INFERENCE_NUM_THREADS'", status.InvalidArg},
		"switch":       {"mlp", param("ENABLE_BATCH_PADDING", "perhaps"), "unexpected value 'perhaps' of parameter 'ENABLE_BATCH_PADDING'", status.InvalidArg},
		"hint":         {"mlp", param("PERFORMANCE_HINT", "WARP"), "unable to load model 'mlp' from 'testdata/mlp.xml': compiling for CPU", status.Internal},
		"empty":        {"mlp", param("PERFORMANCE_HINT", ""), "parameter 'PERFORMANCE_HINT' has no string_value", status.InvalidArg},
		"device":       {"mlp", param("TARGET_DEVICE", "TOASTER"), "compiling for TOASTER: openvino error", status.Internal},
		"extension":    {"mlp", param("CPU_EXTENSION_PATH", "none.so"), "none.so'", status.Internal},
		"file name":    {"mlp", `default_model_filename: "other.xml"`, "unable to find 'testdata/other.xml' for model 'mlp'", status.NotFound},
		"folder":       {"mlp", `default_model_filename: "."`, "unable to find 'testdata/model.xml' for model 'mlp'", status.NotFound},
		"other format": {"mlp", `default_model_filename: "make.py"`, "unable to load model 'mlp' from 'testdata/make.py': openvino error", status.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, settings(t, tc.model, tc.pbtxt))
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code {
				t.Errorf("Load = %s error %v\nwant %s with %q", status.CodeOf(err), err, tc.code, tc.want)
			}
		})
	}
}

// TestDamaged checks the errors for files that are truncated, empty or of another format.
func TestDamaged(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "mlp.xml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"empty":             {"model.xml": ""},
		"text":              {"model.xml": "not a model"},
		"other markup":      {"model.xml": "<html></html>"},
		"cut":               {"model.xml": string(text[:len(text)/2])},
		"unknown operation": {"model.xml": strings.ReplaceAll(string(text), `type="MatMul"`, `type="MatMil"`), "model.bin": strings.Repeat("x", 1024)},
		"no weights":        {"model.xml": string(text)},
		"cut weights":       {"model.xml": string(text), "model.bin": strings.Repeat("x", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings(t, "m", `default_model_filename: "model.xml"`)
			s.Dir = t.TempDir()
			for file, data := range files {
				if err := os.WriteFile(filepath.Join(s.Dir, file), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := load(t, s)
			if err == nil || !strings.Contains(err.Error(), "unable to load model 'm' from '"+filepath.Join(s.Dir, "model.xml")+"': ") {
				t.Errorf("Load = %v, want an error with the model and its file", err)
			}
			t.Log(err)
		})
	}
}

func TestLibraryMissing(t *testing.T) {
	t.Parallel()
	_, err := openvino.NewFactory().New(backends.Options{Config: map[string]string{"library-path": filepath.Join(t.TempDir(), "none.so")}})
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "tutti runtime fetch openvino") {
		t.Errorf("New = %v, want it unavailable with the command", err)
	}
}
