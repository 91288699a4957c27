package onnx

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// providerKind selects the function that adds a provider.
type providerKind int

const (
	named providerKind = iota
	cuda
	tensorRT
	openVINO
)

// provider is an execution provider with its settings.
type provider struct {
	accelerator string // the name in config.pbtxt
	name        string // the runtime's name
	wheel       string // the PyPI package whose library has it
	kind        providerKind
	pairs       [][2]string
}

// hostProviders and deviceProviders are the supported execution_accelerators.
var (
	hostProviders = []provider{
		{accelerator: "openvino", name: "OpenVINOExecutionProvider", wheel: "onnxruntime-openvino", kind: openVINO},
		{accelerator: "xnnpack", name: "XnnpackExecutionProvider", wheel: "a build of ONNX Runtime with --use_xnnpack"},
	}
	deviceProviders = []provider{
		{accelerator: "tensorrt", name: "TensorrtExecutionProvider", wheel: "onnxruntime-gpu", kind: tensorRT},
		cudaProvider,
	}
	cudaProvider = provider{accelerator: "cuda", name: "CUDAExecutionProvider", wheel: "onnxruntime-gpu", kind: cuda}
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

// uses reports whether the settings contain a provider of the kind.
func (s *settings) uses(kind providerKind) bool {
	return slices.ContainsFunc(s.providers, func(p provider) bool { return p.kind == kind })
}

func wanted(list []*modelconfig.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator, known []provider) ([]provider, error) {
	var all []provider
	for _, a := range list {
		i := slices.IndexFunc(known, func(p provider) bool { return p.accelerator == a.GetName() })
		if i < 0 {
			return nil, status.Errorf(status.InvalidArg, "unknown Execution Accelerator '%s' is requested, expected one of %s", a.GetName(), providerNames(known))
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

func providerNames(list []provider) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].accelerator
	}
	return strings.Join(names, ", ")
}

// set applies a parameter of the accelerator. For TensorRT, Triton's names and those of the runtime (trt_*) are accepted.
func (p *provider) set(key, value string) error {
	if p.kind != tensorRT || strings.HasPrefix(key, "trt_") {
		p.pairs = append(p.pairs, [2]string{key, value})
		return nil
	}
	switch key {
	case "precision_mode":
		return p.precision(value)
	case "max_workspace_size_bytes":
		p.pairs = append(p.pairs, [2]string{"trt_max_workspace_size", value})
	case "int8_calibration_table_name", "int8_use_native_calibration_table":
		p.pairs = append(p.pairs, [2]string{"trt_" + key, value})
	case "max_cached_engines": // ignored: the runtime no longer has this setting
	default:
		return status.Errorf(status.InvalidArg, "unknown parameter '%s' is provided for TensorRT Execution Accelerator", key)
	}
	return nil
}

func (p *provider) precision(value string) error {
	switch value {
	case "FP32":
	case "FP16":
		p.pairs = append(p.pairs, [2]string{"trt_fp16_enable", "1"})
	case "INT8":
		p.pairs = append(p.pairs, [2]string{"trt_int8_enable", "1"})
	default:
		return status.Errorf(status.InvalidArg, "unsupported precision mode '%s' is requested, expected FP32, FP16 or INT8", value)
	}
	return nil
}

// missing returns an error for a provider that the library lacks. It names the package that has it.
func (l *library) missing(list []provider) error {
	if len(list) == 0 {
		return nil
	}
	have, err := l.providers()
	if err != nil {
		return err
	}
	for i := range list {
		if p := &list[i]; !slices.Contains(have, p.name) {
			return status.Errorf(status.Unavailable, "execution accelerator '%s' needs %s, and ONNX Runtime %s at '%s' has %s: "+
				"get %s, and name its library by --backend-config=onnxruntime,library-path=",
				p.accelerator, p.name, l.version, l.path, strings.Join(have, ", "), p.wheel)
		}
	}
	return nil
}

// onDevice returns the settings of a session on a GPU: the configured providers, followed by CUDA for all other operators.
func (s settings) onDevice(id int, device []provider) settings {
	s.providers = nil
	last := cudaProvider
	for _, p := range device {
		if p.kind == cuda {
			last = p
			continue
		}
		s.providers = append(s.providers, p.at(id))
	}
	last.pairs = slices.Concat(s.cuda, last.pairs)
	s.providers = append(s.providers, last.at(id))
	return s
}

// at returns the provider with a device id.
func (p provider) at(id int) provider {
	p.pairs = append(slices.Clone(p.pairs), [2]string{"device_id", strconv.Itoa(id)})
	return p
}
