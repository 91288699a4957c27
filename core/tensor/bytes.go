package tensor

import (
	"encoding/binary"
	"fmt"
)

// lengthSize is the size of the length before each BYTES element.
const lengthSize = 4

// AppendBytes appends one BYTES element, length first, to dst.
func AppendBytes[T []byte | string](dst []byte, elem T) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(elem)))
	return append(dst, elem...)
}

// EncodedLen returns how many bytes AppendBytes adds for an element of n bytes.
func EncodedLen(n int) int { return lengthSize + n }

// NextBytes splits the first BYTES element off b. ok is false when b does not hold
// a whole one.
func NextBytes(b []byte) (elem, rest []byte, ok bool) {
	if len(b) < lengthSize {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if uint64(len(b)-lengthSize) < n {
		return nil, nil, false
	}
	end := lengthSize + int(n)
	return b[lengthSize:end:end], b[end:], true
}

// BytesError reports why memory is not a list of BYTES elements.
type BytesError struct {
	// Want and Got count elements; they are equal when the data ends inside one.
	Want, Got int64
	// Left is the number of bytes left where a length or an element was cut short.
	Left int
	// Need is the size of the cut element, 0 where the length itself is cut.
	Need int64
}

// Error returns the reason, without the tensor's name.
func (e *BytesError) Error() string {
	switch {
	case e.Want != e.Got:
		return fmt.Sprintf("expected %d string elements, got %d", e.Want, e.Got)
	case e.Need == 0:
		return fmt.Sprintf("incomplete string length indicator, expecting %d bytes but only %d bytes available", lengthSize, e.Left)
	default:
		return fmt.Sprintf("incomplete string data, expecting string of length %d but only %d bytes available", e.Need, e.Left)
	}
}

// CheckBytes verifies that b is exactly want BYTES elements; the error is a *BytesError.
func CheckBytes(b []byte, want int64) error {
	for got := int64(0); ; got++ {
		if len(b) == 0 {
			if got != want {
				return &BytesError{Want: want, Got: got}
			}
			return nil
		}
		if got == want {
			return &BytesError{Want: want, Got: got + 1}
		}
		if len(b) < lengthSize {
			return &BytesError{Want: want, Got: want, Left: len(b)}
		}
		_, rest, ok := NextBytes(b)
		if !ok {
			return &BytesError{Want: want, Got: want, Left: len(b) - lengthSize, Need: int64(binary.LittleEndian.Uint32(b))}
		}
		b = rest
	}
}
