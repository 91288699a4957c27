package jpeg

import (
	"bytes"
	"encoding/binary"
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

// unstuff adds the bytes up to the next 0xff to the window, and that byte if it does not begin
// a marker.
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
func (b *reader) fill() {
	b.acc |= binary.BigEndian.Uint64(b.buf[b.at:]) >> b.n
	b.at += (63 - b.n) >> 3
	b.n |= 56
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

// extend converts n bits to the signed value they code (EXTEND of T.81). For example, the 3 bits
// 010 are -5.
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
