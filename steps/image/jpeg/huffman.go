package jpeg

import "errors"

const (
	lookBits = 10
	fastBits = 11
)

// table decodes one Huffman code.
type table struct {
	ok bool
	// fast looks up a code together with the value after it, where both have at most fastBits
	// bits. It is for sequential blocks; see entry.
	fast [1 << fastBits]entry
	// look has length<<8 | symbol for codes of up to lookBits bits, 0 where the code is longer.
	look [1 << lookBits]uint16
	// limit is one more than the last code of each length, shifted to the top of 16 bits.
	// Symbols of length n start at index offset[n] + code.
	limit   [18]int32
	offset  [17]int32
	symbols [256]byte
}

// entry has a value in the upper 16 bits, below it the number of coefficients to skip, and in the
// lowest byte the length of code and value in bits, 0 if they do not fit. The end of the
// block is a skip of 64.
type entry uint32

const endOfBlock = 64

var (
	errCode  = errors.New("damaged: no such Huffman code")
	errTable = errors.New("impossible Huffman table")
)

// set builds the table from the counts of codes of 1 to 16 bits, and their symbols.
func (t *table) set(counts, symbols []byte) error {
	t.ok = true
	copy(t.symbols[:], symbols)
	t.look, t.fast = [1 << lookBits]uint16{}, [1 << fastBits]entry{}
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
			if n <= fastBits {
				t.precompute(code, n, t.symbols[k])
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

// precompute adds the entries of a code of n bits with each value that may follow it.
func (t *table) precompute(code int32, n int, symbol byte) {
	size := int(symbol & 15)
	free := fastBits - n - size
	if free < 0 {
		return
	}
	skip := skipOf(int(symbol))
	for v := range int32(1) << size {
		e := entry(n+size) | entry(skip)<<8
		if size > 0 {
			e |= entry(uint16(extend(v, size))) << 16
		}
		first := (code<<size | v) << free
		for i := range t.fast[first : first+1<<free] {
			t.fast[int(first)+i] = e
		}
	}
}

// skipOf returns how many coefficients a symbol skips before its value.
func skipOf(symbol int) int {
	if symbol&15 == 0 && symbol != 0xf0 {
		return endOfBlock
	}
	return symbol >> 4
}

// symbol reads the next symbol. ok is false if no code matches.
func (b *reader) symbol(t *table) (sym int, ok bool) {
	if b.n < 16 {
		b.fill()
	}
	if e := t.look[b.acc>>(64-lookBits)]; e != 0 {
		n := e >> 8
		b.acc <<= n
		b.n -= int(n)
		return int(e & 0xff), true
	}
	sym, n := t.long(b.acc)
	b.acc <<= n
	b.n -= n
	return sym, n <= 16
}

// long returns the symbol at the top of acc and the length of its code. A length above 16 means that
// no code matches.
func (t *table) long(acc uint64) (sym, n int) {
	top := int32(acc >> 48)
	for n = 1; top >= t.limit[n]; n++ {
	}
	if n > 16 {
		return 0, n
	}
	i := t.offset[n] + top>>(16-n)
	return int(t.symbols[i&255]), n
}

// slow reads a value that table.fast has no entry for. It returns the value, the coefficients to skip
// before it, and the bits of code and value, 0 if no code matches.
func (t *table) slow(acc uint64) (value int32, skip, n int) {
	sym, n := t.long(acc)
	if n > 16 {
		return 0, 0, 0
	}
	size := sym & 15
	if size > 0 {
		value = extend(int32(acc<<n>>32>>(32-size)), size)
	}
	return value, skipOf(sym), n + size
}
