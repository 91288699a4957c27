package jsonwire

import (
	"bytes"
	"math"
	"strconv"
	"unsafe"
)

// Number is a number as written in the document. It is valid as long as the document is.
type Number struct {
	lit     []byte
	abs     uint64 // the magnitude of an integer
	integer bool   // an integer that fits 64 bits
	neg     bool
	// places is the number of decimals when decimal divided by 10^places is exactly the number; 0 when only lit has it. For
	// example, 4.35 has places 2 and decimal 435.
	places  uint8
	decimal uint64
}

// exactDigits is the number of decimal digits that a double always holds exactly. One division of such a number by a power of
// ten, exact up to 1e22, gives the nearest double.
const exactDigits = 15

var tens = [exactDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// Number reads the number at the cursor. Like Triton it accepts NaN, Inf and Infinity, with or without a minus sign.
//
// hot: one call per element of a JSON tensor.
func (p *Parser) Number() (Number, error) {
	var n Number
	start := p.pos
	if p.Peek() == '-' {
		n.neg = true
		p.pos++
	}
	switch c := p.Peek(); {
	case c == '0':
		n.integer = true
		p.pos++
	case '1' <= c && c <= '9':
		n.integer = p.digits(&n)
	case c == 'N' || c == 'I':
		return p.notFinite(n, start)
	default:
		return n, p.fail("Invalid value.", p.pos)
	}
	exponent, err := p.fraction(&n)
	if err != nil {
		return n, err
	}
	n.lit = p.buf[start:p.pos]
	if (exponent || len(n.lit) > 300) && math.IsInf(n.Float(), 0) {
		return n, p.fail("Number too big to be stored in double.", start)
	}
	return n, nil
}

// digits reads an integer's digits and reports whether it fits 64 bits.
func (p *Parser) digits(n *Number) bool {
	fits := true
	for ; p.pos < len(p.buf); p.pos++ {
		d := uint64(p.buf[p.pos] - '0')
		if d > 9 {
			break
		}
		if n.abs > (math.MaxUint64-d)/10 {
			fits = false
		}
		n.abs = n.abs*10 + d
	}
	return fits && (!n.neg || n.abs <= 1<<63)
}

// fraction reads an optional fraction and exponent, and reports whether there is an exponent.
func (p *Parser) fraction(n *Number) (bool, error) {
	if p.Peek() == '.' {
		p.pos++
		if !p.decimals(n) {
			return false, p.fail("Miss fraction part in number.", p.pos)
		}
	}
	if c := p.Peek(); c != 'e' && c != 'E' {
		return false, nil
	}
	n.integer, n.places = false, 0
	p.pos++
	if c := p.Peek(); c == '+' || c == '-' {
		p.pos++
	}
	start := p.pos
	for p.pos < len(p.buf) && p.buf[p.pos]-'0' <= 9 {
		p.pos++
	}
	if p.pos == start {
		return false, p.fail("Miss exponent in number.", p.pos)
	}
	return true, nil
}

// decimals reads the digits after a point and reports whether there are any.
func (p *Parser) decimals(n *Number) bool {
	start, value := p.pos, n.abs
	for ; p.pos < len(p.buf); p.pos++ {
		d := uint64(p.buf[p.pos] - '0')
		if d > 9 {
			break
		}
		value = value*10 + d
	}
	count := p.pos - start
	// With so few digits in all, value has not overflowed.
	if n.integer && count <= exactDigits && n.abs < uint64(tens[exactDigits-count]) {
		n.places, n.decimal = uint8(count), value
	}
	n.integer = false
	return count > 0
}

// notFinite reads NaN, Inf or Infinity.
func (p *Parser) notFinite(n Number, start int) (Number, error) {
	word := "NaN"
	if p.Peek() == 'I' {
		word = "Inf"
	}
	if err := p.Literal(word); err != nil {
		return n, err
	}
	if word == "Inf" && p.Peek() == 'i' {
		if err := p.Literal("inity"); err != nil {
			return n, err
		}
	}
	n.lit = p.buf[start:p.pos]
	return n, nil
}

// Float returns the nearest double.
func (n *Number) Float() float64 {
	switch {
	case n.integer && n.abs < 1<<53:
		return n.sign(float64(n.abs))
	case n.places > 0:
		return n.sign(float64(n.decimal) / tens[n.places])
	}
	if n.neg && len(n.lit) == 4 && n.lit[1] == 'N' {
		return math.NaN()
	}
	// The only error is a range error, with which ParseFloat returns the right infinity.
	f, _ := strconv.ParseFloat(unsafe.String(unsafe.SliceData(n.lit), len(n.lit)), 64)
	return f
}

// String returns the number as written.
func (n *Number) String() string { return string(n.lit) }

func (n *Number) sign(f float64) float64 {
	if n.neg {
		return -f
	}
	return f
}

// Signed returns the number as an int64; ok is false when it is not one, as for 1.0.
func (n *Number) Signed() (i int64, ok bool) {
	if n.neg {
		return -int64(n.abs), n.integer
	}
	return int64(n.abs), n.integer && n.abs <= math.MaxInt64
}

// Unsigned returns the number as a uint64; ok is false when it is not one.
func (n *Number) Unsigned() (u uint64, ok bool) {
	return n.abs, n.integer && (!n.neg || n.abs == 0)
}

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
	// strconv writes an exponent with a sign and at least two digits.
	var buf [32]byte
	digits, exponent, _ := bytes.Cut(strconv.AppendFloat(buf[:0], v, 'e', -1, 64), []byte("e"))
	n, _ := strconv.Atoi(string(exponent))
	return strconv.AppendInt(append(append(b, digits...), 'e'), int64(n), 10)
}
