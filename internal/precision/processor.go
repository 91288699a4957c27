package precision

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/procfs"
)

// Feature is something that the processor computes fast.
type Feature string

// The features, with the names that vendors use.
const (
	VNNI       Feature = "VNNI"        // x86: products of 8 bit integers, of 512 or 256 bits
	AMXInt8    Feature = "AMX-INT8"    // x86: tiles of 8 bit integers
	AVX512BF16 Feature = "AVX512-BF16" // x86: products of bfloat16
	AMXBF16    Feature = "AMX-BF16"    // x86: tiles of bfloat16
	AVX512FP16 Feature = "AVX512-FP16" // x86: arithmetic of half precision
	AMXFP16    Feature = "AMX-FP16"    // x86: tiles of half precision
	DotProd    Feature = "DotProd"     // arm64: products of 8 bit integers
	I8MM       Feature = "I8MM"        // arm64: matrix products of 8 bit integers
	ArmBF16    Feature = "BF16"        // arm64: products of bfloat16
	ArmFP16    Feature = "FP16"        // arm64: arithmetic of half precision
)

// features lists the flags of /proc/cpuinfo, of x86 and of arm64.
var features = []struct {
	flag string
	is   Feature
}{
	{"avx512_vnni", VNNI},
	{"avx_vnni", VNNI},
	{"amx_int8", AMXInt8},
	{"avx512_bf16", AVX512BF16},
	{"amx_bf16", AMXBF16},
	{"avx512_fp16", AVX512FP16},
	{"amx_fp16", AMXFP16},
	{"asimddp", DotProd},
	{"i8mm", I8MM},
	{"bf16", ArmBF16},
	{"asimdhp", ArmFP16},
}

// Processor is what the processor of a machine can do.
type Processor struct {
	Model    string // as the system names it; may be empty
	Features []Feature
}

// Machine returns the processor of this machine. It is read once.
var Machine = sync.OnceValue(func() Processor {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Processor{}
	}
	list, err := fs.CPUInfo()
	if err != nil || len(list) == 0 {
		return Processor{}
	}
	return ProcessorOf(list[0].ModelName, list[0].Flags)
})

// ProcessorOf returns the processor with these flags of /proc/cpuinfo.
func ProcessorOf(model string, flags []string) Processor {
	p := Processor{Model: model}
	for _, f := range features {
		if slices.Contains(flags, f.flag) && !slices.Contains(p.Features, f.is) {
			p.Features = append(p.Features, f.is)
		}
	}
	return p
}

// Has reports whether the processor has one of the features.
func (p Processor) Has(list ...Feature) bool {
	return slices.ContainsFunc(list, func(f Feature) bool { return slices.Contains(p.Features, f) })
}

// ExactInt8 reports whether sums of products of 8 bit integers are exact. Without the instructions for them, x86 adds pairs of products in
// 16 bits, which saturate.
func (p Processor) ExactInt8() bool { return p.Has(VNNI, AMXInt8, DotProd, I8MM) }

// FastBF16 reports whether the processor has instructions for bfloat16.
func (p Processor) FastBF16() bool { return p.Has(AVX512BF16, AMXBF16, ArmBF16) }

// FastFP16 reports whether the processor has arithmetic of half precision.
func (p Processor) FastFP16() bool { return p.Has(AVX512FP16, AMXFP16, ArmFP16) }

// String describes the processor, for example "Intel Xeon: int8 by VNNI, AMX-INT8; bf16 by AVX512-BF16; no fp16".
func (p Processor) String() string {
	var parts []string
	add := func(name Precision, list ...Feature) {
		var has []string
		for _, f := range list {
			if p.Has(f) {
				has = append(has, string(f))
			}
		}
		if len(has) == 0 {
			parts = append(parts, "no "+string(name))
			return
		}
		parts = append(parts, string(name)+" by "+strings.Join(has, ", "))
	}
	add(INT8, VNNI, AMXInt8, DotProd, I8MM)
	add(BF16, AVX512BF16, AMXBF16, ArmBF16)
	add(FP16, AVX512FP16, AMXFP16, ArmFP16)
	text := strings.Join(parts, "; ")
	if p.Model != "" {
		text = p.Model + ": " + text
	}
	return text
}
