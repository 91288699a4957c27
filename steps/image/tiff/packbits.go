package tiff

import (
	"io"
	"math/bits"
)

// packBits reads PackBits data: a count n from 0 to 127 is followed by n+1 bytes, a count from -127 to -1 by a byte that
// is repeated 1-n times.
type packBits struct {
	data     []byte
	literal  int // bytes left of the run
	repeats  int
	value    byte
	reversed bool // the bits of every byte are reversed, counts too
}

var _ io.Reader = (*packBits)(nil)

// Read implements io.Reader.
func (p *packBits) Read(dst []byte) (int, error) {
	n := 0
	for n < len(dst) {
		switch {
		case p.literal > 0:
			if len(p.data) == 0 {
				return n, io.ErrUnexpectedEOF
			}
			k := copy(dst[n:], p.data[:min(p.literal, len(p.data))])
			if p.reversed {
				reverse(dst[n : n+k])
			}
			p.data, p.literal, n = p.data[k:], p.literal-k, n+k
		case p.repeats > 0:
			k := min(p.repeats, len(dst)-n)
			for i := range k {
				dst[n+i] = p.value
			}
			p.repeats, n = p.repeats-k, n+k
		default:
			if !p.run() {
				return n, io.ErrUnexpectedEOF
			}
		}
	}
	return n, nil
}

// run starts the next run. It reports false at the end.
func (p *packBits) run() bool {
	if len(p.data) == 0 {
		return false
	}
	count := p.byte()
	switch n := int(int8(count)); {
	case n >= 0:
		p.literal = n + 1
	case n == -128: // no operation
	case len(p.data) == 0:
		return false
	default:
		p.repeats, p.value = 1-n, p.byte()
	}
	return true
}

// byte returns the next byte.
func (p *packBits) byte() byte {
	b := p.data[0]
	p.data = p.data[1:]
	if p.reversed {
		b = bits.Reverse8(b)
	}
	return b
}

func reverse(p []byte) {
	for i, v := range p {
		p[i] = bits.Reverse8(v)
	}
}
