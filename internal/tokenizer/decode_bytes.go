package tokenizer

import "unicode/utf8"

// byteLevelDecoder makes bytes of the characters that stand for them. A piece with any other character is taken as it
// is. What is not UTF-8 in the end becomes replacement characters.
type byteLevelDecoder struct {
	bytes [0x144]int16 // by character; -1 for those that stand for no byte
}

// newByteLevelDecoder fills the table: printable Latin-1 stands for itself, the other bytes for U+0100 and on in order.
func newByteLevelDecoder() *byteLevelDecoder {
	d := &byteLevelDecoder{}
	for i := range d.bytes {
		d.bytes[i] = -1
	}
	next := 0x100
	for b := range 0x100 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b != 0xAD {
			d.bytes[b] = int16(b)
			continue
		}
		d.bytes[next] = int16(b)
		next++
	}
	return d
}

func (d *byteLevelDecoder) decode(dst, src *pieces) {
	from := 0
	for i := range src.ends {
		if p := src.at(i); string(p) == boundary {
			dst.buf = madeValid(dst.buf, from)
			from = len(dst.buf)
		} else {
			dst.buf = d.piece(dst.buf, p)
		}
	}
	dst.buf = madeValid(dst.buf, from)
	dst.end()
}

// madeValid replaces what is not UTF-8 in buf from the given place on.
func madeValid(buf []byte, from int) []byte {
	if utf8.Valid(buf[from:]) {
		return buf
	}
	n := len(buf)
	buf = appendValid(buf, buf[from:n])
	return buf[:from+copy(buf[from:], buf[n:])]
}

func (d *byteLevelDecoder) piece(dst, piece []byte) []byte {
	start := len(dst)
	for at := 0; at < len(piece); {
		r, n := utf8.DecodeRune(piece[at:])
		if int(r) >= len(d.bytes) || d.bytes[r] < 0 {
			return append(dst[:start], piece...)
		}
		dst = append(dst, byte(d.bytes[r]))
		at += n
	}
	return dst
}

// appendValid appends src with a replacement character for each start of a character that breaks off, and for each
// byte that can stand nowhere (Unicode's "maximal subparts"; Go's own conversion takes every byte for one).
func appendValid(dst, src []byte) []byte {
	for len(src) > 0 {
		r, n := utf8.DecodeRune(src)
		if r != utf8.RuneError || n > 1 {
			dst, src = append(dst, src[:n]...), src[n:]
			continue
		}
		dst, src = append(dst, "\uFFFD"...), src[brokenLen(src):]
	}
	return dst
}

// brokenLen is the length of the start of a character that src, which does not begin with a whole one, begins with.
func brokenLen(src []byte) int {
	var want int
	low, high := byte(0x80), byte(0xBF)
	switch b := src[0]; {
	case b >= 0xC2 && b <= 0xDF:
		want = 2
	case b >= 0xE0 && b <= 0xEF:
		want = 3
	case b >= 0xF0 && b <= 0xF4:
		want = 4
	default:
		return 1
	}
	switch src[0] {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	n := 1
	for n < min(want, len(src)) && src[n] >= low && src[n] <= high {
		n, low, high = n+1, 0x80, 0xBF
	}
	return n
}
