//go:build cgo

package openvino_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/openvino"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func TestSignature(t *testing.T) {
	t.Parallel()
	port := func(name string, d tensor.DType, dims ...int64) []config.Port {
		return []config.Port{{Name: name, DType: d, Dims: tensor.Of(dims...)}}
	}
	for name, tc := range map[string]struct {
		model, pbtxt string
		want         config.Signature
	}{
		"completed, batching": {"mlp", "", config.Signature{
			MaxBatch: 4, Inputs: port("x", tensor.FP32, 16), Outputs: port("y", tensor.FP32, 16),
		}},
		"inputs configured": {"mlp", `max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 16 }`, config.Signature{
			MaxBatch: 2, Inputs: port("x", tensor.FP32, 16), Outputs: port("y", tensor.FP32, 16),
		}},
		"completed, fixed":   {"fixed", "", config.Signature{Inputs: port("x", tensor.FP32, 2, 3), Outputs: port("y", tensor.FP32, 2, 3)}},
		"completed, strings": {"words", "", config.Signature{Inputs: port("x", tensor.Bytes, 3, 1), Outputs: port("x", tensor.Bytes, 3, 1)}},
		"completed, scalar": {"scalar", "", config.Signature{
			Inputs: append(port("a", tensor.FP32, 1), port("b", tensor.FP32, 1)...), Outputs: port("y", tensor.FP32, 1),
		}},
		"several names and none": {"names", `max_batch_size: 2 input { name: "x:0" data_type: TYPE_FP32 dims: 2 }`, config.Signature{
			MaxBatch: 2, Inputs: port("x:0", tensor.FP32, 2), Outputs: port("unnamed", tensor.FP32, 2),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tc.model, tc.pbtxt))
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Model, tc.want.Version = tc.model, 3
			if diff := cmp.Diff(&tc.want, m.Signature()); diff != "" {
				t.Errorf("signature (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExecute(t *testing.T) {
	t.Parallel()
	const io = `input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 } max_batch_size: 4 `
	for name, tc := range map[string]struct {
		model, pbtxt string
		rows         int
		in, want     []backendtest.Value
	}{
		"rank 0":    {"scalar", "", 1, []backendtest.Value{fp32([]int64{1}, 2), fp32([]int64{1}, 3)}, []backendtest.Value{fp32([]int64{1}, 5)}},
		"zero rows": {"mlp", "", 0, []backendtest.Value{fp32([]int64{0, 16})}, []backendtest.Value{fp32([]int64{0, 16})}},
		"zero rows of runtime memory": {
			"nonzero", `input { name: "x" data_type: TYPE_FP32 dims: -1 } output { name: "y" data_type: TYPE_INT64 dims: [1, -1] }`, 1,
			[]backendtest.Value{fp32([]int64{0})},
			[]backendtest.Value{backendtest.Of[int64](tensor.Int64, []int64{1, 0})},
		},
		"no rows of strings": {
			"strings", "", 0, []backendtest.Value{backendtest.Strings([]int64{0, 1})}, []backendtest.Value{backendtest.Strings([]int64{0, 1})},
		},
		"a first dimension that is not the batch": {
			"liar", "", 1, []backendtest.Value{fp32([]int64{1, 2}, 1, 2)}, []backendtest.Value{fp32([]int64{2, 2}, 1, 2, 1, 2)},
		},
		"fixed batch made variable": {"four", io, 2, []backendtest.Value{fp32([]int64{2, 3}, 1, 2, 3, 4, 5, 6)}, []backendtest.Value{fp32([]int64{2, 3}, 2, 4, 6, 8, 10, 12)}},
		"padded strings": {
			"words", `max_batch_size: 2 input { name: "x" data_type: TYPE_STRING dims: 1 } output { name: "x" data_type: TYPE_STRING dims: 1 }
				parameters { key: "SKIP_OV_DYNAMIC_BATCHSIZE" value { string_value: "yes" } }
				parameters { key: "ENABLE_BATCH_PADDING" value { string_value: "YES" } }`, 2,
			[]backendtest.Value{backendtest.Strings([]int64{2, 1}, "a", "bc")},
			[]backendtest.Value{backendtest.Strings([]int64{2, 1}, "a", "bc")},
		},
		"reshaped": {
			"fixed", `input { name: "x" data_type: TYPE_FP32 dims: [3, 1] } output { name: "y" data_type: TYPE_FP32 dims: [3, 1] }
				parameters { key: "RESHAPE_IO_LAYOUT" value { string_value: "YES" } }`, 1,
			[]backendtest.Value{fp32([]int64{3, 1}, 1, 2, 3)},
			[]backendtest.Value{fp32([]int64{3, 1}, -1, -2, -3)},
		},
		"unranked": {
			"unranked", `input { name: "x" data_type: TYPE_FP32 dims: [2, 1] } output { name: "y" data_type: TYPE_FP32 dims: [2, 1] }`, 1,
			[]backendtest.Value{fp32([]int64{2, 1}, 1, 2)},
			[]backendtest.Value{fp32([]int64{2, 1}, -1, -2)},
		},
		"several names and none": {"names", `max_batch_size: 2 input { name: "x:0" data_type: TYPE_FP32 dims: 2 }`, 1, []backendtest.Value{fp32([]int64{1, 2}, 1, 2)}, []backendtest.Value{fp32([]int64{1, 2}, -1, -2)}},
		"handed through": {
			"through", "", 1, []backendtest.Value{fp32([]int64{1, 2}, 1, 2)}, []backendtest.Value{fp32([]int64{1, 2}, -1, -2), fp32([]int64{1, 2}, 1, 2)},
		},
		"frozen graph": {"frozen", `default_model_filename: "frozen.pb"`, 1, []backendtest.Value{fp32([]int64{1, 3}, 1, 2, 3)}, []backendtest.Value{fp32([]int64{1, 3}, 2, 4, 6)}},
		"saved model":  {"saved", `default_model_filename: "saved"`, 1, []backendtest.Value{fp32([]int64{1, 3}, 1, 2, 3)}, []backendtest.Value{fp32([]int64{1, 3}, 2, 4, 6)}},
		"onnx": {
			"mlp", `default_model_filename: "../../onnx/testdata/mlp.onnx"`, 1,
			[]backendtest.Value{fp32([]int64{1, 16}, make([]float32, 16)...)},
			[]backendtest.Value{fp32([]int64{1, 16}, make([]float32, 16)...)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tc.model, tc.pbtxt))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second run knows from the first whether output shapes can be predicted
				got, err := backendtest.Once(t, m, tc.rows, tc.in...)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("outputs (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestEveryType(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "types", ""))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[tensor.DType]bool{}
	var in, want []backendtest.Value
	for _, p := range m.Signature().Inputs {
		v := backendtest.Value{DType: p.DType, Dims: []int64{3, 1}, Data: make([]byte, 3*p.DType.Size())}
		for i := range v.Data {
			v.Data[i] = byte(i*37) & 0x3f
			if p.DType.Size() == 8 && i%8 > 1 {
				v.Data[i] = 0 // the runtime computes 64 bits in 32
			}
			if p.DType == tensor.Bool {
				v.Data[i] = byte(i % 2)
			}
		}
		if p.DType == tensor.FP64 {
			clear(v.Data)
			v.Data[7], v.Data[6], v.Data[15], v.Data[14] = 0x3f, 0xf0, 0xc0, 0x08 // 1, -3, 0
		}
		seen[p.DType] = true
		in = append(in, v)
		want = append(want, backendtest.Value{DType: v.DType, Dims: []int64{6, 1}, Data: slices.Concat(v.Data, v.Data)})
	}
	if len(seen) != 13 {
		t.Errorf("the model covers %d types, want 13", len(seen))
	}
	got, err := backendtest.Once(t, m, 3, in...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

func TestUnpadded(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "four", `max_batch_size: 4
		input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }
		parameters { key: "SKIP_OV_DYNAMIC_BATCHSIZE" value { string_value: "YES" } }`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = backendtest.Once(t, m, 2, fp32([]int64{2, 3}, make([]float32, 6)...))
	if err == nil || !strings.Contains(err.Error(), "expected a batch of exactly 4 rows, got 2 (parameter ENABLE_BATCH_PADDING") {
		t.Errorf("a short batch: %v", err)
	}
	if _, err := backendtest.Once(t, m, 4, fp32([]int64{4, 3}, make([]float32, 12)...)); err != nil {
		t.Errorf("a full batch: %v", err)
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		params  [][2]string
		threads int
	}{
		"threads":  {[][2]string{{"INFERENCE_NUM_THREADS", "1"}, {"NUM_STREAMS", "1"}}, 1},
		"latency":  {[][2]string{{"PERFORMANCE_HINT", "LATENCY"}, {"EXECUTION_MODE_HINT", "ACCURACY"}}, 0},
		"streams":  {[][2]string{{"NUM_STREAMS", "AUTO"}, {"ENABLE_HYPER_THREADING", "YES"}, {"INFERENCE_PRECISION_HINT", "f32"}}, 0},
		"bfloat16": {[][2]string{{"HINT_BF16", "NO"}, {"SCHEDULING_CORE_TYPE", "ANY_CORE"}, {"some_other_layer", "x"}}, 0},
		"cached":   {[][2]string{{"CACHE_DIR", "cache"}, {"TARGET_DEVICE", "CPU"}}, 0},
		"auto":     {[][2]string{{"TARGET_DEVICE", "AUTO:CPU"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings(t, "mlp", "")
			s.Config.Parameters = map[string]*modelconfig.ModelParameter{}
			for _, p := range tc.params {
				s.Config.Parameters[p[0]] = &modelconfig.ModelParameter{StringValue: p[1]}
			}
			for range 2 { // the second load reads the cache
				m, err := load(t, s)
				if err != nil {
					t.Fatal(err)
				}
				threads, ok := m.(backends.ThreadedModel)
				if !ok || threads.Threads() < 1 || tc.threads > 0 && threads.Threads() != tc.threads {
					t.Errorf("threads %v, want %d", m, tc.threads)
				}
				if _, err := backendtest.Once(t, m, 1, fp32([]int64{1, 16}, make([]float32, 16)...)); err != nil {
					t.Error(err)
				}
			}
			if name == "cached" {
				if files, err := filepath.Glob(filepath.Join(s.ModelDir, "cache", "*")); err != nil || len(files) == 0 {
					t.Errorf("no file in the cache folder: %v", err)
				}
			}
		})
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "mlp", ""))
	if err != nil {
		t.Fatal(err)
	}
	if x, err := m.NewInstance(t.Context(), tensor.Place{Kind: tensor.Device}); err == nil {
		t.Errorf("NewInstance on a device = %v, want an error", x)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	_ = x.Close()
	if err := x.Execute(t.Context(), &backends.Batch{}); status.CodeOf(err) != status.Unavailable {
		t.Errorf("Execute after Close = %v", err)
	}
	_ = m.Close()
	if x, err := m.NewInstance(t.Context(), tensor.Place{}); status.CodeOf(err) != status.Unavailable {
		t.Errorf("NewInstance after Close = %v, %v", x, err)
	}
	f := openvino.NewFactory()
	if _, err := f.New(backends.Options{Config: map[string]string{"default-max-batch-size": "-1"}}); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("New with a negative batch size = %v", err)
	}
	b, err := f.New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if d, ok := b.(backends.Describer); !ok || !strings.HasPrefix(d.Describe(), "OpenVINO 20") {
		t.Errorf("Describe = %v", b)
	}
}
