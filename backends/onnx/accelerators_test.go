//go:build cgo

package onnx

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func parseConfig(tb testing.TB, text string) *modelconfig.ModelConfig {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		tb.Fatal(err)
	}
	return cfg
}

func openBackend(tb testing.TB, values map[string]string) *backend {
	tb.Helper()
	config := map[string]string{"library-path": LibraryPath(tb)}
	maps.Copy(config, values)
	b, err := NewFactory().New(backends.Options{Config: config})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b.(*backend)
}

func loadFile(tb testing.TB, b *backend, file, pbtxt string) (backends.Model, error) {
	tb.Helper()
	cfg := parseConfig(tb, pbtxt)
	cfg.DefaultModelFilename = file
	m, err := b.Load(tb.Context(), backends.Settings{Model: "m", Dir: "testdata", ModelDir: "testdata", Config: cfg, Instances: 1})
	if err == nil {
		tb.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// TestAcceleratorRefused checks the error of a library without the provider that an accelerator needs: it names
// what the library provides.
// shows: config.accelerators
func TestAcceleratorRefused(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	for name, tc := range map[string]struct {
		pbtxt, want string
		code        status.Code
	}{
		"tensorrt": {
			`instance_group { kind: KIND_GPU gpus: 0 } optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }`,
			"run 'tutti runtime fetch onnxruntime-gpu', or name a library that has it by --backend-config=onnxruntime,library-path=", status.Unavailable,
		},
		"openvino": {
			`optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }`,
			"execution accelerator 'openvino' needs OpenVINOExecutionProvider, and ONNX Runtime 1.", status.Unavailable,
		},
		"gpu": {
			`instance_group { kind: KIND_GPU gpus: 0 }`,
			"unable to load model 'm' from 'testdata/mlp.onnx': execution accelerator 'cuda' needs CUDAExecutionProvider", status.Unavailable,
		},
		"unknown": {
			`optimization { execution_accelerators { cpu_execution_accelerator { name: "abacus" } } }`,
			"unknown Execution Accelerator 'abacus' is requested, expected one of openvino, xnnpack", status.InvalidArg,
		},
		"precision": {
			`optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters { key: "precision_mode" value: "FP4" } } } }`,
			"unsupported precision mode 'FP4' is requested, expected FP32, FP16, BF16 or INT8", status.InvalidArg,
		},
		"parameter": {
			`optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters { key: "depth" value: "1" } } } }`,
			"unknown parameter 'depth' is provided for TensorRT Execution Accelerator", status.InvalidArg,
		},
		"number": {
			`optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters { key: "max_workspace_size_bytes" value: "1G" } } } }`,
			"unexpected value '1G' of parameter 'max_workspace_size_bytes': expected an integer", status.InvalidArg,
		},
		"boolean": {
			`optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters { key: "trt_engine_cache_enable" value: "yes" } } } }`,
			"unexpected value 'yes' of parameter 'trt_engine_cache_enable': expected 0, 1, true or false", status.InvalidArg,
		},
		"stream": {
			`optimization { execution_accelerators { gpu_execution_accelerator { name: "cuda" parameters { key: "user_compute_stream" value: "1" } } } }`,
			"parameter 'user_compute_stream' of the CUDA Execution Accelerator is the server's: remove it", status.InvalidArg,
		},
		"search": {
			`parameters { key: "cudnn_conv_algo_search" value { string_value: "3" } }`,
			"unexpected value '3' of parameter 'cudnn_conv_algo_search': expected 0 to 2, or one of EXHAUSTIVE, HEURISTIC, DEFAULT", status.InvalidArg,
		},
		"limit": {
			`parameters { key: "gpu_mem_limit" value { string_value: "-1" } }`,
			"unexpected value '-1' of parameter 'gpu_mem_limit': expected a number of bytes", status.InvalidArg,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := loadFile(t, b, "mlp.onnx", tc.pbtxt)
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code {
				t.Errorf("Load = %s error %v\nwant %s with %q", status.CodeOf(err), err, tc.code, tc.want)
			}
		})
	}
}

// TestAcceleratorOfGPUOnCPU checks that instances on the CPU ignore the accelerators of GPUs, as in Triton.
func TestAcceleratorOfGPUOnCPU(t *testing.T) {
	t.Parallel()
	b := openBackend(t, nil)
	if _, err := loadFile(t, b, "mlp.onnx", `instance_group { kind: KIND_CPU } optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }`); err != nil {
		t.Error(err)
	}
}

// TestDeviceSettings checks the settings of a session on a GPU.
func TestDeviceSettings(t *testing.T) {
	t.Parallel()
	cfg := parseConfig(t, `optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt"
			parameters { key: "precision_mode" value: "FP16" } parameters { key: "max_workspace_size_bytes" value: "99" }
			parameters { key: "int8_calibration_table_name" value: "t" } parameters { key: "trt_engine_cache_enable" value: "1" } } } }
		parameters { key: "cudnn_conv_algo_search" value { string_value: "1" } }
		parameters { key: "arena_extend_strategy" value { string_value: "0" } }
		parameters { key: "gpu_mem_limit" value { string_value: "5" } }`)
	s, err := modelSettings(cfg, 1, start{})
	if err != nil {
		t.Fatal(err)
	}
	_, device, err := accelerators(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]string
	for _, p := range s.onDevice(3, 77, device).providers {
		got = append(append(got, [2]string{p.name}), p.pairs...)
	}
	want := [][2]string{
		{"TensorrtExecutionProvider"},
		{"trt_int8_calibration_table_name", "t"},
		{"trt_max_workspace_size", "99"},
		{"trt_fp16_enable", "1"},
		{"trt_engine_cache_enable", "1"},
		{"device_id", "3"},
		{"has_user_compute_stream", "1"},
		{"user_compute_stream", "77"},
		{"CUDAExecutionProvider"},
		{"arena_extend_strategy", "kNextPowerOfTwo"},
		{"cudnn_conv_algo_search", "HEURISTIC"},
		{"gpu_mem_limit", "5"},
		{"device_id", "3"},
		{"has_user_compute_stream", "1"},
		{"user_compute_stream", "77"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
}

// TestProviderCalls checks that adding a provider that the library lacks fails with an error that names it.
func TestProviderCalls(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	for _, p := range append(append([]provider{}, deviceProviders...), hostProviders...) {
		s := defaultSettings(1)
		s.providers = []provider{p.at(0, 0)}
		if p.kind == openVINO || p.kind == named {
			s.providers[0].pairs = [][2]string{{"device_type", "CPU"}}
		}
		ses, err := openSession(t.Context(), l, "testdata/mlp.onnx", &s)
		if err == nil {
			ses.close()
			t.Logf("%s is there", p.name)
			continue
		}
		if !strings.HasPrefix(err.Error(), "execution accelerator '"+p.accelerator+"': onnx runtime error ") {
			t.Errorf("%s: error %q", p.name, err)
		}
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	got := bind.Places(parseConfig(t, `instance_group { kind: KIND_GPU gpus: [1, 0, 1] } instance_group { kind: KIND_CPU } instance_group { kind: KIND_CPU }`))
	want := []tensor.Place{{Kind: tensor.Device, ID: 1}, {Kind: tensor.Device}, {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

// TestOpenVINO checks that a library with the provider runs the model through it.
func TestOpenVINO(t *testing.T) {
	t.Parallel()
	path := preparedtest.Script(t, "onnxruntime-openvino", "prepare-providers")
	b := openBackend(t, map[string]string{"library-path": path})
	m, err := loadFile(t, b, "mlp.onnx", `max_batch_size: 8 optimization { execution_accelerators {
		cpu_execution_accelerator { name: "openvino" parameters { key: "device_type" value: "CPU" } } } }`)
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	_, batch := loadMLP(t)
	elements[float32](&batch.In[0])[0] = 5
	if err := x.Execute(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	defer batch.Out[0].Release()
	if got := elements[float32](&batch.Out[0])[0]; got != 5 {
		t.Errorf("y[0] = %v, want 5", got)
	}
	if _, err := loadFile(t, b, "mlp.onnx", `optimization { execution_accelerators {
		cpu_execution_accelerator { name: "openvino" parameters { key: "bogus" value: "1" } } } }`); err == nil || !strings.Contains(err.Error(), "execution accelerator 'openvino': onnx runtime error") {
		t.Errorf("an unknown parameter: %v", err)
	}
}
