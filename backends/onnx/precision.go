//go:build cgo

package onnx

import (
	"log/slog"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	// fastBF16 is the session option with which products of FP32 tensors are computed in bfloat16, on arm64 only.
	fastBF16 = "mlas.enable_gemm_fastmath_arm64_bfloat16"
	// keyTF32 is the option of the CUDA provider with which FP32 products are computed in TF32, which is its default.
	keyTF32 = "use_tf32"
)

// precise checks the declared precision of a version against its file and the machine, and sets the session options that it needs.
// machine is the processor and arch its architecture, by the names of Go.
//
// In ONNX Runtime the precision is a property of the file. Two exceptions: on arm64 an FP32 file can be computed in bfloat16, and the
// CUDA provider computes FP32 in TF32 unless use_tf32 is 0.
func (m *model) precise(s *backends.Settings, set *settings, machine precision.Processor, arch string) error {
	declared, err := precision.Declared(s.Config, s.Version)
	if err != nil {
		return inParameter(err)
	}
	found, err := precision.OfONNX(m.path)
	if declared == precision.None {
		if err == nil && found != precision.FP32 {
			m.precision = found
		}
		return nil // a file that is no ONNX file is the runtime's to refuse
	}
	m.precision = declared
	if err != nil {
		return inParameter(status.Errorf(status.InvalidArg, "%w", err))
	}
	if name := accelerated(s.Config); name != "" {
		return inParameter(status.Errorf(status.Unsupported, "parameter '%s' declares %s, and execution accelerator '%s' has parameters of its own for that: remove one of the two",
			precision.Key, declared, name))
	}
	host := slices.ContainsFunc(m.places, func(p tensor.Place) bool { return p.Kind != tensor.Device })
	switch {
	case declared == precision.BF16 && found == precision.FP32 && host && arch == "arm64":
		return set.inBF16(machine)
	case declared != found:
		return mismatch(s, declared, found, m.path, arch)
	case declared == precision.FP32:
		return set.inFP32()
	case declared == precision.INT8:
		if host && !machine.ExactInt8() {
			s.Log.Warn("this processor adds 8 bit products in 16 bits, which saturate: measure the version on this machine", slog.String("processor", machine.String()))
		}
		return nil
	case host && !hasKernels(declared, machine, arch):
		return noKernels(declared, machine, arch)
	}
	return nil
}

// hasKernels reports whether ONNX Runtime computes in a precision on the host. Elsewhere it converts to FP32 before each operator, which
// is slower than a file in FP32.
func hasKernels(p precision.Precision, machine precision.Processor, arch string) bool {
	return p == precision.FP16 && arch == "arm64" && machine.FastFP16()
}

func noKernels(p precision.Precision, machine precision.Processor, arch string) error {
	err := inParameter(status.Errorf(status.Unsupported, "parameter '%s' declares %s, and ONNX Runtime has no kernels for it on this processor (%s, %s): "+
		"it would convert to fp32 before each operator", precision.Key, p, arch, machine))
	return config.WithFix(err, `take backend: "openvino", which computes the FP32 file in `+string(p)+" where the processor can, or an instance_group of KIND_GPU")
}

// inBF16 sets the option for products in bfloat16.
func (s *settings) inBF16(machine precision.Processor) error {
	if !machine.FastBF16() {
		return noKernels(precision.BF16, machine, "arm64")
	}
	for _, e := range s.entries {
		if e[0] == fastBF16 && e[1] != "1" {
			return inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares bf16, and parameter '%s' is '%s': remove one of the two", precision.Key, fastBF16, e[1]))
		}
	}
	s.entry(fastBF16, "1")
	return nil
}

// inFP32 turns off what computes FP32 files in another precision.
func (s *settings) inFP32() error {
	for _, e := range s.entries {
		if e[0] == fastBF16 && e[1] == "1" {
			return inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares fp32, and parameter '%s' computes in bfloat16: remove one of the two", precision.Key, fastBF16))
		}
	}
	i := slices.IndexFunc(s.cuda, func(e [2]string) bool { return e[0] == keyTF32 })
	if i >= 0 && s.cuda[i][1] == "1" {
		return inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares fp32, and parameter '%s' computes in TF32: remove one of the two", precision.Key, keyTF32))
	}
	if i < 0 {
		s.cuda = append(s.cuda, [2]string{keyTF32, "0"})
	}
	return nil
}

// mismatch returns the error of a file in another precision than the declared one.
func mismatch(s *backends.Settings, declared, found precision.Precision, path, arch string) error {
	err := inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares %s for version %d, and '%s' is %s", precision.Key, declared, s.Version, path, found))
	switch {
	case declared == precision.FP32:
		return config.WithFix(err, "declare "+string(found)+" for this version, or put the file of the original model there")
	case declared == precision.BF16 && arch == "amd64":
		return config.WithFix(err, `take backend: "openvino", which computes the FP32 file in bf16 where the processor can`)
	}
	return config.WithFix(err, "make a version that is: tutti quantize "+s.ModelDir+" --to "+string(declared))
}

// inParameter attaches the rule and the parameter to err.
func inParameter(err error) error {
	return config.Coded(config.Mismatch, "parameters."+precision.Key, err)
}

// accelerated returns an execution accelerator that has a precision of its own, "" if there is none.
func accelerated(cfg *modelconfig.ModelConfig) string {
	acc := cfg.GetOptimization().GetExecutionAccelerators()
	for _, a := range slices.Concat(acc.GetCpuExecutionAccelerator(), acc.GetGpuExecutionAccelerator()) {
		if a.GetName() != cudaProvider.accelerator {
			return a.GetName()
		}
	}
	return ""
}

var _ backends.PreciseModel = (*model)(nil)

// Precision implements backends.PreciseModel.
func (m *model) Precision() string { return string(m.precision) }
