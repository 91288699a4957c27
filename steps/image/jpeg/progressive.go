package jpeg

// refine decodes one block of a progressive scan.
func (d *Decoder) refine(c *component, coefs *[64]int16) error {
	ok := true
	switch s := &d.scan; {
	case s.first == 0 && s.high == 0:
		ok = d.firstDC(c, coefs)
	case s.first == 0:
		coefs[0] |= int16(d.bits.take(1) << s.low)
	case s.high == 0:
		ok = d.firstAC(c, coefs)
	default:
		ok = d.nextAC(c, coefs)
	}
	if !ok {
		return errCode
	}
	return nil
}

func (d *Decoder) firstDC(c *component, coefs *[64]int16) bool {
	n, ok := d.bits.symbol(c.dc)
	if !ok {
		return false
	}
	c.predict += d.bits.signed(n)
	coefs[0] = int16(c.predict << d.scan.low)
	return true
}

// firstAC reads the high bits of a band of coefficients.
func (d *Decoder) firstAC(c *component, coefs *[64]int16) bool {
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
			coefs[zigzag[k&127]] = int16(b.signed(size) << s.low)
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

// nextAC adds one bit to the coefficients of a band: to those that are not zero
// when it passes them, and new ones between.
func (d *Decoder) nextAC(c *component, coefs *[64]int16) bool {
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
			if k = d.pass(coefs, k, run, plus); value != 0 && k <= s.last {
				coefs[zigzag[k&127]] = value
			}
		}
	}
	if s.run > 0 {
		d.pass(coefs, k, 64, plus)
		s.run--
	}
	return true
}

// pass goes over zeros coefficients that are zero, and adds a bit to those that are
// not; it ends at the next zero, or after the band.
func (d *Decoder) pass(coefs *[64]int16, k, zeros int, plus int16) int {
	for ; k <= d.scan.last; k++ {
		p := &coefs[zigzag[k&127]]
		if *p == 0 {
			if zeros == 0 {
				break
			}
			zeros--
			continue
		}
		if d.bits.take(1) == 1 && *p&plus == 0 {
			if *p > 0 {
				*p += plus
			} else {
				*p -= plus
			}
		}
	}
	return k
}

// reconstruct turns the coefficients of a component into samples.
func (d *Decoder) reconstruct(c *component) {
	q := &d.quant[c.quant&3]
	for y := range c.tall {
		row := c.coefs[64*y*c.blocks:][:64*c.wide]
		for i := range c.wide {
			coefs := (*[64]int16)(row[64*i:])
			for _, step := range q[:64] {
				coefs[step&63] *= int16(step >> 8)
			}
		}
		c.transform(y, row)
	}
}
