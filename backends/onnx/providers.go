//go:build cgo

package onnx

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// providerKind selects the function that adds a provider. The values are those of tt_provider.
type providerKind int

const (
	named providerKind = iota
	cudaKind
	tensorRTKind
	openVINO
)

// provider is an execution provider with its settings.
type provider struct {
	accelerator string // the name in config.pbtxt
	name        string // the runtime's name
	get         string // what to do when the library lacks it
	kind        providerKind
	pairs       [][2]string
}

// fetchGPU is what to do when the library has no providers for GPUs.
const fetchGPU = "run 'tutti runtime fetch onnxruntime-gpu', or name a library that has it by --backend-config=onnxruntime,library-path="

// hostProviders and deviceProviders are the supported execution_accelerators.
var (
	hostProviders = []provider{
		{
			accelerator: "openvino", name: "OpenVINOExecutionProvider", kind: openVINO,
			get: "get onnxruntime-openvino, and name its library by --backend-config=onnxruntime,library-path=",
		},
		{
			accelerator: "xnnpack", name: "XnnpackExecutionProvider",
			get: "get a build of ONNX Runtime with --use_xnnpack, and name its library by --backend-config=onnxruntime,library-path=",
		},
	}
	deviceProviders = []provider{
		{accelerator: "tensorrt", name: "TensorrtExecutionProvider", get: fetchGPU, kind: tensorRTKind},
		cudaProvider,
	}
	cudaProvider = provider{accelerator: "cuda", name: "CUDAExecutionProvider", get: fetchGPU, kind: cudaKind}
)

// accelerators returns the configured providers for the host and for devices.
func accelerators(cfg *modelconfig.ModelConfig) (host, device []provider, err error) {
	acc := cfg.GetOptimization().GetExecutionAccelerators()
	if host, err = wanted(acc.GetCpuExecutionAccelerator(), hostProviders); err != nil {
		return nil, nil, err
	}
	device, err = wanted(acc.GetGpuExecutionAccelerator(), deviceProviders)
	return host, device, err
}

