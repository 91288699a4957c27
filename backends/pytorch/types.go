package pytorch

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// scalars are the supported element types by value of PyTorch's ScalarType.
var scalars = map[int32]tensor.DType{
	0: tensor.Uint8, 1: tensor.Int8, 2: tensor.Int16, 3: tensor.Int32, 4: tensor.Int64,
	5: tensor.FP16, 6: tensor.FP32, 7: tensor.FP64, 11: tensor.Bool, 15: tensor.BF16,
	27: tensor.Uint16, 28: tensor.Uint32, 29: tensor.Uint64,
	stringList: tensor.Bytes,
}

// stringList is the shim's number for List[str].
const stringList = 1000

// scalarOf returns the ScalarType of a data type.
func scalarOf(d tensor.DType) (int32, bool) {
	for n, have := range scalars {
		if have == d {
			return n, true
		}
	}
	return 0, false
}

// scalarName returns the name of an element type for errors.
func scalarName(n int32) string {
	if d, ok := scalars[n]; ok {
		return d.ConfigName()
	}
	return fmt.Sprintf("PyTorch's element type %d", n)
}
