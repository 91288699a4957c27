package jpeg

import (
	"errors"

	"github.com/tutti-server/tutti/steps/image/kernels"
)

// scan is one pass over some of the components.
type scan struct {
	comps       [4]*component
	n           int
	first, last int // band of coefficients
	high, low   int // bit positions: of the pass before, and of this one
	run         int32
	unit        [maxUnit]unitBlock
	blocks      int // blocks of a unit
}

// maxUnit is the most blocks of a unit.
const maxUnit = 10

// unitBlock is a block of a unit, which has h x v blocks of component c. x and y say which of them it is.
type unitBlock struct {
	c          *component
	h, v, x, y int
}

var (
	errScan    = errors.New("damaged scan header")
	errQuant   = errors.New("no quantisation table")
	errHuffman = errors.New("no Huffman table")
	errRestart = errors.New("damaged: no restart marker where one is due")
	errShort   = errors.New("damaged or truncated: image data ends early")
)

// zigzag is the natural position of each coefficient, in the order of the file. A damaged block that
// has more than 64 coefficients overwrites the last.
var zigzag = [80]uint8{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
	63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
}

// readScan parses a scan header and decodes the scan, whose data starts at index at.
func (d *Decoder) readScan(seg []byte, at int) error {
	if d.n == 0 {
		return errors.New("no frame header before the image data")
	}
	if d.scans++; d.scans > MaxScans {
		return errors.New("more than 100 scans")
	}
	if err := d.parseScan(seg); err != nil {
		return err
	}
	if err := d.checkScan(); err != nil {
		return err
	}
	d.bits.reset(d.data, at)
	if err := d.units(); err != nil {
		return err
	}
	if d.bits.overrun() {
		return errShort
	}
	return nil
}

func (d *Decoder) parseScan(seg []byte) error {
	if len(seg) < 1 || seg[0] < 1 || seg[0] > 4 || len(seg) != 4+2*int(seg[0]) {
		return errScan
	}
	s := &d.scan
	*s = scan{n: int(seg[0])}
	space := 0
	for i := range s.n {
		id, tables := seg[1+2*i], seg[2+2*i]
		if tables>>4 > 3 || tables&15 > 3 {
			return errScan
		}
		for j := range d.comps[:d.n] {
			if c := &d.comps[j]; c.id == id {
				s.comps[i] = c
				c.dc, c.ac = &d.dc[tables>>4], &d.ac[tables&15]
			}
		}
		if s.comps[i] == nil {
			return errScan
		}
		for j := range i {
			if s.comps[j] == s.comps[i] {
				return errScan
			}
		}
		space += s.comps[i].h * s.comps[i].v
	}
	if s.n > 1 && space > maxUnit {
		return errScan
	}
	p := seg[1+2*s.n:]
	s.first, s.last, s.high, s.low = int(p[0]), int(p[1]), int(p[2]>>4), int(p[2]&15)
	return nil
}

// checkScan returns an error for impossible scan parameters and missing tables.
func (d *Decoder) checkScan() error {
	s := &d.scan
	if !d.progressive {
		s.first, s.last, s.high, s.low = 0, 63, 0, 0
	} else if s.first > s.last || s.last > 63 || s.first == 0 && s.last != 0 || s.first > 0 && s.n > 1 ||
		s.low > 13 || s.high != 0 && s.high != s.low+1 {
		return errScan
	}
	for _, c := range s.comps[:s.n] {
		if s.first == 0 && s.high == 0 && !c.dc.ok || s.last > 0 && !c.ac.ok {
			return errHuffman
		}
		if !d.progressive {
			c.dc.prepare()
			c.ac.prepare()
		}
		if !d.progressive && !d.hasQuant[c.quant] {
			return errQuant
		}
		if s.first > 0 && !c.seen {
			return errScan
		}
		c.seen = true
	}
	return nil
}

// units decodes the blocks of a scan, one unit after the other.
func (d *Decoder) units() error {
	s := &d.scan
	d.restarted()
	s.layUnit()
	left, expected := d.restart, byte(0xd0)
	wide, tall := d.unitsX, d.unitsY
	if s.n == 1 {
		wide, tall = s.comps[0].wide, s.comps[0].tall
	}
	for y := range tall {
		for x := range wide {
			if d.restart > 0 {
				if left == 0 {
					if err := d.nextRestart(expected); err != nil {
						return err
					}
					left, expected = d.restart, 0xd0|(expected+1)&7
				}
				left--
			}
			if err := d.decodeUnit(x, y); err != nil {
				return err
			}
		}
		if d.bits.overrun() {
			return errShort
		}
		if !d.progressive {
			d.samples(y)
		}
	}
	return nil
}

