package ocr_test

import (
	"encoding/binary"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/steptest"
)

func i32(dims []int64, v ...int32) steptest.Value {
	out := steptest.Value{DType: tensor.Int32, Dims: dims}
	for _, x := range v {
		out.Data = binary.LittleEndian.AppendUint32(out.Data, uint32(x))
	}
	return out
}