func wanted(list []*modelconfig.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator, known []provider) (all []provider, err error) {
	for _, a := range list {
		i := slices.IndexFunc(known, func(p provider) bool { return p.accelerator == a.GetName() })
		if i < 0 {
			return nil, status.Errorf(status.InvalidArg, "unknown Execution Accelerator '%s' is requested, expected one of %s, %s",
				a.GetName(), known[0].accelerator, known[1].accelerator)
		}
		p := known[i]
		for _, key := range slices.Sorted(maps.Keys(a.GetParameters())) {
			if err := p.set(key, a.GetParameters()[key]); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// set applies a parameter of the accelerator.
func (p *provider) set(key, value string) (err error) {
	switch p.kind {
	case tensorRTKind:
		key, value, err = tensorRTOption(key, value)
	case cudaKind:
		key, value, err = cudaOption(key, value)
	}
	if key != "" {
		p.pairs = append(p.pairs, [2]string{key, value})
	}
	return err
}

// reserved are the options of the CUDA and TensorRT providers that the server sets for each session.
var reserved = []string{
	"device_id", "has_user_compute_stream", "user_compute_stream", "gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache",
	"default_memory_arena_cfg",
}

// cudaBooleans are the options of the CUDA provider that Triton reads as booleans.
var cudaBooleans = []string{"do_copy_in_default_stream", "use_ep_level_unified_stream", "enable_cuda_graph"}

// cudaOption returns an option of the CUDA provider for a parameter of its accelerator. Names and values are the runtime's.
func cudaOption(key, value string) (string, string, error) {
	if slices.Contains(reserved, key) {
		return "", "", status.Errorf(status.InvalidArg, "parameter '%s' of the CUDA Execution Accelerator is the server's: remove it", key)
	}
	if slices.Contains(cudaBooleans, key) {
		return booleanOption(key, key, value)
	}
	return key, value, nil
}

// booleanOption returns the runtime's option key with a boolean value, 1 or 0. name is the parameter's, for the error.
func booleanOption(key, name, value string) (string, string, error) {
	on, err := boolean.Parse(name, value)
	if err != nil {
		return "", "", err
	}
	return key, strconv.Itoa(int(flag(on))), nil
}

// trtNumbers and trtBooleans are the options of the TensorRT provider with such values, as Triton lists them. Other options that start
// with trt_ are passed to the runtime unchanged, which refuses what it does not know.
var (
	trtNumbers = []string{
		"trt_max_partition_iterations", "trt_min_subgraph_size", "trt_dla_core", "trt_builder_optimization_level", "trt_auxiliary_streams",
		"trt_ep_context_embed_mode",
	}
	trtBooleans = []string{
		"trt_dla_enable", "trt_engine_cache_enable", "trt_dump_subgraphs", "trt_force_sequential_engine_build",
		"trt_context_memory_sharing_enable", "trt_layer_norm_fp32_fallback", "trt_timing_cache_enable", "trt_force_timing_cache",
		"trt_detailed_build_log", "trt_build_heuristics_enable", "trt_sparsity_enable", "trt_cuda_graph_enable", "trt_dump_ep_context_model",
	}
)

// tensorRTOption returns the option of the TensorRT provider for a parameter of its accelerator. Triton's names and those of the
// runtime (trt_*) are accepted. An empty key means that the runtime has no such option, and needs none.
func tensorRTOption(key, value string) (string, string, error) {
	switch {
	case key == "precision_mode":
		return precisionMode(value)
	case key == "max_cached_engines": // of old releases
		return "", "", nil
	case key == "max_workspace_size_bytes":
		return number("trt_max_workspace_size", key, value)
	case key == "int8_calibration_table_name":
		return "trt_" + key, value, nil
	case key == "int8_use_native_calibration_table":
		return booleanOption("trt_"+key, key, value)
	case slices.Contains(trtNumbers, key):
		return number(key, key, value)
	case slices.Contains(trtBooleans, key):
		return booleanOption(key, key, value)
	case !strings.HasPrefix(key, "trt_"):
		return "", "", status.Errorf(status.InvalidArg, "unknown parameter '%s' is provided for TensorRT Execution Accelerator", key)
	}
	return key, value, nil
}

// precisionMode returns the option for a value of precision_mode, an empty one for FP32.
func precisionMode(value string) (string, string, error) {
	switch value {
	case "FP32":
		return "", "", nil
	case "FP16", "BF16", "INT8":
		return "trt_" + strings.ToLower(value) + "_enable", "1", nil
	}
	return "", "", status.Errorf(status.InvalidArg, "unsupported precision mode '%s' is requested, expected FP32, FP16, BF16 or INT8", value)
}

// number returns an option whose value is an integer.
func number(key, name, value string) (string, string, error) {
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		return "", "", status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected an integer", value, name)
	}
	return key, value, nil
}

// onDevice returns the settings of a session on a GPU: the configured providers, followed by CUDA for all other operators. stream is
// the CUstream on which the session executes, 0 for none.
func (s settings) onDevice(id int, stream uintptr, device []provider) settings {
	s.providers = nil
	last := cudaProvider
	for _, p := range device {
		if p.kind == cudaKind {
			last = p
			continue
		}
		s.providers = append(s.providers, p.at(id, stream))
	}
	last.pairs = slices.Concat(s.cuda, last.pairs)
	s.providers = append(s.providers, last.at(id, stream))
	return s
}

// at returns the provider for a device and a stream on it. Of several values of an option the last holds.
func (p provider) at(id int, stream uintptr) provider {
	pairs := append(slices.Clone(p.pairs), [2]string{"device_id", strconv.Itoa(id)})
	if stream != 0 {
		pairs = append(pairs, [2]string{"has_user_compute_stream", "1"}, [2]string{"user_compute_stream", strconv.FormatUint(uint64(stream), 10)})
	}
	p.pairs = nil
	for _, pair := range pairs {
		p.pairs = slices.DeleteFunc(p.pairs, func(o [2]string) bool { return o[0] == pair[0] })
		p.pairs = append(p.pairs, pair)
	}
	return p
}

// option returns the value of an option of one of the providers, "" when none has it.
func (s *settings) option(key string) string {
	for i := range s.providers {
		for _, pair := range s.providers[i].pairs {
			if pair[0] == key {
				return pair[1]
			}
		}
	}
	return ""
}
