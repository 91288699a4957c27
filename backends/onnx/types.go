package onnx

import "C"

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// ortTypes are the runtime's element types in the order of its own numbers.
var ortTypes = [...]struct {
	name  string
	dtype tensor.DType
}{
	{"undefined", tensor.Invalid},
	{"float", tensor.FP32},
	{"uint8", tensor.Uint8},
	{"int8", tensor.Int8},
	{"uint16", tensor.Uint16},
	{"int16", tensor.Int16},
	{"int32", tensor.Int32},
	{"int64", tensor.Int64},
	{"string", tensor.Bytes},
	{"bool", tensor.Bool},
	{"float16", tensor.FP16},
	{"double", tensor.FP64},
	{"uint32", tensor.Uint32},
	{"uint64", tensor.Uint64},
	{"complex64", tensor.Invalid},
	{"complex128", tensor.Invalid},
	{"bfloat16", tensor.BF16},
	{"float8e4m3fn", tensor.Invalid},
	{"float8e4m3fnuz", tensor.Invalid},
	{"float8e5m2", tensor.Invalid},
	{"float8e5m2fnuz", tensor.Invalid},
	{"uint4", tensor.Invalid},
	{"int4", tensor.Invalid},
	{"float4e2m1", tensor.Invalid},
	{"uint2", tensor.Invalid},
	{"int2", tensor.Invalid},
}

// kinds are the runtime's kinds of values in the order of its own numbers.
var kinds = [...]string{"an unknown kind", "a tensor", "a sequence", "a map", "an opaque value", "a sparse tensor", "an optional"}

// dtypeOf returns the element type behind a number of the runtime's, or Invalid.
func dtypeOf(ort C.int) tensor.DType {
	if ort >= 0 && int(ort) < len(ortTypes) {
		return ortTypes[ort].dtype
	}
	return tensor.Invalid
}

func ortTypeName(ort C.int) string {
	if ort >= 0 && int(ort) < len(ortTypes) {
		return ortTypes[ort].name
	}
	return fmt.Sprintf("number %d", ort)
}

func kindName(kind C.int) string {
	if kind >= 0 && int(kind) < len(kinds) {
		return kinds[kind]
	}
	return kinds[0]
}
