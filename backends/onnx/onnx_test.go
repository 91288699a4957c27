//go:build cgo

package onnx_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{Log: slog.New(slog.DiscardHandler), Config: map[string]string{"library-path": onnx.LibraryPath(tb)}}
}

// modelFolder creates a version folder with one of the models in testdata.
func modelFolder(tb testing.TB, file string) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file+".onnx"))
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.onnx"), data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func settings(tb testing.TB, file, pbtxt string) backends.Settings {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.Name = file
	dir := modelFolder(tb, file)
	return backends.Settings{
		Model: file, Version: 3, Dir: dir, ModelDir: filepath.Dir(dir), Config: cfg, Instances: 1,
		Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// load loads a model, which the test closes.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	b, err := onnx.NewFactory().New(options(tb))
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
	backendtest.Run(t, onnx.NewFactory(), options(t),
		backendtest.Fixture{
			Name: "batch", Rows: 2,
			Settings: settings(t, "mlp", `max_batch_size: 8
				input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 16 }`),
			In:   []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 16}, x...)},
			Want: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 16}, y...)},
			Bad: []backendtest.Bad{
				{Name: "dtype", In: []backendtest.Value{backendtest.Of(tensor.Int32, []int64{2, 16}, make([]int32, 32)...)}, Code: status.InvalidArg},
				{Name: "shape", In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 8}, x[:16]...)}, Code: status.Internal},
				{Name: "rank", In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{32}, x...)}, Code: status.Internal},
				{Name: "short", In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 16}, x[:31]...)}, Code: status.Internal},
				{Name: "absent", In: []backendtest.Value{{}}},
				{Name: "count", In: nil, Code: status.Internal},
			},
		},
		backendtest.Fixture{
			Name: "strings", Rows: 2, Settings: settings(t, "strings", "max_batch_size: 4"),
			In: []backendtest.Value{backendtest.Strings([]int64{2, 2}, "", "a\x00b", "żółw", "\xff\xfe")},
			Want: []backendtest.Value{
				backendtest.Strings([]int64{2, 2}, "", "a\x00b", "żółw", "\xff\xfe"),
				backendtest.Strings([]int64{2, 2}, "", "a\x00ba\x00b", "żółwżółw", "\xff\xfe\xff\xfe"),
			},
			Bad: []backendtest.Bad{
				{Name: "too few", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{2, 2}, Data: []byte("\x01\x00\x00\x00a")}}, Code: status.Internal},
				{Name: "too many", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1, 1}, Data: make([]byte, 8)}}, Code: status.Internal},
				{Name: "cut short", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1, 2}, Data: []byte("\x09\x00\x00\x00aaaa")}}, Code: status.Internal},
				{Name: "none", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1 << 40, 1 << 40}}}, Code: status.Internal},
			},
		},
		backendtest.Fixture{
			Name: "runtime memory", Settings: settings(t, "nonzero", ""),
			In:   []backendtest.Value{backendtest.Of(tensor.FP32, []int64{4}, float32(0), 1, 0, 2)},
			Want: []backendtest.Value{backendtest.Of(tensor.Int64, []int64{1, 2}, int64(1), 3)},
		},
		backendtest.Fixture{
			Name: "passed through", Settings: settings(t, "through", ""),
			In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2}, float32(1), 2)},
			Want: []backendtest.Value{
				backendtest.Of(tensor.FP32, []int64{2}, float32(-1), -2),
				backendtest.Of(tensor.FP32, []int64{2}, float32(1), 2),
				backendtest.Of(tensor.FP32, []int64{3}, float32(1), 2, 3),
			},
		},
		backendtest.Fixture{
			Name: "index", Rows: 2, Settings: settings(t, "embed", "max_batch_size: 2"),
			In:   []backendtest.Value{backendtest.Of(tensor.Int64, []int64{2, 1}, int64(1), 9)},
			Want: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 1, 4}, float32(4), 5, 6, 7, 36, 37, 38, 39)},
			Bad:  []backendtest.Bad{{Name: "outside", In: []backendtest.Value{backendtest.Of(tensor.Int64, []int64{2, 1}, int64(1), 10)}, Code: status.Internal}},
		},
	)
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	mlp := func(in, out string) string {
		return `max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 16 ` + in + ` } output { name: "y" data_type: TYPE_FP32 dims: 16 ` + out + ` }`
	}
	for name, tc := range map[string]struct {
		model, pbtxt, want string
		code               status.Code
	}{
		"complex":          {"complex", "", "tensor(complex64) is not currently registered or supported", status.Internal},
		"future":           {"future", "", "model.onnx': onnx runtime error", status.Internal},
		"no operator":      {"custom", "", "tutti.test:Twice", status.Internal},
		"no external data": {"far", "", "far.bin", status.Internal},
		"sequence":         {"sequence", "", "unsupported type of output 'y': expected a tensor, found a sequence", status.Unsupported},
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
			"fixed", `max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }`,
			"for the model to support batching the shape should have at least 1 dimension and the first dimension must be -1", status.InvalidArg,
		},
		"no batching, completed": {
			"fixed", "max_batch_size: 4",
			"autofill failed for model 'fixed': model does not support batching while non-zero max_batch_size is specified", status.InvalidArg,
		},
		"reshape": {
			"mlp", mlp("reshape { shape: [4, 5] }", ""), "model 'mlp', tensor 'x': the model expects 2 dimensions", status.InvalidArg,
		},
		"ragged": {
			"mlp", strings.Replace(mlp("", ""), "dims: 16", "dims: 16 allow_ragged_batch: true", 1),
			"model 'mlp', tensor 'x': the ragged input has shape [-1] over the batch, but shape expected by the model is [-1,16]", status.InvalidArg,
		},
		"batch input": {
			"ragged", `max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
				batch_input { kind: BATCH_ITEM_SHAPE target_name: "ends" data_type: TYPE_INT32 source_input: "x" }
				batch_input { target_name: "longest" data_type: TYPE_FP32 source_input: "x" }`,
			"model 'ragged', tensor 'ends': the batch input has shape [-1,-1] over the batch, but shape expected by the model is [-1]", status.InvalidArg,
		},
		"no such batch input": {
			"mlp", mlp("", "") + `batch_input { target_name: "n" data_type: TYPE_INT32 source_input: "x" }`,
			"unable to load model 'mlp', unexpected inference input 'n', allowed inputs are: x", status.InvalidArg,
		},
		"threads": {
			"mlp", `parameters { key: "intra_op_thread_count" value { string_value: "many" } }`,
			"unexpected value 'many' of parameter 'intra_op_thread_count'", status.InvalidArg,
		},
		"session entry": {
			"mlp", `parameters { key: "session.intra_op_thread_affinities" value { string_value: "x" } }`,
			"unable to load model 'mlp'", status.Internal,
		},
		"operators": {
			"mlp", `model_operations { op_library_filename: "ops.so" }`,
			"operator library 'ops.so': expected a file at '", status.NotFound,
		},
		"file name": {"mlp", `default_model_filename: "other.onnx"`, "other.onnx' for model 'mlp'", status.NotFound},
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

// TestEnvironments opens and closes backends concurrently: the process has one environment of the runtime, which
// one backend may be releasing while another acquires it.
func TestEnvironments(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				b, err := onnx.NewFactory().New(options(t))
				if err != nil {
					t.Error(err)
					return
				}
				m, err := b.Load(t.Context(), settings(t, "mlp", ""))
				if err != nil {
					t.Error(err)
				} else {
					_ = m.Close()
				}
				_ = b.Close()
			}
		})
	}
	all.Wait()
}
