//go:build cgo

package openvino

import (
	"runtime"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/precision"
)

// hints are the values of INFERENCE_PRECISION_HINT for the declared precisions. int8 is a property of the file: the hint is for its parts
// that are not quantised.
var hints = map[precision.Precision]string{precision.FP32: "f32", precision.BF16: "bf16", precision.FP16: "f16"}

// declare applies the declared precision of a version. hint is the value of INFERENCE_PRECISION_HINT, key the parameter that gave it;
// both are empty where the configuration has neither it nor HINT_BF16.
func (o *settings) declare(s *backends.Settings, key, hint string) (err error) {
	if o.precision, err = precision.Declared(s.Config, s.Version); err != nil {
		return inParameter(err)
	}
	want, ok := hints[o.precision]
	switch {
	case !ok:
		return nil
	case hint != "" && hint != want:
		return inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares %s, and parameter '%s' says %s: remove one of the two",
			precision.Key, o.precision, key, hint))
	}
	o.properties[keyPrecision] = want
	return nil
}

// inParameter attaches the rule and the parameter to err.
func inParameter(err error) error {
	return config.Coded(config.Mismatch, "parameters."+precision.Key, err)
}

// checkFile refuses a file that does not have the declared precision: int8 is one of the file, and no other precision is computed from a
// quantised one.
func (o *settings) checkFile(s *backends.Settings, path string) error {
	if o.precision == precision.None {
		return nil
	}
	found, err := precision.OfFile(path)
	if err != nil {
		return inParameter(status.Errorf(status.InvalidArg, "%w", err))
	}
	quantised := found == precision.INT8 || found == precision.Blocks
	switch {
	case o.precision == precision.INT8 && found == precision.None:
		return inParameter(status.Errorf(status.Unsupported, "parameter '%s' declares int8, and whether '%s' is quantised can be read of ONNX files and OpenVINO's IR only: "+
			"convert it, or remove the parameter", precision.Key, path))
	case o.precision == precision.INT8 && found != precision.INT8:
		err = inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares int8, and '%s' is not quantised: expected a file with operators of 8 bit integers",
			precision.Key, path))
		return config.WithFix(err, "quantise an ONNX file with 'tutti quantize "+s.ModelDir+" --to int8', and an IR with NNCF")
	case o.precision != precision.INT8 && quantised:
		err = inParameter(status.Errorf(status.InvalidArg, "parameter '%s' declares %s, and '%s' is quantised (%s)", precision.Key, o.precision, path, found))
		return config.WithFix(err, "declare int8 for this version, or put the file of the original model there")
	}
	return nil
}

// checkCompiled refuses a device that computes in another precision than the declared one: OpenVINO takes f32 then, without an error.
func (m *model) checkCompiled(o *settings) error {
	want, ok := hints[o.precision]
	if got := m.compiled.text(keyPrecision); ok && got != want {
		err := inParameter(status.Errorf(status.Unsupported, "parameter '%s' declares %s, and device %s of this machine computes in %s (%s, %s)",
			precision.Key, o.precision, o.device, got, precision.Machine(), runtime.GOARCH))
		return config.WithFix(err, "declare a precision that 'tutti doctor' lists for this processor")
	}
	return nil
}

// precisionOf returns what Precision reports: the declared precision, or another one than fp32 that was not declared.
func (m *model) precisionOf(o *settings, path string) precision.Precision {
	if o.precision != precision.None {
		return o.precision
	}
	if found, err := precision.OfFile(path); err == nil && found != precision.None && found != precision.FP32 {
		return found
	}
	for p, hint := range hints {
		if p != precision.FP32 && m.compiled.text(keyPrecision) == hint {
			return p
		}
	}
	return precision.None
}

var _ backends.PreciseModel = (*model)(nil)

// Precision implements backends.PreciseModel.
func (m *model) Precision() string { return string(m.precision) }
