// Package jsontext writes JSON strings, for every part of the server that builds JSON by hand: HTTP responses, the
// configuration endpoint, the trace file, logs, and steps whose outputs are JSON.
//
// The escapes are those of RapidJSON, which Triton uses: \" \\ \b \f \n \r \t, and \u00XX with upper-case digits for every
// other control character. Everything else, '<' and '/' included, is copied. For example, the two bytes `a"` become `"a\""`.
package jsontext

import "unicode/utf8"

// Append appends s to b as a JSON string, quotes included. Bytes above 0x7F are copied unchecked: the caller must know that s
// is UTF-8, or that its clients expect the bytes as they are.
//
// hot: no allocation once b has room.
func Append[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		b = appendEscape(b, c)
		start = i + 1
	}
	return append(append(b, s[start:]...), '"')
}

// AppendValid appends s to b as a JSON string in which every byte that is not UTF-8 is replaced with U+FFFD.
//
// hot: no allocation for UTF-8, once b has room.
func AppendValid[T string | []byte](b []byte, s T) []byte {
	if !valid(s) {
		return Append(b, string([]rune(string(s))))
	}
	return Append(b, s)
}

// valid reports whether s is UTF-8. Generic code cannot choose between utf8.Valid and utf8.ValidString without converting
// s, which allocates.
func valid[T string | []byte](s T) bool {
	switch s := any(s).(type) {
	case string:
		return utf8.ValidString(s)
	case []byte:
		return utf8.Valid(s)
	}
	return false
}

func appendEscape(b []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		c = 'b'
	case '\f':
		c = 'f'
	case '\n':
		c = 'n'
	case '\r':
		c = 'r'
	case '\t':
		c = 't'
	default:
		return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
	return append(b, '\\', c)
}
