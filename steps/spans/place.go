package spans

import (
	"slices"
	"unicode/utf8"
)

// places translates between bytes and characters of a text.
type places struct {
	text []byte
	// starts has the first byte of each character, and the text's length at the end; empty for ASCII.
	starts []int32
}

// read sets the text, which must be valid UTF-8 and shorter than 2 GiB.
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

// ofCharacter returns the first byte of character i; -1 when there is none.
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

// character returns the number of the character that contains byte i.
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

// whole extends a range of bytes to whole characters, which byte-level tokens may split. For example, bytes 1 to 2 of "é!" become 0 to 2.
func (p *places) whole(start, end int) (from, to int) {
	for start > 0 && start < len(p.text) && !utf8.RuneStart(p.text[start]) {
		start--
	}
	for end < len(p.text) && !utf8.RuneStart(p.text[end]) {
		end++
	}
	return start, end
}
