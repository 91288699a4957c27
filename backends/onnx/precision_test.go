//go:build cgo

package onnx_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/precision"
)

// declared returns the configuration that declares a precision.
func declared(value string) string {
	return `parameters { key: "precision" value { string_value: "` + value + `" } } `
}

// TestPrecision checks which declared precisions a file has, and what a model reports.
func TestPrecision(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, pbtxt, want, fails, fix string
	}{
		"undeclared":        {file: "mlp", want: ""},
		"undeclared int8":   {file: "mlp_int8", want: "int8"},
		"undeclared fp16":   {file: "mlp_fp16", want: "fp16"},
		"fp32":              {file: "mlp", pbtxt: declared("fp32"), want: "fp32"},
		"int8":              {file: "mlp_int8", pbtxt: declared("int8"), want: "int8"},
		"of this version":   {file: "mlp_int8", pbtxt: declared("fp32, 3=int8"), want: "int8"},
		"of another":        {file: "mlp", pbtxt: declared("2=int8"), want: ""},
		"not quantised":     {file: "mlp", pbtxt: declared("int8"), fails: "parameter 'precision' declares int8 for version 3, and '", fix: "make a version that is: tutti quantize "},
		"quantised":         {file: "mlp_int8", pbtxt: declared("fp32"), fails: "model.onnx' is int8", fix: "declare int8 for this version, or put the file of the original model there"},
		"half":              {file: "mlp_fp16", pbtxt: declared("int8"), fails: "model.onnx' is fp16"},
		"unknown":           {file: "mlp", pbtxt: declared("int4"), fails: "'int4' is no precision"},
		"accelerator":       {file: "mlp", pbtxt: declared("fp32") + `optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }`, fails: "execution accelerator 'openvino' has parameters of its own for that"},
		"TF32":              {file: "mlp", pbtxt: declared("fp32") + `parameters { key: "use_tf32" value { string_value: "1" } }`, fails: "declares fp32, and parameter 'use_tf32' computes in TF32"},
		"bfloat16 products": {file: "mlp", pbtxt: declared("fp32") + `parameters { key: "mlas.enable_gemm_fastmath_arm64_bfloat16" value { string_value: "1" } }`, fails: "computes in bfloat16: remove one of the two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tt.file, tt.pbtxt))
			if tt.fails != "" {
				d, _ := config.Diagnosed(err)
				if err == nil || !strings.Contains(err.Error(), tt.fails) || !strings.HasPrefix(d.Fix, tt.fix) || d.Field != "parameters.precision" {
					t.Fatalf("%v (%+v), want %s", err, d, tt.fails)
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

// TestPrecisionOfProcessors checks what the processors of other machines permit, by their flags.
func TestPrecisionOfProcessors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, precision, arch, flags, fails string
		fix                                 string
		entries                             int // session options beyond those of fp32
	}{
		"x86, fp16":               {file: "mlp_fp16", precision: "fp16", arch: "amd64", flags: "avx512_fp16", fails: "ONNX Runtime has no kernels for it on this processor (amd64, cpu: no int8; no bf16; fp16 by AVX512-FP16)"},
		"arm64, fp16":             {file: "mlp_fp16", precision: "fp16", arch: "arm64", flags: "asimdhp"},
		"arm64 without fp16":      {file: "mlp_fp16", precision: "fp16", arch: "arm64", fails: "no kernels for it"},
		"arm64, bf16 of fp32":     {file: "mlp", precision: "bf16", arch: "arm64", flags: "bf16", entries: 1},
		"arm64 without bf16":      {file: "mlp", precision: "bf16", arch: "arm64", fails: "no kernels for it"},
		"x86, bf16 of fp32":       {file: "mlp", precision: "bf16", arch: "amd64", flags: "avx512_bf16", fails: "declares bf16 for version 3, and '", fix: `take backend: "openvino"`},
		"x86 without VNNI, int8":  {file: "mlp_int8", precision: "int8", arch: "amd64"}, // a warning
		"bf16 option of an int8":  {file: "mlp_int8", precision: "bf16", arch: "arm64", flags: "bf16", fails: "model.onnx' is int8", fix: "make a version that is: tutti quantize "},
		"arm64, int8 and DotProd": {file: "mlp_int8", precision: "int8", arch: "arm64", flags: "asimddp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings(t, tt.file, declared(tt.precision))
			entries, err := onnx.Precise(&s, precision.ProcessorOf("cpu", strings.Fields(tt.flags)), tt.arch)
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Fatalf("%v, want %s", err, tt.fails)
			}
			if d, _ := config.Diagnosed(err); !strings.HasPrefix(d.Fix, tt.fix) {
				t.Errorf("fix %q, want %s", d.Fix, tt.fix)
			}
			if entries != tt.entries {
				t.Errorf("%d session options, want %d", entries, tt.entries)
			}
		})
	}
}
