package tensorop

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// arithmetic is the numeric code of one element type.
type arithmetic interface {
	unary(u *unary, out, in *tensor.Tensor)
	binary(p *binary, b *backends.Batch, x *scratch, out, one, two *tensor.Tensor)
	reduce(r *reduce, out, in *tensor.Tensor, g lines)
	// cast reports whether every element fits the type of out.
	cast(out, in *tensor.Tensor, mode overflow) bool
}

// number implements arithmetic for elements of type T.
type number[T tensor.Number] struct{}

// numbers is indexed by type. BOOL is computed as bytes. FP16 and BF16 have no entry: they
// are converted to FP32 first.
var numbers = [...]arithmetic{
	tensor.Bool: number[uint8]{},
	tensor.Int8: number[int8]{}, tensor.Int16: number[int16]{}, tensor.Int32: number[int32]{}, tensor.Int64: number[int64]{},
	tensor.Uint8: number[uint8]{}, tensor.Uint16: number[uint16]{}, tensor.Uint32: number[uint32]{}, tensor.Uint64: number[uint64]{},
	tensor.FP32: number[float32]{}, tensor.FP64: number[float64]{},
}

// copier moves elements of one size.
type copier interface {
	spread(w *nest, dst, src *tensor.Tensor)
	pad(m *moving, p *pad, out, in *tensor.Tensor, value uint64)
	take(t *taking, out, in *tensor.Tensor)
	choose(w *nest, out *tensor.Tensor, in []tensor.Tensor)
}

// bits is an element of any type, moved as it is.
type bits interface {
	uint8 | uint16 | uint32 | uint64
}

// word implements copier for elements of the size of T.
type word[T bits] struct{}

// copierOf returns the copier for elements of a type of fixed size.
func copierOf(d tensor.DType) copier {
	switch d.Size() {
	case 1:
		return word[uint8]{}
	case 2:
		return word[uint16]{}
	case 4:
		return word[uint32]{}
	default:
		return word[uint64]{}
	}
}

// isHalf reports whether a type has 16 bits and is computed as FP32.
func isHalf(d tensor.DType) bool { return d == tensor.FP16 || d == tensor.BF16 }

// truth returns a BOOL element.
func truth(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// isFloat reports whether T is a floating-point type.
func isFloat[T tensor.Number]() bool {
	one := T(1)
	return one/2 != 0
}

// isNaN reports whether v is not a number. Integers never are.
func isNaN[T tensor.Number](v T) bool { return v != v } //nolint:gocritic // only a NaN differs from itself
