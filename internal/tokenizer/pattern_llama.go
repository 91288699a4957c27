package tokenizer

// llamaPattern is the pattern of Llama 3 and, with digits 1, that of Qwen, by hand:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// It matches every code point, so each match is a hit.
type llamaPattern struct {
	letters letterTable
	digits  int
}

// llamaPatterns maps the patterns to the number of digits in a match.
var llamaPatterns = map[string]int{
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: 3,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      1,
}

func (p llamaPattern) matches(dst []match, _ *text, b []byte) []match {
	for i := int32(0); int(i) < len(b); {
		start := i
		i = p.next(b, i)
		dst = append(dst, match{start, i, true})
	}
	return dst
}

// next returns the end of the match that starts at i.
func (p llamaPattern) next(b []byte, i int32) int32 {
	r, n := decodeRune(b[i:])
	if r == '\'' {
		if size := anyCaseContraction(b[i:]); size > 0 {
			return i + size
		}
	}
	class := p.letters.class(r)
	switch class {
	case letterLetter:
		return p.letters.run(b, i+n, letterLetter)
	case letterNumber:
		return p.number(b, i+n)
	}
	if r != '\r' && r != '\n' && int(i+n) < len(b) {
		if second, size := decodeRune(b[i+n:]); p.letters.class(second) == letterLetter {
			return p.letters.run(b, i+n+size, letterLetter)
		}
	}
	return p.other(b, i, r, class)
}

func (p llamaPattern) number(b []byte, i int32) int32 {
	for k := 1; k < p.digits && int(i) < len(b); k++ {
		r, n := decodeRune(b[i:])
		if p.letters.class(r) != letterNumber {
			break
		}
		i += n
	}
	return i
}

// other matches from " ?[^\s\p{L}\p{N}]+[\r\n]*" on.
func (p llamaPattern) other(b []byte, i int32, r rune, class int32) int32 {
	at := i
	if r == ' ' && int(i)+1 < len(b) {
		second, _ := decodeRune(b[i+1:])
		class = p.letters.class(second)
		at++
	}
	if class == letterOther {
		end := p.letters.run(b, at, letterOther)
		for int(end) < len(b) && (b[end] == '\r' || b[end] == '\n') {
			end++
		}
		return end
	}
	return p.space(b, i)
}

// space matches "\s*[\r\n]+" where the white space has a line end, and the rules of spaces where it has none.
func (p llamaPattern) space(b []byte, start int32) int32 {
	line := start
	for i := start; int(i) < len(b); {
		r, n := decodeRune(b[i:])
		if p.letters.class(r) != letterSpace {
			break
		}
		i += n
		if r == '\r' || r == '\n' {
			line = i
		}
	}
	if line > start {
		return line
	}
	return p.letters.spaces(b, start)
}

// anyCaseContraction is contraction for letters of either case, with the long s (U+017F).
func anyCaseContraction(b []byte) int32 {
	if len(b) < 2 {
		return 0
	}
	switch b[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(b) < 3 {
		return 0
	}
	if b[1] == 0xC5 && b[2] == 0xBF {
		return 3
	}
	switch x, y := b[1]|0x20, b[2]|0x20; {
	case x == 'r' && y == 'e', x == 'v' && y == 'e', x == 'l' && y == 'l':
		return 3
	}
	return 0
}
