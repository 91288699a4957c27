package tokenizer

import "unicode/utf8"

// byteLevelDecoder turns ByteLevel's characters into the bytes that they stand for. A piece with any other character stays as it is.
// Bytes of the result that are not UTF-8 become U+FFFD.
type byteLevelDecoder struct {
	bytes [0x144]int16 // by character; -1 for those that stand for no byte
}

// newByteLevelDecoder builds the table: printable Latin-1 stands for itself, the other bytes are U+0100 and on in order.
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

// madeValid replaces the bytes of buf that are not UTF-8, from the given position on.
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

// appendValid appends src with U+FFFD for each truncated character and for each byte that is never valid (Unicode's "maximal
// subparts"; Go's conversion replaces every byte).
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

// brokenLen returns the length of the truncated character at the start of src, at least 1.
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
