package jpeg

import "encoding/binary"

// steps is a quantisation table in the order of the file, with the natural position of each
// coefficient: factor<<8 | position. A damaged block that has more than 64 coefficients overwrites
// the last.
type steps [128]uint32

// sequential reads the coefficients of a block, dequantised, in natural order.
//
// hot: it takes half of the time of an image.
func (b *reader) sequential(c *component, q *steps, coefs *[64]int16) bool {
	if b.n < 32 {
		b.fill()
	}
	e := c.dc.fast[b.acc>>(64-fastBits)]
	value, n := int32(e)>>16, int(e&0xff)
	if e == 0 {
		if value, _, n = c.dc.slow(b.acc); n == 0 {
			return false
		}
	}
	b.acc <<= n
	b.n -= n
	c.predict += value
	*coefs = [64]int16{}
	coefs[0] = int16(c.predict) * int16(q[0]>>8)
	return b.frequencies(c.ac, q, coefs)
}

// frequencies reads the AC coefficients: all but the first.
func (b *reader) frequencies(t *table, q *steps, coefs *[64]int16) bool {
	acc, n, at := b.acc, b.n, b.at
	for k := 1; k < 64; k++ {
		if n < 32 {
			if at+8 > len(b.buf) { // never: a block begins well before
				return false
			}
			acc |= binary.BigEndian.Uint64(b.buf[at:]) >> (n & 63)
			at += (63 - n) >> 3
			n |= 56
		}
		e := t.fast[acc>>(64-fastBits)]
		value, skip, used := int32(e)>>16, int(e>>8&0xff), int(e&0xff)
		if e == 0 {
			if value, skip, used = t.slow(acc); used == 0 {
				return false
			}
		}
		acc <<= used & 63
		n -= used
		k += skip
		step := q[k&127]
		coefs[step&63] = int16(value * int32(step>>8))
	}
	b.acc, b.n, b.at = acc, n, at
	return true
}
