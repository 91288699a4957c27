//go:build cgo

package onnx_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestSignature checks signatures that the configuration declares, or leaves to the model file.
// shows: config.complete
func TestSignature(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		model, pbtxt string
		want         config.Signature
	}{
		"completed, batching": {
			"mlp", "", config.Signature{
				MaxBatch: 4,
				Inputs:   []config.Port{{Name: "x", DType: tensor.FP32, Dims: tensor.Of(16)}},
				Outputs:  []config.Port{{Name: "y", DType: tensor.FP32, Dims: tensor.Of(16)}},
			},
		},
		"inputs configured": {
			"mlp", `max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: 16 }`, config.Signature{
				MaxBatch: 2,
				Inputs:   []config.Port{{Name: "x", DType: tensor.FP32, Dims: tensor.Of(16)}},
				Outputs:  []config.Port{{Name: "y", DType: tensor.FP32, Dims: tensor.Of(16)}},
			},
		},
		"completed, fixed": {
			"fixed", "", config.Signature{
				Inputs:  []config.Port{{Name: "x", DType: tensor.FP32, Dims: tensor.Of(2, 3)}},
				Outputs: []config.Port{{Name: "y", DType: tensor.FP32, Dims: tensor.Of(2, 3)}},
			},
		},
		"completed, scalar": {
			"scalar", "", config.Signature{
				Inputs:  []config.Port{{Name: "a", DType: tensor.FP32, Dims: tensor.Of(1)}, {Name: "b", DType: tensor.FP32, Dims: tensor.Of(1)}},
				Outputs: []config.Port{{Name: "y", DType: tensor.FP32, Dims: tensor.Of(1)}},
			},
		},
		"order and choice of outputs": {
			"through", `input { name: "x" data_type: TYPE_FP32 dims: -1 }
				output { name: "c" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: -1 }`,
			config.Signature{
				Inputs: []config.Port{{Name: "x", DType: tensor.FP32, Dims: tensor.Of(-1)}},
				Outputs: []config.Port{
					{Name: "c", DType: tensor.FP32, Dims: tensor.Of(3)}, {Name: "y", DType: tensor.FP32, Dims: tensor.Of(-1)},
				},
			},
		},
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
	fp32 := func(dims []int64, elems ...float32) backendtest.Value {
		return backendtest.Of(tensor.FP32, dims, elems...)
	}
	const liar = `input { name: "x" data_type: TYPE_FP32 dims: -1 } output { name: "y" data_type: TYPE_INT64 dims: -1 }`
	const picks = `input { name: "keep" data_type: TYPE_BOOL dims: -1 } input { name: "in_FLOAT16" data_type: TYPE_FP16 dims: -1 }
		input { name: "in_BFLOAT16" data_type: TYPE_BF16 dims: -1 } input { name: "in_BOOL" data_type: TYPE_BOOL dims: -1 }
		input { name: "in_STRING" data_type: TYPE_STRING dims: -1 }
		output { name: "out_FLOAT16" data_type: TYPE_FP16 dims: -1 } output { name: "out_BFLOAT16" data_type: TYPE_BF16 dims: -1 }
		output { name: "out_BOOL" data_type: TYPE_BOOL dims: -1 } output { name: "out_STRING" data_type: TYPE_STRING dims: -1 }`
	nan := math.Float32frombits(0x7fc00000)
	for name, tc := range map[string]struct {
		model, pbtxt string
		in, want     []backendtest.Value
	}{
		"rank 0": {
			"scalar", "", []backendtest.Value{fp32([]int64{1}, 2), fp32([]int64{1}, 3)}, []backendtest.Value{fp32([]int64{1}, 5)},
		},
		"strings of rank 0": {
			"word", "", []backendtest.Value{backendtest.Strings([]int64{1}, "a\x00")}, []backendtest.Value{backendtest.Strings([]int64{1}, "a\x00a\x00")},
		},
		"no strings": {
			"strings", "",
			[]backendtest.Value{backendtest.Strings([]int64{0, 3})},
			[]backendtest.Value{backendtest.Strings([]int64{0, 3}), backendtest.Strings([]int64{0, 3})},
		},
		"empty strings": {
			"strings", "",
			[]backendtest.Value{backendtest.Strings([]int64{2, 1}, "", "")},
			[]backendtest.Value{backendtest.Strings([]int64{2, 1}, "", ""), backendtest.Strings([]int64{2, 1}, "", "")},
		},
		"strings passed through": {
			"through_strings", "",
			[]backendtest.Value{backendtest.Strings([]int64{1}, "x")},
			[]backendtest.Value{backendtest.Strings([]int64{1}, "xx"), backendtest.Strings([]int64{1}, "x"), backendtest.Strings([]int64{2}, "", "a\x00b")},
		},
		"any shape of any type": {
			"pick", picks,
			[]backendtest.Value{
				{DType: tensor.Bool, Dims: []int64{3}, Data: []byte{1, 0, 1}},
				{DType: tensor.FP16, Dims: []int64{3}, Data: []byte{0, 0x3c, 0, 0x40, 0, 0x42}},
				{DType: tensor.BF16, Dims: []int64{3}, Data: []byte{0x80, 0x3f, 0, 0x40, 0x40, 0x40}},
				{DType: tensor.Bool, Dims: []int64{3}, Data: []byte{0, 0, 1}},
				backendtest.Strings([]int64{3}, "", "b", "c\x00"),
			},
			[]backendtest.Value{
				{DType: tensor.FP16, Dims: []int64{2}, Data: []byte{0, 0x3c, 0, 0x42}},
				{DType: tensor.BF16, Dims: []int64{2}, Data: []byte{0x80, 0x3f, 0x40, 0x40}},
				{DType: tensor.Bool, Dims: []int64{2}, Data: []byte{0, 1}},
				backendtest.Strings([]int64{2}, "", "c\x00"),
			},
		},
		"a loop": {
			"loop", "",
			[]backendtest.Value{backendtest.Of(tensor.Int64, []int64{1}, int64(5)), fp32([]int64{2}, 1, 2)},
			[]backendtest.Value{fp32([]int64{2}, 6, 7)},
		},
		"zero rows": {"mlp", "", []backendtest.Value{fp32([]int64{0, 16})}, []backendtest.Value{fp32([]int64{0, 16})}},
		"zero rows of runtime memory": {
			"nonzero", "", []backendtest.Value{fp32([]int64{0})}, []backendtest.Value{backendtest.Of[int64](tensor.Int64, []int64{1, 0})},
		},
		"zero rows passed through": {
			"through", "",
			[]backendtest.Value{fp32([]int64{0})},
			[]backendtest.Value{fp32([]int64{0}), fp32([]int64{0}), fp32([]int64{3}, 1, 2, 3)},
		},
		"shape names that hold": {
			"liar", liar, []backendtest.Value{fp32([]int64{2}, 1, 1)}, []backendtest.Value{backendtest.Of(tensor.Int64, []int64{2}, int64(0), 1)},
		},
		"shape names that lie": {
			"liar", liar, []backendtest.Value{fp32([]int64{3}, 0, 0, 1)}, []backendtest.Value{backendtest.Of(tensor.Int64, []int64{1}, int64(2))},
		},
		"not a number": {
			"through", "",
			[]backendtest.Value{fp32([]int64{1}, nan)},
			[]backendtest.Value{fp32([]int64{1}, math.Float32frombits(0xffc00000)), fp32([]int64{1}, nan), fp32([]int64{3}, 1, 2, 3)},
		},
		"reshape is done before": {
			"mlp", `max_batch_size: 8
				input { name: "x" data_type: TYPE_FP32 dims: [4, 4] reshape { shape: 16 } }
				output { name: "y" data_type: TYPE_FP32 dims: [2, 8] reshape { shape: 16 } }`,
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
				got, err := backendtest.Once(t, m, 1, tc.in...)
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
	var in []backendtest.Value
	for _, p := range m.Signature().Inputs {
		v := backendtest.Value{DType: p.DType, Dims: []int64{2, 3}, Data: make([]byte, 6*p.DType.Size())}
		for i := range v.Data {
			v.Data[i] = byte(i * 37)
			if p.DType == tensor.Bool {
				v.Data[i] = byte(i % 2)
			}
		}
		seen[p.DType] = true
		in = append(in, v)
	}
	if len(seen) != 13 {
		t.Errorf("the model covers %d types, want 13", len(seen))
	}
	got, err := backendtest.Once(t, m, 1, in...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, got); diff != "" {
		t.Errorf("identities (-want +got):\n%s", diff)
	}
}

func TestErrorNamesModel(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "embed", ""))
	if err != nil {
		t.Fatal(err)
	}
	_, err = backendtest.Once(t, m, 1, backendtest.Of(tensor.Int64, []int64{1, 1}, int64(10)))
	if err == nil || !strings.HasPrefix(err.Error(), "model 'embed': onnx runtime error ") || !strings.Contains(err.Error(), "out of data bounds") {
		t.Errorf("error of an index outside the table = %v", err)
	}
}

