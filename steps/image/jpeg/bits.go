package jpeg

import "encoding/binary"

// bits reads entropy-coded data: stuffed zeros are taken out and the reader stops
// before a marker. After that zeros come, and short tells so.
type bits struct {
	data  []byte
	at    int
	acc   uint64 // The next n bits, at the top.
	n     int
	short int // Bits that were asked for beyond the data.
}

// reset starts at a byte.
func (b *bits) reset(data []byte, at int) { *b = bits{data: data, at: at} }

// fill makes at least 32 bits available.
func (b *bits) fill() {
	if b.at+4 <= len(b.data) {
		w := binary.BigEndian.Uint32(b.data[b.at:])
		// No byte is 0xff: none of the complements is zero.
		if v := ^w; (v-0x01010101)&^v&0x80808080 == 0 {
			b.acc |= uint64(w) << (32 - b.n)
			b.n += 32
			b.at += 4
			return
		}
	}
	b.slow()
}

func (b *bits) slow() {
	for b.n <= 56 {
		if b.at >= len(b.data) {
			b.pad()
			return
		}
		v := b.data[b.at]
		if v == 0xff {
			if b.at+1 >= len(b.data) || b.data[b.at+1] != 0 {
				b.pad()
				return
			}
			b.at++
		}
		b.at++
		b.acc |= uint64(v) << (56 - b.n)
		b.n += 8
	}
}

// pad makes up bits, which are zero already, and counts them.
func (b *bits) pad() {
	b.short += 64 - b.n
	b.n = 64
}

// overrun tells whether bits were used that the data does not have.
func (b *bits) overrun() bool { return b.short > b.n }

// take returns the next n bits, at most 16.
func (b *bits) take(n int) int32 {
	if b.n < n {
		b.fill()
	}
	v := int32(b.acc >> 32 >> (32 - n))
	b.acc <<= n
	b.n -= n
	return v
}

// extend turns n bits into the signed value that they stand for.
func extend(v int32, n int) int32 {
	return v + ((v-1<<(n-1))>>31)&(-1<<n+1)
}

// signed returns the signed value of the next n bits, at most 16; 0 if n is 0.
func (b *bits) signed(n int) int32 {
	if n == 0 {
		return 0
	}
	return extend(b.take(n), n)
}
