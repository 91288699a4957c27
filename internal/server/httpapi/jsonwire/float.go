package jsonwire

import (
	"math"
	"strconv"
)

// AppendFloat appends v with the fewest digits that identify it, in RapidJSON's form: always with a decimal point unless there
// is an exponent, which stands outside 1e-6 to 1e21 only. For example, 1 is 1.0 and 1e-7 is 1e-7.
func AppendFloat(b []byte, v float64) []byte {
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

// shortest returns the fewest digits that identify v, in buf, and the decimal exponent of the first digit.
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
	if e > 1 { // remove the point
		s[1] = s[0]
		digits = s[1:e]
	}
	return digits, exp
}
