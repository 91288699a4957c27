package openvino

import (
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
)

// missing returns the number of rows that a batch lacks for a fixed batch size.
func (x *instance) missing(dims []int64) (int64, error) {
	fixed := x.m.fixed
	if fixed == 0 || len(dims) == 0 || dims[0] == fixed {
		return 0, nil
	}
	if !x.m.pad || dims[0] > fixed {
		return 0, status.Errorf(status.InvalidArg, "model '%s': expected a batch of exactly %d rows, got %d (parameter %s YES makes a smaller one up)",
			x.m.binding.Sig.Model, fixed, dims[0], keyPad)
	}
	return fixed - dims[0], nil
}

// padded copies rows to memory of the given size and clears the rest.
func (s *scratch) padded(rows []byte, size int) unsafe.Pointer {
	s.room(max(size, 1), 0)
	to := unsafe.Slice((*byte)(s.text), size)
	clear(to[copy(to, rows):])
	return s.text
}