// TestParameters checks that a model with the parameters of the backend loads and executes.
// shows: config.parameters
func TestParameters(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "mlp", `max_batch_size: 8 optimization { graph { level: 1 } input_pinned_memory { enable: false } output_pinned_memory { enable: true } }
		parameters { key: "intra_op_thread_count" value { string_value: "2" } }
		parameters { key: "inter_op_thread_count" value { string_value: "0" } }
		parameters { key: "execution_mode" value { string_value: "1" } }
		parameters { key: "enable_mem_arena" value { string_value: "false" } }
		parameters { key: "enable_mem_pattern" value { string_value: "0" } }
		parameters { key: "graph_optimization_level" value { string_value: "3" } }
		parameters { key: "session.intra_op.allow_spinning" value { string_value: "1" } }
		parameters { key: "session.use_device_allocator_for_initializers" value { string_value: "1" } }
		parameters { key: "gpu_mem_limit" value { string_value: "1000000" } }
		parameters { key: "arena_extend_strategy" value { string_value: "1" } }
		parameters { key: "use_tf32" value { string_value: "0" } }
		parameters { key: "cudnn_conv_algo_search" value { string_value: "0" } }`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backendtest.Once(t, m, 1, backendtest.Of(tensor.FP32, []int64{1, 16}, make([]float32, 16)...)); err != nil {
		t.Error(err)
	}
}

