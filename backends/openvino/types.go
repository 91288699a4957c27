package openvino

import "C"

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// elementTypes are the runtime's element types in the order of its own numbers.
var elementTypes = [...]struct {
	name  string
	dtype tensor.DType
}{
	{"dynamic", tensor.Invalid},
	{"boolean", tensor.Bool},
	{"bf16", tensor.BF16},
	{"f16", tensor.FP16},
	{"f32", tensor.FP32},
	{"f64", tensor.FP64},
	{"i4", tensor.Invalid},
	{"i8", tensor.Int8},
	{"i16", tensor.Int16},
	{"i32", tensor.Int32},
	{"i64", tensor.Int64},
	{"u1", tensor.Invalid},
	{"u2", tensor.Invalid},
	{"u3", tensor.Invalid},
	{"u4", tensor.Invalid},
	{"u6", tensor.Invalid},
	{"u8", tensor.Uint8},
	{"u16", tensor.Uint16},
	{"u32", tensor.Uint32},
	{"u64", tensor.Uint64},
	{"nf4", tensor.Invalid},
	{"f8e4m3", tensor.Invalid},
	{"f8e5m2", tensor.Invalid},
	{"string", tensor.Bytes},
	{"f4e2m1", tensor.Invalid},
	{"f8e8m0", tensor.Invalid},
}

// dtypeOf returns the element type behind a number of the runtime's, or Invalid.
func dtypeOf(ov C.int) tensor.DType {
	if ov >= 0 && int(ov) < len(elementTypes) {
		return elementTypes[ov].dtype
	}
	return tensor.Invalid
}

func elementName(ov C.int) string {
	if ov >= 0 && int(ov) < len(elementTypes) {
		return elementTypes[ov].name
	}
	return fmt.Sprintf("number %d", ov)
}
