package tokenizer

import "slices"

// padding is the padding section of a file. An Encoding is padded to fixed tokens, or not when fixed is 0, and then to a multiple.
// For example, multiple 8 pads 11 tokens to 16.
type padding struct {
	fixed, multiple int
	left            bool
	id, typeID      int32
}

// length returns the padded length of n tokens.
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
