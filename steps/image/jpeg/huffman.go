package jpeg

import "errors"

const lookBits = 10

// table decodes one Huffman code.
type table struct {
	ok bool
	// look gives length and symbol of codes of up to lookBits bits: length<<8 |
	// symbol; 0 where the code is longer.
	look [1 << lookBits]uint16
	// limit is one more than the last code of each length, moved to the top of 16
	// bits; symbols of length n start at index offset[n] + code.
	limit   [18]int32
	offset  [17]int32
	symbols [256]byte
}

var (
	errCode  = errors.New("damaged: no such Huffman code")
	errTable = errors.New("impossible Huffman table")
)

// set builds the table from the counts of codes of 1 to 16 bits, and their symbols.
func (t *table) set(counts, symbols []byte) error {
	t.ok = true
	copy(t.symbols[:], symbols)
	t.look = [1 << lookBits]uint16{}
	code, k := int32(0), int32(0)
	for n := 1; n <= 16; n++ {
		t.offset[n] = k - code
		count := int32(counts[n-1])
		if code+count > 1<<n {
			t.ok = false
			return errTable
		}
		for range count {
			if n <= lookBits {
				first := code << (lookBits - n)
				for i := range int32(1) << (lookBits - n) {
					t.look[first+i] = uint16(n)<<8 | uint16(t.symbols[k])
				}
			}
			code++
			k++
		}
		t.limit[n] = code << (16 - n)
		code <<= 1
	}
	t.limit[17] = 1 << 30
	return nil
}

// symbol reads the next symbol; ok is false where no code matches.
func (b *bits) symbol(t *table) (sym int, ok bool) {
	if b.n < 16 {
		b.fill()
	}
	if e := t.look[b.acc>>(64-lookBits)]; e != 0 {
		n := e >> 8
		b.acc <<= n
		b.n -= int(n)
		return int(e & 0xff), true
	}
	return b.long(t)
}

func (b *bits) long(t *table) (sym int, ok bool) {
	top := int32(b.acc >> 48)
	n := lookBits + 1
	for top >= t.limit[n] {
		n++
	}
	if n > 16 {
		return 0, false
	}
	i := t.offset[n] + top>>(16-n)
	b.acc <<= n
	b.n -= n
	return int(t.symbols[i&255]), true
}
