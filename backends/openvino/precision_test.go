//go:build cgo

package openvino_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/precision"
)

// quantised is a file with operators of 8 bit integers.
const quantised = `default_model_filename: "../../onnx/testdata/mlp_int8.onnx" `

// param returns the configuration with a parameter.
func param(key, value string) string {
	return `parameters { key: "` + key + `" value { string_value: "` + value + `" } } `
}

// TestPrecision checks which declared precisions a file and this processor have, and what a model reports.
func TestPrecision(t *testing.T) {
	t.Parallel()
	machine := precision.Machine()
	// OpenVINO computes in bf16, with conversions, on processors that have AVX-512 but no instructions for bf16.
	converts := cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ
	without := func(has bool, text string) string {
		if has {
			return ""
		}
		return text
	}
	for name, tt := range map[string]struct{ file, pbtxt, want, fails string }{
		"undeclared":          {file: "mlp", want: ""},
		"undeclared int8":     {file: "mlp", pbtxt: quantised, want: "int8"},
		"fp32":                {file: "mlp", pbtxt: param("precision", "fp32"), want: "fp32"},
		"bf16":                {file: "mlp", pbtxt: param("precision", "bf16"), want: "bf16", fails: without(machine.FastBF16() || converts, "parameter 'precision' declares bf16, and device CPU of this machine computes in f32")},
		"fp16":                {file: "mlp", pbtxt: param("precision", "fp16"), want: "fp16", fails: without(machine.FastFP16(), "parameter 'precision' declares fp16, and device CPU of this machine computes in f32")},
		"int8":                {file: "mlp", pbtxt: quantised + param("precision", "int8"), want: "int8"},
		"int8, rest in bf16":  {file: "mlp", pbtxt: quantised + param("precision", "int8") + param("HINT_BF16", "YES"), want: "int8"},
		"of this version":     {file: "mlp", pbtxt: quantised + param("precision", "fp32, 3=int8"), want: "int8"},
		"the same hint":       {file: "mlp", pbtxt: param("precision", "fp32") + param("INFERENCE_PRECISION_HINT", "f32"), want: "fp32"},
		"no hint":             {file: "mlp", pbtxt: param("precision", "fp32") + param("HINT_BF16", "NO"), want: "fp32"},
		"another hint":        {file: "mlp", pbtxt: param("precision", "fp32") + param("INFERENCE_PRECISION_HINT", "bf16"), fails: "parameter 'precision' declares fp32, and parameter 'INFERENCE_PRECISION_HINT' says bf16: remove one of the two"},
		"HINT_BF16":           {file: "mlp", pbtxt: param("precision", "fp16") + param("HINT_BF16", "1"), fails: "parameter 'precision' declares fp16, and parameter 'HINT_BF16' says bf16"},
		"not quantised":       {file: "mlp", pbtxt: param("precision", "int8"), fails: "mlp.xml' is not quantised: expected a file with operators of 8 bit integers"},
		"quantised":           {file: "mlp", pbtxt: quantised + param("precision", "fp32"), fails: "mlp_int8.onnx' is quantised (int8)"},
		"of an unread format": {file: "mlp", pbtxt: `default_model_filename: "frozen.pb" ` + param("precision", "int8"), fails: "can be read of ONNX files and OpenVINO's IR only"},
		"fp32, unread format": {file: "mlp", pbtxt: `default_model_filename: "frozen.pb" ` + param("precision", "fp32"), want: "fp32"},
		"unknown":             {file: "mlp", pbtxt: param("precision", "f32"), fails: "'f32' is no precision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tt.file, tt.pbtxt))
			if tt.fails != "" {
				d, _ := config.Diagnosed(err)
				if err == nil || !strings.Contains(err.Error(), tt.fails) || d.Field != "parameters.precision" {
					t.Fatalf("%v, want %s", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := m.(backends.PreciseModel).Precision(); got != tt.want {
				t.Errorf("precision %q, want %q", got, tt.want)
			}
		})
	}
}
