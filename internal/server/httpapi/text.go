package httpapi

import (
	"math"
	"strconv"
)

// appendFloat prints v with the fewest digits that give it back, in the form
// RapidJSON chooses: a point always, an exponent only outside 1e-6 to 1e21.
func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	}
	if math.Signbit(v) {
		b, v = append(b, '-'), -v
	}
	if i := uint64(v); v < 1<<53 && float64(i) == v {
		return append(strconv.AppendUint(b, i, 10), ".0"...)
	}
	if 1e-6 <= v && v < 1e21 {
		b = strconv.AppendFloat(b, v, 'f', -1, 64)
		if v >= 1<<53 {
			b = append(b, ".0"...)
		}
		return b
	}
	var buf [32]byte
	digits, exp := shortest(buf[:0], v)
	b = append(b, digits[0])
	if len(digits) > 1 {
		b = append(append(b, '.'), digits[1:]...)
	}
	return strconv.AppendInt(append(b, 'e'), int64(exp), 10)
}

// shortest returns v's shortest digits, in buf, and the exponent of the first.
func shortest(buf []byte, v float64) (digits []byte, exp int) {
	s := strconv.AppendFloat(buf, v, 'e', -1, 64)
	e := len(s) - 1
	for s[e] != 'e' {
		e--
	}
	for _, c := range s[e+2:] {
		exp = exp*10 + int(c-'0')
	}
	if s[e+1] == '-' {
		exp = -exp
	}
	digits = s[:e]
	if e > 1 { // take the point out
		s[1] = s[0]
		digits = s[1:e]
	}
	return digits, exp
}
