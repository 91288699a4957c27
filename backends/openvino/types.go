package openvino

import (
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/tensor"
)

// elementTypes are the values of ov_element_type_e.
var elementTypes = bind.Types{
	{Name: "dynamic", DType: tensor.Invalid},
	{Name: "boolean", DType: tensor.Bool},
	{Name: "bf16", DType: tensor.BF16},
	{Name: "f16", DType: tensor.FP16},
	{Name: "f32", DType: tensor.FP32},
	{Name: "f64", DType: tensor.FP64},
	{Name: "i4", DType: tensor.Invalid},
	{Name: "i8", DType: tensor.Int8},
	{Name: "i16", DType: tensor.Int16},
	{Name: "i32", DType: tensor.Int32},
	{Name: "i64", DType: tensor.Int64},
	{Name: "u1", DType: tensor.Invalid},
	{Name: "u2", DType: tensor.Invalid},
	{Name: "u3", DType: tensor.Invalid},
	{Name: "u4", DType: tensor.Invalid},
	{Name: "u6", DType: tensor.Invalid},
	{Name: "u8", DType: tensor.Uint8},
	{Name: "u16", DType: tensor.Uint16},
	{Name: "u32", DType: tensor.Uint32},
	{Name: "u64", DType: tensor.Uint64},
	{Name: "nf4", DType: tensor.Invalid},
	{Name: "f8e4m3", DType: tensor.Invalid},
	{Name: "f8e5m2", DType: tensor.Invalid},
	{Name: "string", DType: tensor.Bytes},
	{Name: "f4e2m1", DType: tensor.Invalid},
	{Name: "f8e8m0", DType: tensor.Invalid},
}
