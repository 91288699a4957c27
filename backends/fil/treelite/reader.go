package treelite

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/status"
)

// reader reads little-endian values. After an error all are 0.
type reader struct {
	rest []byte
	size int
	err  error
}

func invalidf(format string, args ...any) error {
	return status.Errorf(status.InvalidArg, format, args...)
}

// fail sets the first error, with the position.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = status.Prefixf(invalidf(format, args...), "byte %d: ", r.size-len(r.rest))
	}
}

// bytes consumes n bytes. It returns nil after an error.
func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail("the file ends, expected %d bytes more", n)
	}
	if r.err != nil {
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) uint8() uint8 {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) int32() int32     { return int32(r.uint32()) }
func (r *reader) float32() float32 { return math.Float32frombits(r.uint32()) }

// block consumes an array of elements of a size: its length, then the elements.
func (r *reader) block(size int) []byte {
	n := r.uint64()
	if n > uint64(len(r.rest)/size) {
		r.fail("an array has %d elements of %d bytes, but the file has only %d bytes more", n, size, len(r.rest))
		return nil
	}
	return r.bytes(n * uint64(size))
}

// text consumes an array of characters.
func (r *reader) text() string { return string(r.block(1)) }

// array consumes an array.
func array[T any](r *reader, size int, get func([]byte) T) []T {
	b := r.block(size)
	out := make([]T, 0, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		out = append(out, get(b))
	}
	return out
}

func (r *reader) int32s() []int32 {
	return array(r, 4, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) })
}

func (r *reader) uint32s() []uint32   { return array(r, 4, binary.LittleEndian.Uint32) }
func (r *reader) uint64s() []uint64   { return array(r, 8, binary.LittleEndian.Uint64) }
func (r *reader) float64s() []float64 { return array(r, 8, float64At) }

func float64At(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }

// reals consumes an array of FP32 or FP64 numbers.
func (r *reader) reals(double bool) []float64 {
	if double {
		return r.float64s()
	}
	return array(r, 4, func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) })
}

// skip consumes arrays of elements of the given sizes.
func (r *reader) skip(sizes ...int) {
	for _, size := range sizes {
		r.block(size)
	}
}

// options consumes the optional fields of an extension slot, which later minor versions may have. Treelite ignores those that it does
// not know.
func (r *reader) options() {
	n := r.int32()
	if n < 0 {
		r.fail("an extension slot has %d fields", n)
	}
	for ; n > 0 && r.err == nil; n-- {
		r.skip(1) // the name
		size, length := r.uint64(), r.uint64()
		if size > 0 && length > uint64(len(r.rest))/size {
			r.fail("an optional field has %d elements of %d bytes, but the file has only %d bytes more", length, size, len(r.rest))
			return
		}
		r.bytes(size * length)
	}
}