func TestShrinkage(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "mlp", `parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "cpu:0" } }`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backendtest.Once(t, m, 1, backendtest.Of(tensor.FP32, []int64{1, 16}, make([]float32, 16)...)); err != nil {
		t.Error(err)
	}
}

func TestDeviceRefused(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "mlp", ""))
	if err != nil {
		t.Fatal(err)
	}
	if x, err := m.NewInstance(t.Context(), tensor.Place{Kind: tensor.Device}); err == nil {
		t.Errorf("NewInstance on a device = %v, want an error", x)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "mlp", ""))
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Execute(t.Context(), &backends.Batch{}); err == nil {
		t.Error("a closed instance executes")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if x, err := m.NewInstance(t.Context(), tensor.Place{}); err == nil {
		t.Errorf("a closed model makes instances: %v", x)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config map[string]string
		want   string
	}{
		"no library":    {map[string]string{"library-path": "/none/libonnxruntime.so"}, "run 'tutti runtime fetch onnxruntime'"},
		"threads":       {map[string]string{"intra_op_thread_count": "x"}, "unexpected value 'x' of onnxruntime setting 'intra_op_thread_count'"},
		"thread pool":   {map[string]string{"enable-global-threadpool": "2"}, "unexpected value '2' of parameter 'enable-global-threadpool'"},
		"memory":        {map[string]string{"memory-limit": "1G"}, "unexpected value '1G' of onnxruntime setting 'memory-limit'"},
		"max batch":     {map[string]string{"default-max-batch-size": "-1"}, "unexpected value '-1' of onnxruntime setting 'default-max-batch-size'"},
		"not a library": {map[string]string{"library-path": "onnx_test.go"}, "unable to open ONNX Runtime: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := onnx.NewFactory().New(backends.Options{Config: tc.config})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("New = %v, %v, want an error with %q", b, err, tc.want)
			}
		})
	}
}
