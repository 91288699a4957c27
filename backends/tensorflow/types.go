package tensorflow

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// tfTypes are the runtime's element types in the order of its own numbers.
var tfTypes = [...]struct {
	name  string
	dtype tensor.DType
}{
	{"invalid", tensor.Invalid},
	{"float", tensor.FP32},
	{"double", tensor.FP64},
	{"int32", tensor.Int32},
	{"uint8", tensor.Uint8},
	{"int16", tensor.Int16},
	{"int8", tensor.Int8},
	{"string", tensor.Bytes},
	{"complex64", tensor.Invalid},
	{"int64", tensor.Int64},
	{"bool", tensor.Bool},
	{"qint8", tensor.Invalid},
	{"quint8", tensor.Invalid},
	{"qint32", tensor.Invalid},
	{"bfloat16", tensor.BF16},
	{"qint16", tensor.Invalid},
	{"quint16", tensor.Invalid},
	{"uint16", tensor.Uint16},
	{"complex128", tensor.Invalid},
	{"half", tensor.FP16},
	{"resource", tensor.Invalid},
	{"variant", tensor.Invalid},
	{"uint32", tensor.Uint32},
	{"uint64", tensor.Uint64},
	{"float8_e5m2", tensor.Invalid},
	{"float8_e4m3fn", tensor.Invalid},
	{"float8_e4m3fnuz", tensor.Invalid},
	{"float8_e4m3b11fnuz", tensor.Invalid},
	{"float8_e5m2fnuz", tensor.Invalid},
	{"int4", tensor.Invalid},
	{"uint4", tensor.Invalid},
	{"int2", tensor.Invalid},
	{"uint2", tensor.Invalid},
}

// reference is added to the number of a type when a result is a variable of the older kind; a run gives its value.
const reference = 100

// dtypeOf returns the element type behind a number of the runtime's, or Invalid.
func dtypeOf(tf int) tensor.DType {
	if tf >= 0 && tf < len(tfTypes) {
		return tfTypes[tf].dtype
	}
	return tensor.Invalid
}

func tfTypeName(tf int) string {
	if tf >= 0 && tf < len(tfTypes) {
		return tfTypes[tf].name
	}
	return fmt.Sprintf("number %d", tf)
}
