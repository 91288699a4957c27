package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
)

const (
	// most is more bytes than a block can take: 64 coefficients, each a code and a value of
	// 16 bits, and the bytes that are read ahead.
	most   = 64*4 + 16
	window = 1 << 13
)

// reader reads entropy-coded data. It removes stuffed zeros a window at a time, so that a block is
// read without looking at each byte. The data ends at a marker; zeros follow it.
type reader struct {
	data []byte
	src  int // the first byte of data that is not in the window yet
	done bool
	at   int // the next byte of the window that is not in acc
	end  int // bytes in the window
	last int // the last byte at which a block may begin
	acc  uint64
	n    int // valid bits of acc, at the top; the bits below are the next ones or zero
	buf  [window + 2*most]byte
}

// reset starts reading data at a byte.
func (b *reader) reset(data []byte, at int) {
	b.data, b.src, b.done = data, at, false
	b.at, b.end, b.acc, b.n = 0, 0, 0, 0
	b.last = -1
}

// ready must be called before each block. It reports false if the data has ended.
func (b *reader) ready() bool { return b.at <= b.last || b.more() }

// more refills the window.
func (b *reader) more() bool {
	if b.done {
		return false
	}
	b.end = copy(b.buf[:], b.buf[b.at:b.end])
	b.at = 0
	for b.end < window && !b.done {
		b.unstuff()
	}
	b.last = b.end - most
	if b.done {
		b.last = b.end + 8
	}
	clear(b.buf[b.end:min(b.end+2*most, len(b.buf))])
	return true
}

// unstuff adds the bytes up to the next 0xff to the window, and that byte if it does not begin a marker.
func (b *reader) unstuff() {
	rest := b.data[b.src:]
	part := rest[:min(len(rest), window-b.end)]
	i := bytes.IndexByte(part, 0xff)
	if i < 0 {
		b.end += copy(b.buf[b.end:], part)
		b.src += len(part)
		b.done = len(part) == len(rest)
		return
	}
	b.end += copy(b.buf[b.end:], part[:i])
	b.src += i
	if b.done = i+1 >= len(rest) || rest[i+1] != 0; !b.done {
		b.buf[b.end] = 0xff
		b.end++
		b.src += 2
	}
}

// fill makes at least 56 bits available.
func (b *reader) fill() { b.acc, b.n, b.at = b.refill(b.acc, b.n, b.at) }

// refill is fill for a loop that has acc, n and at in variables.
func (b *reader) refill(acc uint64, n, at int) (uint64, int, int) {
	return acc | binary.BigEndian.Uint64(b.buf[at:])>>(n&63), n | 56, at + (63-n)>>3
}

// overrun reports whether more bits were read than the data has.
func (b *reader) overrun() bool { return 8*b.at-b.n > 8*b.end }

// take returns the next n bits, at most 16.
func (b *reader) take(n int) int32 {
	if b.n < n {
		b.fill()
	}
	v := int32(b.acc >> 32 >> (32 - n))
	b.acc <<= n
	b.n -= n
	return v
}

// extend converts n bits to the signed value they code (EXTEND of T.81). For example, the 3 bits 010 are -5.
func extend(v int32, n int) int32 {
	return v + ((v-1<<(n-1))>>31)&(-1<<n+1)
}

// signed returns the signed value of the next n bits, at most 16; 0 if n is 0.
func (b *reader) signed(n int) int32 {
	if n == 0 {
		return 0
	}
	return extend(b.take(n), n)
}

const (
	lookBits = 10
	fastBits = 11
)

// table decodes one Huffman code. Files of one encoder often have equal tables, so contents stay from file to file.
type table struct {
	ok    bool // the file has the table
	known bool // counts and symbols are those of the contents
	// look has length<<8 | symbol for codes of up to lookBits bits, 0 where the code is longer.
	look [1 << lookBits]uint16
	// limit is one more than the last code of each length, shifted to the top of 16 bits.
	// Symbols of length n start at index offset[n] + code.
	limit   [18]int32
	offset  [17]int32
	counts  [16]byte
	symbols [256]byte

	sequential bool // fast and pairs are set
	// fast looks up a code together with the value after it, where both have at most fastBits
	// bits. It is for sequential blocks; see entry.
	fast [1 << fastBits]entry
	// pairs looks up one or two coefficients; see pair.
	pairs [1 << fastBits]pair
}