// layUnit sets the blocks of a unit, which in a scan of one component is a single block.
func (s *scan) layUnit() {
	s.blocks = 0
	for _, c := range s.comps[:s.n] {
		h, v := c.h, c.v
		if s.n == 1 {
			h, v = 1, 1
		}
		for i := range h * v {
			s.unit[s.blocks] = unitBlock{c, h, v, i % h, i / h}
			s.blocks++
		}
	}
}

// decodeUnit decodes the blocks of unit x of row y.
func (d *Decoder) decodeUnit(x, y int) error {
	for i := range d.scan.unit[:d.scan.blocks] {
		u := &d.scan.unit[i]
		c := u.c
		if !d.bits.ready() {
			return errShort
		}
		if d.progressive {
			at := (y*u.v+u.y)*c.blocks + x*u.h + u.x
			if !d.refine(c, (*[64]int16)(c.coefs[64*at:]), &c.sets[at]) {
				return errCode
			}
			continue
		}
		at := u.y*c.blocks + x*u.h + u.x
		if !d.bits.sequential(c, &d.quant[c.quant&3], (*[64]int16)(c.coefs[64*at:])) {
			return errCode
		}
	}
	return nil
}

// samples transforms the blocks of a row of units.
func (d *Decoder) samples(y int) {
	s := &d.scan
	if s.n == 1 {
		c := s.comps[0]
		c.transform(y, c.coefs[:64*c.wide])
		return
	}
	for _, c := range s.comps[:s.n] {
		for v := range c.v {
			c.transform(y*c.v+v, c.coefs[64*v*c.blocks:][:64*c.blocks])
		}
	}
}

// transform writes the samples of row y of blocks.
func (c *component) transform(y int, coefs []int16) {
	dst := c.plane[y*c.size*c.stride:]
	if c.size == 8 {
		kernels.Inverse(dst, c.stride, coefs)
		return
	}
	kernels.Reduced(dst, c.stride, c.size, coefs)
}

// restarted resets the predictions from earlier blocks.
func (d *Decoder) restarted() {
	for _, c := range d.scan.comps[:d.scan.n] {
		c.predict = 0
	}
	d.scan.run = 0
}

// nextRestart skips a restart marker.
func (d *Decoder) nextRestart(expected byte) error {
	b := &d.bits
	if b.overrun() {
		return errShort
	}
	at := b.src
	for at+1 < len(b.data) && (b.data[at] != 0xff || b.data[at+1] == 0 || b.data[at+1] == 0xff) {
		at++
	}
	if at+1 >= len(b.data) {
		return errTruncated
	}
	if b.data[at+1] != expected {
		return errRestart
	}
	b.reset(b.data, at+2)
	d.restarted()
	return nil
}

// steps is a quantisation table in the order of the file, with the natural position of each coefficient: factor<<8 |
// position. A damaged block that has more than 64 coefficients overwrites the last.
type steps [128]uint32

// sequential reads the coefficients of a block, dequantised, in natural order.
//
// hot: it takes half of the time of an image.
func (b *reader) sequential(c *component, q *steps, coefs *[64]int16) bool {
	acc, n, at := b.acc, b.n, b.at
	if n < 32 {
		acc, n, at = b.refill(acc, n, at)
	}
	e := c.dc.fast[acc>>(64-fastBits)]
	value, used := int32(e)>>16, int(e&0xff)
	if e == 0 {
		if value, _, used = c.dc.slow(acc); used == 0 {
			return false
		}
	}
	acc <<= used & 63
	n -= used
	c.predict += value
	*coefs = [64]int16{}
	coefs[0] = int16(c.predict) * int16(q[0]>>8)
	t := c.ac
	for k := 0; ; { // k is the last coefficient that was read
		if n < 32 {
			acc, n, at = b.refill(acc, n, at)
		}
		for k <= lastPair && n >= fastBits {
			e := t.pairs[acc>>(64-fastBits)]
			if e == 0 {
				break
			}
			acc <<= e & 15
			n -= int(e & 15)
			first := k + int(e>>10&63)
			k = first + int(e>>4&63)
			// The second one is stored first: without a second one, it is 0 at the place of the first.
			step := q[k&127]
			coefs[step&63] = int16(int32(e<<10) >> 26 * int32(step>>8))
			step = q[first&127]
			coefs[step&63] = int16(int32(e) >> 22 * int32(step>>8))
		}
		if k >= 63 {
			break
		}
		if n < 32 {
			continue
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
		k += skip + 1
		step := q[k&127]
		coefs[step&63] = int16(value * int32(step>>8))
	}
	b.acc, b.n, b.at = acc, n, at
	return true
}
