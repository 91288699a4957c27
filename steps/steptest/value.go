package steptest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tutti-server/tutti/core/tensor"
)

// Value is the content of a tensor in a test. Dims are all its dimensions, the batch dimension
// among them where the case has one. The zero Value is an optional input that is absent, or
// an output that is not compared.
type Value struct {
	DType tensor.DType
	Dims  []int64
	Data  []byte
}

// F32 returns a FP32 value.
func F32(dims []int64, v ...float32) Value {
	out := Value{DType: tensor.FP32, Dims: dims}
	for _, x := range v {
		out.Data = binary.LittleEndian.AppendUint32(out.Data, math.Float32bits(x))
	}
	return out
}

// I32 returns an INT32 value.
func I32(dims []int64, v ...int32) Value {
	out := Value{DType: tensor.Int32, Dims: dims}
	for _, x := range v {
		out.Data = binary.LittleEndian.AppendUint32(out.Data, uint32(x))
	}
	return out
}

// I64 returns an INT64 value.
func I64(dims []int64, v ...int64) Value {
	out := Value{DType: tensor.Int64, Dims: dims}
	for _, x := range v {
		out.Data = binary.LittleEndian.AppendUint64(out.Data, uint64(x))
	}
	return out
}

// U8 returns a UINT8 value.
func U8(dims []int64, v ...uint8) Value {
	return Value{DType: tensor.Uint8, Dims: dims, Data: v}
}

// Text returns a BYTES value, one element per string.
func Text(dims []int64, v ...string) Value {
	out := Value{DType: tensor.Bytes, Dims: dims}
	for _, s := range v {
		out.Data = tensor.AppendBytes(out.Data, s)
	}
	return out
}

// String formats the value for a failure message.
func (v Value) String() string {
	switch {
	case v.DType == tensor.FP32 && len(v.Data)%4 == 0:
		return fmt.Sprintf("%s%v %v", v.DType, v.Dims, floats(v.Data))
	case v.DType == tensor.Int64 && len(v.Data)%8 == 0:
		n := make([]int64, len(v.Data)/8)
		for i := range n {
			n[i] = int64(binary.LittleEndian.Uint64(v.Data[8*i:]))
		}
		return fmt.Sprintf("%s%v %v", v.DType, v.Dims, n)
	default:
		return fmt.Sprintf("%s%v %q", v.DType, v.Dims, v.Data)
	}
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// differ describes how got differs from want, or returns "". FP32 elements may differ by
// tolerance.
func differ(want, got Value, tolerance float32) string {
	if want.DType != got.DType || fmt.Sprint(want.Dims) != fmt.Sprint(got.Dims) || len(want.Data) != len(got.Data) {
		return fmt.Sprintf("is %v, expected %v", got, want)
	}
	if want.DType != tensor.FP32 {
		if string(want.Data) != string(got.Data) {
			return fmt.Sprintf("is %v, expected %v", got, want)
		}
		return ""
	}
	w, g := floats(want.Data), floats(got.Data)
	for i := range w {
		same := w[i] == g[i] || w[i] != w[i] && g[i] != g[i] // equal, or both not numbers
		if d := w[i] - g[i]; !same && !(d <= tolerance && d >= -tolerance) {
			return fmt.Sprintf("element %d is %v, expected %v within %v", i, g[i], w[i], tolerance)
		}
	}
	return ""
}
