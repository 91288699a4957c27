package tokenizer

import "slices"

// padding is the file's padding section. An Encoding is padded to fixed, or to its own length when that is 0, and
// from there up to a multiple.
type padding struct {
	fixed, multiple int
	left            bool
	id, typeID      int32
}

// length is what an encoding of n tokens is padded to.
func (p *padding) length(n int) int {
	if p.fixed != 0 {
		n = p.fixed
	}
	if p.multiple > 0 && n%p.multiple > 0 {
		n += p.multiple - n%p.multiple
	}
	return n
}

// apply pads e to a length.
func (p *padding) apply(e *Encoding, want int) {
	n := e.Len()
	for e.Len() < want {
		e.add(p.id, p.typeID, 0)
	}
	if p.left && want > n {
		rotate(e.IDs, n)
		rotate(e.TypeIDs, n)
		rotate(e.Attention, n)
		rotate(e.Special, n)
		if e.TrackOffsets {
			rotate(e.Offsets, n)
			rotate(e.Words, n)
			rotate(e.Sequences, n)
		}
	}
}

// rotate moves the first n elements to the end.
func rotate[T any](s []T, n int) {
	slices.Reverse(s[:n])
	slices.Reverse(s[n:])
	slices.Reverse(s)
}
