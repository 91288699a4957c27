package repository

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/tensor"
)

// compare returns the first difference between a tensor and the expected one, or nil.
func (g *goldenTensor) compare(got *tensor.Tensor, near tolerance) error {
	d, want, err := g.encode()
	if err != nil {
		return err
	}
	shape := tensor.Of(g.Shape...)
	switch {
	case got.DType != d:
		return fmt.Errorf("is %s, expected %s", got.DType, d)
	case !got.Shape.Equal(shape):
		return fmt.Errorf("has shape %s, expected %s", got.Shape, shape)
	case d == tensor.Bytes:
		return compareTexts(got.Bytes(), want)
	}
	size := d.Size()
	for i := 0; i*size < len(want); i++ {
		a, b := got.Bytes()[i*size:][:size], want[i*size:][:size]
		if bytes.Equal(a, b) || isFloat(d) && withinTolerance(toFloat(d, a), toFloat(d, b), near) {
			continue
		}
		return fmt.Errorf("has %s at element %d, expected %s", formatElement(d, a), i, formatElement(d, b))
	}
	return nil
}

func compareTexts(got, want []byte) error {
	for i := 0; len(want) > 0; i++ {
		var a, b []byte
		var ok bool
		if b, want, ok = tensor.NextBytes(want); !ok {
			break // it was checked
		}
		if a, got, ok = tensor.NextBytes(got); !ok || !bytes.Equal(a, b) {
			return fmt.Errorf("has %q at element %d, expected %q", a, i, b)
		}
	}
	return nil
}

// isFloat reports whether the tolerance applies to a type.
func isFloat(d tensor.DType) bool {
	return d == tensor.FP16 || d == tensor.BF16 || d == tensor.FP32 || d == tensor.FP64
}

func withinTolerance(got, want float64, near tolerance) bool {
	switch {
	case math.IsNaN(want):
		return math.IsNaN(got)
	case math.IsInf(want, 0) || math.IsInf(got, 0):
		return got == want
	}
	return math.Abs(got-want) <= near.Absolute+near.Relative*math.Abs(want)
}

// toFloat decodes a floating-point element.
func toFloat(d tensor.DType, b []byte) float64 {
	switch d {
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b)))
	case tensor.FP16:
		return float64(tensor.FP16ToFloat32(binary.LittleEndian.Uint16(b)))
	default:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
}

// formatElement prints an element.
func formatElement(d tensor.DType, b []byte) string {
	if isFloat(d) {
		bits := 64
		if d != tensor.FP64 {
			bits = 32
		}
		return strconv.FormatFloat(toFloat(d, b), 'g', -1, bits)
	}
	wide := make([]byte, 8)
	copy(wide, b)
	v := binary.LittleEndian.Uint64(wide)
	switch d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		unused := 64 - 8*d.Size()
		return strconv.FormatInt(int64(v<<unused)>>unused, 10)
	default:
		return strconv.FormatUint(v, 10)
	}
}