// entry has a value in the upper 16 bits, below it the number of coefficients to skip, and in the lowest byte the
// length of code and value in bits, 0 if they do not fit. The end of the block is a skip of 64.
type entry uint32

const endOfBlock = 64

// pair is one or two coefficients of a block whose codes and values have at most fastBits bits together. From the lowest bit on it has
//
//	4 bits: the number of these bits, 0 for no pair
//	6 bits: the distance of the second coefficient from the first, 0 for none
//	6 bits: the distance of the first coefficient from the one before it
//	6 bits: the value of the second coefficient
//	10 bits: the value of the first coefficient
//
// The end of the block is a distance of 63 with a value of 0.
type pair uint32

// lastPair is the last coefficient after which a pair may be read. The first coefficient of the pair, at most 16 further on, is then not the
// last of the block, after which other codes follow.
const lastPair = 63 - 1 - 16

var (
	errCode  = errors.New("damaged: no such Huffman code")
	errTable = errors.New("impossible Huffman table")
)

// set builds the table from the counts of codes of 1 to 16 bits, and their symbols.
func (t *table) set(counts, symbols []byte) error {
	if t.known && bytes.Equal(counts, t.counts[:]) && bytes.Equal(symbols, t.symbols[:len(symbols)]) {
		t.ok = true
		return nil
	}
	t.ok, t.known, t.sequential = false, false, false
	copy(t.counts[:], counts)
	copy(t.symbols[:], symbols)
	t.look = [1 << lookBits]uint16{}
	code, k := int32(0), int32(0)
	for n := 1; n <= 16; n++ {
		t.offset[n] = k - code
		count := int32(counts[n-1])
		if code+count > 1<<n {
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
	t.ok, t.known = true, true
	return nil
}

// prepare sets fast and pairs, unless they are.
func (t *table) prepare() {
	if t.sequential {
		return
	}
	t.sequential, t.fast = true, [1 << fastBits]entry{}
	k := 0
	for n, code := 1, int32(0); n <= fastBits; n++ {
		for range t.counts[n-1] {
			t.precompute(code, n, t.symbols[k])
			code++
			k++
		}
		code <<= 1
	}
	for i, e := range t.fast {
		t.pairs[i] = t.join(i, e)
	}
}

// join returns the pair of e, the entry at index i, with the entry after it if both fit, and else that of e alone. It is 0 if e is empty or its
// value needs more than 10 bits.
func (t *table) join(i int, e entry) pair {
	n, v, skip := int(e&0xff), int32(e)>>16, e>>8&0xff
	if n == 0 || v != v<<22>>22 {
		return 0
	}
	p := pair(v)<<22 | pair(min(skip+1, 63))<<10
	if next := t.fast[i<<n&(1<<fastBits-1)]; skip != endOfBlock && next != 0 {
		if v, m := int32(next)>>16, n+int(next&0xff); m <= fastBits && v == v<<26>>26 {
			p |= pair(v)&63<<16 | pair(min(next>>8&0xff+1, 63))<<4
			n = m
		}
	}
	return p | pair(n)
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

// long returns the symbol at the top of acc and the length of its code. A length above 16 means that no code matches.
func (t *table) long(acc uint64) (sym, n int) {
	top := int32(acc >> 48)
	for n = lookBits + 1; top >= t.limit[n]; n++ {
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
	var sym int
	if e := t.look[acc>>(64-lookBits)]; e != 0 {
		sym, n = int(e&0xff), int(e>>8)
	} else if sym, n = t.long(acc); n > 16 {
		return 0, 0, 0
	}
	size := sym & 15
	if size > 0 {
		value = extend(int32(acc<<n>>32>>(32-size)), size)
	}
	return value, skipOf(sym), n + size
}
