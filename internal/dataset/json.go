package dataset

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tutti-server/tutti/internal/jsontext"
)

// maxDepth bounds the nesting of JSON.
const maxDepth = 256

// jsonError is a fault in JSON text.
type jsonError struct {
	want string
	at   int // the index of the byte that was found
	text []byte
}

func (e *jsonError) Error() string {
	if e.at >= len(e.text) {
		return fmt.Sprintf("not JSON: expected %s, found the end of the text", e.want)
	}
	r, _ := utf8.DecodeRune(e.text[e.at:])
	return fmt.Sprintf("not JSON: expected %s at byte %d, found %q", e.want, e.at+1, r)
}

func expected(b []byte, at int, want string) error { return &jsonError{want: want, at: at, text: b} }

// skipSpace returns the index of the first byte from i on that is no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipValue checks the value at i and returns the index behind it. NaN, Infinity and -Infinity are numbers.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, expected(b, i, "a value")
	}
	if depth > maxDepth {
		return i, expected(b, i, fmt.Sprintf("at most %d levels", maxDepth))
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '[':
		return skipArray(b, i, depth)
	case c == '{':
		return skipObject(b, i, depth, nil)
	case c == '-' || '0' <= c && c <= '9':
		return skipNumber(b, i)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	case c == 'N':
		return skipWord(b, i, "NaN")
	case c == 'I':
		return skipWord(b, i, "Infinity")
	}
	return i, expected(b, i, "a value")
}

func skipWord(b []byte, i int, word string) (int, error) {
	if !bytes.HasPrefix(b[i:], []byte(word)) {
		return i, expected(b, i, word)
	}
	return i + len(word), nil
}

func skipArray(b []byte, i, depth int) (int, error) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		i = skipNumbers(b, i)
		var err error
		if i, err = skipValue(b, i, depth+1); err != nil {
			return i, err
		}
		switch i = skipSpace(b, i); {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == ']':
			return i + 1, nil
		default:
			return i, expected(b, i, "',' or ']'")
		}
	}
}

// skipNumbers returns the index behind those elements of a list at i that are numbers without an exponent with a comma behind them. It
// is for long lists.
func skipNumbers(b []byte, i int) int {
	for {
		n := i
		if n < len(b) && b[n] == '-' {
			n++
		}
		whole := n
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		if n == whole || b[whole] == '0' && n > whole+1 {
			return i
		}
		if n < len(b) && b[n] == '.' {
			point := n
			for n++; n < len(b) && b[n]-'0' <= 9; n++ {
			}
			if n == point+1 {
				return i
			}
		}
		if n >= len(b) || b[n] != ',' {
			return i
		}
		i = skipSpace(b, n+1)
	}
}

// skipObject checks the object at i. It calls member, if there is one, with each name, quotes included, and its value.
func skipObject(b []byte, i, depth int, member func(name, value []byte)) (int, error) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return i, expected(b, i, "a name in quotes")
		}
		end, err := skipString(b, i)
		if err != nil {
			return end, err
		}
		name := b[i:end]
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return i, expected(b, i, "':'")
		}
		from := skipSpace(b, i+1)
		if i, err = skipValue(b, from, depth+1); err != nil {
			return i, err
		}
		if member != nil {
			member(name, b[from:i])
		}
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		default:
			return i, expected(b, i, "',' or '}'")
		}
	}
}

func skipString(b []byte, i int) (int, error) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			i++
			if i >= len(b) || !bytes.ContainsRune([]byte(`"\/bfnrtu`), rune(b[i])) {
				return i, expected(b, i, "an escape")
			}
			if b[i] == 'u' {
				if _, ok := hex4(b[i+1:]); !ok {
					return i, expected(b, i+1, "four hexadecimal digits")
				}
				i += 4
			}
		case c < ' ':
			return i, expected(b, i, "no control character")
		}
	}
	return i, expected(b, i, "'\"'")
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	v := rune(0)
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}

func skipNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		if i++; i < len(b) && b[i] == 'I' {
			return skipWord(b, i, "Infinity")
		}
	}
	from := i
	if i = skipDigits(b, i); i == from {
		return i, expected(b, i, "a digit")
	}
	if b[from] == '0' && i > from+1 {
		return from + 1, expected(b, from+1, "no digit behind a leading 0")
	}
	if i < len(b) && b[i] == '.' {
		if from, i = i+1, skipDigits(b, i+1); i == from {
			return i, expected(b, i, "a digit")
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if from, i = i, skipDigits(b, i); i == from {
			return i, expected(b, i, "a digit")
		}
	}
	return i, nil
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// unquote appends the content of a valid JSON string, quotes included, to dst. A lone surrogate becomes U+FFFD.
func unquote(dst, s []byte) []byte {
	s = s[1 : len(s)-1]
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
					low, _ = hex4(s[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					s = s[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// appendCanonical appends a valid JSON value in its canonical form: no white space, numbers in their shortest spelling,
// strings with the escapes of jsontext, objects sorted by name.
func appendCanonical(dst, v []byte) []byte {
	dst, _ = canonical(dst, v, skipSpace(v, 0))
	return dst
}

func canonical(dst, b []byte, i int) ([]byte, int) {
	switch b[i] {
	case '"':
		end, _ := skipString(b, i)
		if bytes.IndexByte(b[i:end], '\\') < 0 {
			return append(dst, b[i:end]...), end
		}
		return jsontext.Append(dst, unquote(nil, b[i:end])), end
	case '[':
		dst = append(dst, '[')
		for i = skipSpace(b, i+1); b[i] != ']'; {
			if dst, i = canonicalNumbers(dst, b, i); b[i] == ']' {
				break
			}
			dst, i = canonical(dst, b, i)
			if i = skipSpace(b, i); b[i] == ',' {
				dst, i = append(dst, ','), skipSpace(b, i+1)
			}
		}
		return append(dst, ']'), i + 1
	case '{':
		return canonicalObject(dst, b, i)
	case 't', 'f', 'n', 'N', 'I':
		end, _ := skipValue(b, i, 0)
		return append(dst, b[i:end]...), end
	default:
		return canonicalNumber(dst, b, i)
	}
}

func canonicalObject(dst, b []byte, i int) ([]byte, int) {
	var members [][]byte
	end, _ := skipObject(b, i, 0, func(name, value []byte) {
		m := append(jsontext.Append(nil, unquote(nil, name)), ':')
		members = append(members, appendCanonical(m, value))
	})
	slices.SortStableFunc(members, bytes.Compare)
	return append(append(append(dst, '{'), bytes.Join(members, []byte{','})...), '}'), end
}

// canonicalNumbers appends those elements of a valid list at i that are numbers in their canonical form, with the commas behind them, and
// returns the index of the first one that is not, or of the ']'. See canonicalNumber for the forms.
func canonicalNumbers(dst, b []byte, i int) ([]byte, int) {
	from := i // of what is not yet appended
	for {
		n := i
		if b[n] == '-' {
			n++
		}
		whole := n
		for b[n]-'0' <= 9 {
			n++
		}
		most := 18
		if b[n] == '.' {
			most = 15 // a point among them
			for n++; b[n]-'0' <= 9; n++ {
			}
			if b[n-1] == '0' || b[whole] == '0' && bytes.HasPrefix(b[whole:n], []byte("0.00000")) {
				break
			}
		}
		switch {
		case n == whole, n-whole > most:
		case b[n] == ']':
			return append(dst, b[from:n]...), n
		case b[n] == ',':
			n++
			if i = skipSpace(b, n); i > n {
				dst, from = append(dst, b[from:n]...), i
			}
			continue
		}
		break
	}
	return append(dst, b[from:i]...), i
}

// canonicalNumber appends the shortest spelling of the number at b[i], and returns the index behind it. Integers that fit 64
// bits keep all digits. Up to 15 digits are exact in a float64, so that only trailing zeros are dropped.
func canonicalNumber(dst, b []byte, i int) ([]byte, int) {
	from := i
	if b[i] == '-' {
		i++
	}
	whole := i
	i = skipDigits(b, i)
	digits, point := i-whole, i
	if i < len(b) && b[i] == '.' {
		i = skipDigits(b, i+1)
		digits = i - whole - 1
	}
	switch {
	case i < len(b) && (b[i]|0x20 == 'e' || b[i] == 'I'):
		i, _ = skipNumber(b, from)
	case point == i && digits <= 18:
		return append(dst, b[from:i]...), i
	case point < i && digits <= 15 && !bytes.HasPrefix(b[whole:i], []byte("0.00000")):
		end := i
		for b[end-1] == '0' {
			end--
		}
		if b[end-1] == '.' {
			end--
		}
		return append(dst, b[from:end]...), i
	case point == i:
		if v, err := strconv.ParseInt(stringOf(b[from:i]), 10, 64); err == nil {
			return strconv.AppendInt(dst, v, 10), i
		}
		if v, err := strconv.ParseUint(stringOf(b[from:i]), 10, 64); err == nil {
			return strconv.AppendUint(dst, v, 10), i
		}
	}
	v, _ := strconv.ParseFloat(stringOf(b[from:i]), 64) // a value out of range is an infinity
	return appendFloat(dst, v, 64), i
}
