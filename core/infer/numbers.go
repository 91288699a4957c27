package infer

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
)

// decode appends b's elements of size bytes, each as read understands it.
func decode[T any](dst []T, b []byte, size int, read func([]byte) T) []T {
	for ; len(b) >= size; b = b[size:] {
		dst = append(dst, read(b[:size]))
	}
	return dst
}

func readUint(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	default:
		return binary.LittleEndian.Uint64(b)
	}
}

func readInt(b []byte) int64 {
	unused := 64 - 8*len(b)
	return int64(readUint(b)<<unused) >> unused
}

func readFloat(b []byte) float64 {
	if len(b) == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

func readBF16(b []byte) float64 { return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b))) }

func readFP16(b []byte) float64 { return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b))) }

// appendFixed appends v as C's %f prints it.
func appendFixed(dst []byte, v float64) []byte {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		return strconv.AppendFloat(dst, v, 'f', 6, 64)
	}
	if math.Signbit(v) {
		dst = append(dst, '-')
	}
	if math.IsNaN(v) {
		return append(dst, "nan"...)
	}
	return append(dst, "inf"...)
}
