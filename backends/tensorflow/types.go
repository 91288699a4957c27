package tensorflow

import (
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/tensor"
)

// tfTypes are the values of TF_DataType.
var tfTypes = bind.Types{
	{Name: "invalid", DType: tensor.Invalid},
	{Name: "float", DType: tensor.FP32},
	{Name: "double", DType: tensor.FP64},
	{Name: "int32", DType: tensor.Int32},
	{Name: "uint8", DType: tensor.Uint8},
	{Name: "int16", DType: tensor.Int16},
	{Name: "int8", DType: tensor.Int8},
	{Name: "string", DType: tensor.Bytes},
	{Name: "complex64", DType: tensor.Invalid},
	{Name: "int64", DType: tensor.Int64},
	{Name: "bool", DType: tensor.Bool},
	{Name: "qint8", DType: tensor.Invalid},
	{Name: "quint8", DType: tensor.Invalid},
	{Name: "qint32", DType: tensor.Invalid},
	{Name: "bfloat16", DType: tensor.BF16},
	{Name: "qint16", DType: tensor.Invalid},
	{Name: "quint16", DType: tensor.Invalid},
	{Name: "uint16", DType: tensor.Uint16},
	{Name: "complex128", DType: tensor.Invalid},
	{Name: "half", DType: tensor.FP16},
	{Name: "resource", DType: tensor.Invalid},
	{Name: "variant", DType: tensor.Invalid},
	{Name: "uint32", DType: tensor.Uint32},
	{Name: "uint64", DType: tensor.Uint64},
	{Name: "float8_e5m2", DType: tensor.Invalid},
	{Name: "float8_e4m3fn", DType: tensor.Invalid},
	{Name: "float8_e4m3fnuz", DType: tensor.Invalid},
	{Name: "float8_e4m3b11fnuz", DType: tensor.Invalid},
	{Name: "float8_e5m2fnuz", DType: tensor.Invalid},
	{Name: "int4", DType: tensor.Invalid},
	{Name: "uint4", DType: tensor.Invalid},
	{Name: "int2", DType: tensor.Invalid},
	{Name: "uint2", DType: tensor.Invalid},
}

// reference is added to the number of the type of a reference variable, as graphs of TensorFlow 1 have. A run returns its value.
const reference = 100
