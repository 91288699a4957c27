package jpeg

import "math/bits"

// refine decodes one block of a progressive scan. It reports false for a code that does not exist.
func (d *Decoder) refine(c *component, coefs *[64]int16, set *uint64) bool {
	switch s := &d.scan; {
	case s.first == 0 && s.high == 0: // the high bits of the DC coefficient
		n, ok := d.bits.symbol(c.dc)
		if !ok {
			return false
		}
		c.predict += d.bits.signed(n)
		coefs[0] = int16(c.predict << s.low)
	case s.first == 0:
		coefs[0] |= int16(d.bits.take(1) << s.low)
	case s.high == 0:
		return d.firstAC(c, coefs, set)
	default:
		return d.nextAC(c, coefs, set)
	}
	return true
}

// firstAC reads the high bits of a band of coefficients. set has a bit for each
// coefficient that is not zero, in the order of the file.
func (d *Decoder) firstAC(c *component, coefs *[64]int16, set *uint64) bool {
	s, b := &d.scan, &d.bits
	if s.run > 0 {
		s.run--
		return true
	}
	for k := s.first; k <= s.last; k++ {
		sym, ok := b.symbol(c.ac)
		if !ok {
			return false
		}
		run, size := sym>>4, sym&15
		switch {
		case size > 0:
			k += run
			put(coefs, set, k, int16(b.signed(size)<<s.low))
		case run == 15:
			k += 15
		default:
			s.run = 1<<run - 1
			if run > 0 {
				s.run += b.take(run)
			}
			return true
		}
	}
	return true
}

// put stores coefficient k. Coefficients of a damaged file beyond the last are stored there.
func put(coefs *[64]int16, set *uint64, k int, v int16) {
	k = min(k, 63)
	coefs[zigzag[k]&63] = v
	*set &^= 1 << k
	if v != 0 {
		*set |= 1 << k
	}
}

// nextAC adds one bit to the coefficients of a band: to those that are not zero as it passes them, and
// new coefficients between them.
func (d *Decoder) nextAC(c *component, coefs *[64]int16, set *uint64) bool {
	s, b := &d.scan, &d.bits
	plus, k := int16(1)<<s.low, s.first
	if s.run == 0 {
	band:
		for ; k <= s.last; k++ {
			sym, ok := b.symbol(c.ac)
			if !ok {
				return false
			}
			run, value := sym>>4, int16(0)
			switch size := sym & 15; {
			case size > 1:
				return false
			case size == 1:
				value = -plus
				if b.take(1) == 1 {
					value = plus
				}
			case run < 15:
				s.run = 1 << run
				if run > 0 {
					s.run += b.take(run)
				}
				break band
			}
			if k = d.pass(coefs, *set, k, run); value != 0 && k <= s.last {
				put(coefs, set, k, value)
			}
		}
	}
	if s.run > 0 {
		d.pass(coefs, *set, k, 64)
		s.run--
	}
	return true
}

// pass skips the given number of zero coefficients and adds a bit to the others on the way. It stops at
// the next zero coefficient, or after the band.
func (d *Decoder) pass(coefs *[64]int16, set uint64, k, zeros int) int {
	b, last, low := &d.bits, d.scan.last, d.scan.low&15
	acc, n := b.acc, b.n
	for k <= last {
		gap := bits.TrailingZeros64(set >> (k & 63))
		if gap > zeros {
			k = min(k+zeros, last+1)
			break
		}
		if k, zeros = k+gap, zeros-gap; k > last {
			k = last + 1
			break
		}
		if n == 0 {
			b.acc, b.n = acc, 0
			b.fill()
			acc, n = b.acc, b.n
		}
		p := &coefs[zigzag[k&63]&63]
		// one step away from zero, unless the bit is 0 or is set already
		sign := *p >> 15
		*p += ((1<<low ^ sign) - sign) & -(int16(acc>>63) &^ (*p >> low) & 1)
		acc <<= 1
		n--
		k++
	}
	b.acc, b.n = acc, n
	return k
}

// reconstruct transforms the coefficients of a component to samples.
func (d *Decoder) reconstruct(c *component) {
	q := &d.quant[c.quant&3]
	for y := range c.tall {
		row, sets := c.coefs[64*y*c.blocks:][:64*c.wide], c.sets[y*c.blocks:]
		for i := range c.wide {
			coefs := (*[64]int16)(row[64*i:])
			for set := sets[i] | 1; set != 0; set &= set - 1 {
				step := q[bits.TrailingZeros64(set)]
				coefs[step&63] *= int16(step >> 8)
			}
		}
		c.transform(y, row)
	}
}
