package spans

import (
	"slices"
	"unicode/utf8"
)

// places translates between bytes and characters of a text.
type places struct {
	text []byte
	// starts are where each character begins, and the text's length at the end; empty
	// where every character is one byte.
	starts []int32
}

// read takes a text, which is valid UTF-8 and shorter than 2 GiB.
func (p *places) read(text []byte) {
	p.text, p.starts = text, p.starts[:0]
	if ascii(text) {
		return
	}
	for i, c := range text {
		if utf8.RuneStart(c) {
			p.starts = append(p.starts, int32(i))
		}
	}
	p.starts = append(p.starts, int32(len(text)))
}

func ascii(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// ofCharacter is the byte where character i begins; -1 when there is none.
func (p *places) ofCharacter(i int64) int {
	switch {
	case i < 0:
		return -1
	case len(p.starts) == 0 && i <= int64(len(p.text)):
		return int(i)
	case i < int64(len(p.starts)):
		return int(p.starts[i])
	default:
		return -1
	}
}

// character is the number of the character in which byte i is, or that begins there.
func (p *places) character(i int) int {
	if len(p.starts) == 0 {
		return i
	}
	at, exact := slices.BinarySearch(p.starts, int32(i))
	if !exact {
		at--
	}
	return at
}

// whole widens a range of bytes to whole characters: byte-level tokens may split one.
func (p *places) whole(start, end int) (from, to int) {
	for start > 0 && start < len(p.text) && !utf8.RuneStart(p.text[start]) {
		start--
	}
	for end < len(p.text) && !utf8.RuneStart(p.text[end]) {
		end++
	}
	return start, end
}
