package httpapi

import (
	"bytes"
	"math"
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
)

// maxDepth is how deep JSON may nest that is read, and not skipped.
const maxDepth = 100

// RapidJSON's parse errors, which Triton passes on.
const (
	msgEmpty        = "The document is empty."
	msgNotSingular  = "The document root must not be followed by other values."
	msgValue        = "Invalid value."
	msgName         = "Missing a name for object member."
	msgColon        = "Missing a colon after a name of object member."
	msgObjectComma  = "Missing a comma or '}' after an object member."
	msgArrayComma   = "Missing a comma or ']' after an array element."
	msgHex          = "Incorrect hex digit after \\u escape in string."
	msgSurrogate    = "The surrogate pair in string is invalid."
	msgEscape       = "Invalid escape character in string."
	msgQuote        = "Missing a closing quotation mark in string."
	msgTooBig       = "Number too big to be stored in double."
	msgMissFraction = "Miss fraction part in number."
	msgMissExponent = "Miss exponent in number."
)

// parser reads one JSON document by RapidJSON's rules, so that what it refuses, it
// refuses with the text and the offset that clients know. It keeps no tree: the
// caller walks members and elements, and skips what it does not know.
type parser struct {
	buf   []byte
	pos   int
	depth int
	text  []byte // the last string that had escapes
	open  []byte // the closing brackets of what is being skipped
}

// begin makes p read doc.
func (p *parser) begin(doc []byte) { p.buf, p.pos, p.depth = doc, 0, 0 }

// fail returns the syntax error msg at an offset.
func (*parser) fail(msg string, at int) error {
	return status.Errorf(status.Internal, "failed to parse the request JSON buffer: %s at %d", msg, at)
}

// peek returns the byte at the cursor, 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.buf) {
		return p.buf[p.pos]
	}
	return 0
}

func (p *parser) space() {
	for p.pos < len(p.buf) {
		switch p.buf[p.pos] {
		case ' ', '\n', '\r', '\t':
			p.pos++
		default:
			return
		}
	}
}

// byteOrderMark may begin a document.
const byteOrderMark = "\xef\xbb\xbf"

// root moves to the document's value. A byte 0 is the end of a document, wherever it stands outside of a string.
func (p *parser) root() error {
	if bytes.HasPrefix(p.buf, []byte(byteOrderMark)) {
		p.pos = len(byteOrderMark)
	}
	p.space()
	if p.peek() == 0 {
		return p.fail(msgEmpty, p.pos)
	}
	return nil
}

// end verifies that nothing follows the document's value.
func (p *parser) end() error {
	p.space()
	if p.peek() != 0 {
		return p.fail(msgNotSingular, p.pos)
	}
	return nil
}

// validate reads a whole document and reports its first syntax error.
func (p *parser) validate(doc []byte) error {
	p.begin(doc)
	if err := p.root(); err != nil {
		return err
	}
	if err := p.skip(); err != nil {
		return err
	}
	return p.end()
}

// enter steps into the array or object at the cursor and reports whether it has
// something in it; closing is its closing bracket.
func (p *parser) enter(closing byte) (bool, error) {
	if p.depth >= maxDepth {
		return false, status.Errorf(status.InvalidArg, "JSON nesting depth exceeds maximum allowed limit (%d)", maxDepth)
	}
	p.step()
	if p.peek() == closing {
		p.leave()
		return false, nil
	}
	return true, nil
}

func (p *parser) step() {
	p.pos++
	p.depth++
	p.space()
}

func (p *parser) leave() {
	p.pos++
	p.depth--
}

// key reads a member's name and stops at its value. The name is valid until the next string is read.
func (p *parser) key() ([]byte, error) {
	if p.peek() != '"' {
		return nil, p.fail(msgName, p.pos)
	}
	name, err := p.str()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.peek() != ':' {
		return nil, p.fail(msgColon, p.pos)
	}
	p.pos++
	p.space()
	return name, nil
}

// more reports whether another member or element follows, and stops at it.
func (p *parser) more(closing byte) (bool, error) {
	p.space()
	switch p.peek() {
	case ',':
		p.pos++
		p.space()
		return true, nil
	case closing:
		p.leave()
		return false, nil
	}
	if closing == '}' {
		return false, p.fail(msgObjectComma, p.pos)
	}
	return false, p.fail(msgArrayComma, p.pos)
}

// skip reads over one value of any kind and depth.
func (p *parser) skip() error {
	if c := p.peek(); c == '{' || c == '[' {
		return p.skipNested()
	}
	return p.skipScalar()
}

func (p *parser) skipScalar() error {
	switch p.peek() {
	case '"':
		_, err := p.str()
		return err
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	default:
		_, err := p.number()
		return err
	}
}

// skipNested reads over an array or object without recursion, so that its depth needs no limit.
func (p *parser) skipNested() error {
	for p.open = p.open[:0]; ; {
		var err error
		switch c := p.peek(); c {
		case '{', '[':
			p.step()
			if closing := c + 2; p.peek() != closing {
				p.open = append(p.open, closing)
				err = p.member(closing)
				break
			}
			p.leave()
			err = p.skipEnds()
		default:
			if err = p.skipScalar(); err == nil {
				err = p.skipEnds()
			}
		}
		if err != nil || len(p.open) == 0 {
			return err
		}
	}
}

