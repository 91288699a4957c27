package onnx

import "C"

import (
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/tensor"
)

// ortTypes are the values of ONNXTensorElementDataType.
var ortTypes = bind.Types{
	{Name: "undefined", DType: tensor.Invalid},
	{Name: "float", DType: tensor.FP32},
	{Name: "uint8", DType: tensor.Uint8},
	{Name: "int8", DType: tensor.Int8},
	{Name: "uint16", DType: tensor.Uint16},
	{Name: "int16", DType: tensor.Int16},
	{Name: "int32", DType: tensor.Int32},
	{Name: "int64", DType: tensor.Int64},
	{Name: "string", DType: tensor.Bytes},
	{Name: "bool", DType: tensor.Bool},
	{Name: "float16", DType: tensor.FP16},
	{Name: "double", DType: tensor.FP64},
	{Name: "uint32", DType: tensor.Uint32},
	{Name: "uint64", DType: tensor.Uint64},
	{Name: "complex64", DType: tensor.Invalid},
	{Name: "complex128", DType: tensor.Invalid},
	{Name: "bfloat16", DType: tensor.BF16},
	{Name: "float8e4m3fn", DType: tensor.Invalid},
	{Name: "float8e4m3fnuz", DType: tensor.Invalid},
	{Name: "float8e5m2", DType: tensor.Invalid},
	{Name: "float8e5m2fnuz", DType: tensor.Invalid},
	{Name: "uint4", DType: tensor.Invalid},
	{Name: "int4", DType: tensor.Invalid},
	{Name: "float4e2m1", DType: tensor.Invalid},
	{Name: "uint2", DType: tensor.Invalid},
	{Name: "int2", DType: tensor.Invalid},
}

// kinds are the values of ONNXType.
var kinds = [...]string{"an unknown kind", "a tensor", "a sequence", "a map", "an opaque value", "a sparse tensor", "an optional"}

func kindName(kind C.int) string {
	if kind >= 0 && int(kind) < len(kinds) {
		return kinds[kind]
	}
	return kinds[0]
}