// skipEnds stops at the value that follows the one just read, behind the ends of all that ended with it.
func (p *parser) skipEnds() error {
	for n := len(p.open); n > 0; n = len(p.open) {
		closing := p.open[n-1]
		switch more, err := p.more(closing); {
		case err != nil:
			return err
		case more:
			return p.member(closing)
		}
		p.open = p.open[:n-1]
	}
	return nil
}

// member reads the name before a value where that is in an object, whose closing bracket is given.
func (p *parser) member(closing byte) error {
	if closing != '}' {
		return nil
	}
	_, err := p.key()
	return err
}

// literal reads the word at the cursor, whose first byte the caller has seen.
func (p *parser) literal(word string) error {
	for i := range len(word) {
		if p.pos+i >= len(p.buf) || p.buf[p.pos+i] != word[i] {
			return p.fail(msgValue, p.pos+i)
		}
	}
	p.pos += len(word)
	return nil
}

// number is a number as written.
type number struct {
	lit     []byte
	abs     uint64 // the magnitude of an integer
	integer bool   // an integer that fits 64 bits
	neg     bool
	// places counts the digits after the point of a number that is decimal divided
	// by so many tens, exactly; 0 when it must be read from lit.
	places  uint8
	decimal uint64
}

// exactDigits is how many decimal digits a double holds whatever they are, so that
// one division by a power of ten, which is exact up to 22, gives the nearest double.
const exactDigits = 15

var tens = [exactDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// number reads the number at the cursor.
//
// hot: one call per element of a JSON tensor.
func (p *parser) number() (number, error) {
	var n number
	start := p.pos
	if p.peek() == '-' {
		n.neg = true
		p.pos++
	}
	switch c := p.peek(); {
	case c == '0':
		n.integer = true
		p.pos++
	case '1' <= c && c <= '9':
		n.integer = p.digits(&n)
	case c == 'N' || c == 'I':
		return p.notFinite(n, start)
	default:
		return n, p.fail(msgValue, p.pos)
	}
	exponent, err := p.fraction(&n)
	if err != nil {
		return n, err
	}
	n.lit = p.buf[start:p.pos]
	if exponent || len(n.lit) > 300 {
		if math.IsInf(n.float(), 0) {
			return n, p.fail(msgTooBig, start)
		}
	}
	return n, nil
}

// digits reads an integer's digits and reports whether it fits 64 bits.
func (p *parser) digits(n *number) bool {
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

// fraction reads what may follow an integer's digits and reports whether an exponent did.
func (p *parser) fraction(n *number) (bool, error) {
	if p.peek() == '.' {
		p.pos++
		if !p.decimals(n) {
			return false, p.fail(msgMissFraction, p.pos)
		}
	}
	if c := p.peek(); c != 'e' && c != 'E' {
		return false, nil
	}
	n.integer, n.places = false, 0
	p.pos++
	if c := p.peek(); c == '+' || c == '-' {
		p.pos++
	}
	if !p.skipDigits() {
		return false, p.fail(msgMissExponent, p.pos)
	}
	return true, nil
}

// decimals reads the digits after a point and reports whether there are any.
func (p *parser) decimals(n *number) bool {
	start, value := p.pos, n.abs
	for ; p.pos < len(p.buf); p.pos++ {
		d := uint64(p.buf[p.pos] - '0')
		if d > 9 {
			break
		}
		value = value*10 + d
	}
	count := p.pos - start
	// The value has not wrapped around if it had no more digits than this before.
	if n.integer && count <= exactDigits && n.abs < uint64(tens[exactDigits-count]) {
		n.places, n.decimal = uint8(count), value
	}
	n.integer = false
	return count > 0
}

func (p *parser) skipDigits() bool {
	start := p.pos
	for p.pos < len(p.buf) && p.buf[p.pos]-'0' <= 9 {
		p.pos++
	}
	return p.pos > start
}

// notFinite reads NaN, Inf or Infinity, which Triton takes though JSON has no such numbers.
func (p *parser) notFinite(n number, start int) (number, error) {
	word := "NaN"
	if p.peek() == 'I' {
		word = "Inf"
	}
	if err := p.literal(word); err != nil {
		return n, err
	}
	if word == "Inf" && p.peek() == 'i' {
		if err := p.literal("inity"); err != nil {
			return n, err
		}
	}
	n.lit = p.buf[start:p.pos]
	return n, nil
}

// float returns the number as the nearest double.
func (n *number) float() float64 {
	switch {
	case n.integer && n.abs < 1<<53:
		return n.sign(float64(n.abs))
	case n.places > 0:
		return n.sign(float64(n.decimal) / tens[n.places])
	}
	if n.neg && len(n.lit) == 4 && n.lit[1] == 'N' {
		return math.NaN()
	}
	// The only error is a range error, which comes with the infinity meant.
	f, _ := strconv.ParseFloat(unsafe.String(unsafe.SliceData(n.lit), len(n.lit)), 64)
	return f
}

func (n *number) sign(f float64) float64 {
	if n.neg {
		return -f
	}
	return f
}

// signed returns the number as an int64 if it is one.
func (n *number) signed() (int64, bool) {
	if n.neg {
		return -int64(n.abs), n.integer
	}
	return int64(n.abs), n.integer && n.abs <= math.MaxInt64
}

// unsigned returns the number as a uint64 if it is one.
func (n *number) unsigned() (uint64, bool) {
	return n.abs, n.integer && (!n.neg || n.abs == 0)
}
