package jsonwire

import (
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
)

// Triton's texts for a JSON value of the wrong type.
const (
	NotString   = "attempt to access JSON non-string as string"
	NotBoolean  = "attempt to access JSON non-boolean as boolean"
	NotArray    = "attempt to access JSON non-array as array"
	NotObject   = "attempt to access JSON non-object as object"
	NoMembers   = "attempt to get members for non-object"
	NotSigned   = "attempt to access JSON non-signed-integer as signed-integer"
	NotUnsigned = "attempt to access JSON non-unsigned-integer as unsigned-integer"
	NotNumber   = "attempt to access JSON non-number as double"
)

// Unable returns Triton's error for a field with an unusable value. why is one of the texts above.
func Unable(field, why string) error {
	return status.Errorf(status.Internal, "Unable to parse '%s': %s", field, why)
}

// Missing returns Triton's error for a field that is required and absent.
func Missing(field string) error {
	return Unable(field, "attempt to access non-existing object member '"+field+"'")
}

// Text reads a string. The result is valid until the next string is read.
func (p *Parser) Text(field string) ([]byte, error) {
	if p.Peek() != '"' {
		return nil, Unable(field, NotString)
	}
	return p.Str()
}

// Bool reads true or false.
func (p *Parser) Bool(field string) (bool, error) {
	switch p.Peek() {
	case 't':
		return true, p.Literal("true")
	case 'f':
		return false, p.Literal("false")
	}
	return false, Unable(field, NotBoolean)
}

// Unsigned reads a non-negative integer.
func (p *Parser) Unsigned(field string) (uint64, error) {
	n, err := p.Number()
	if u, ok := n.Unsigned(); err == nil && ok {
		return u, nil
	}
	return 0, Unable(field, NotUnsigned)
}

// Signed reads an integer.
func (p *Parser) Signed(field string) (int64, error) {
	n, err := p.Number()
	if i, ok := n.Signed(); err == nil && ok {
		return i, nil
	}
	return 0, Unable(field, NotSigned)
}

// Null reads null if the value is that, and reports whether it is.
func (p *Parser) Null() (bool, error) {
	if p.Peek() != 'n' {
		return false, nil
	}
	return true, p.Literal("null")
}

// TextOrList reads a string, a list of strings, or null, which yields none.
func (p *Parser) TextOrList(field string) (values []string, err error) {
	if is, err := p.Null(); is || err != nil {
		return nil, err
	}
	one := func() error {
		text, err := p.Text(field)
		values = append(values, string(text))
		return err
	}
	if p.Peek() == '[' {
		err = p.Elements(one)
	} else {
		err = one()
	}
	return values, err
}

// Object calls read for each member of the value, which must be an object.
func (p *Parser) Object(read func(name []byte) error) error {
	if p.Peek() != '{' {
		return status.Errorf(status.Internal, "%s", NoMembers)
	}
	return p.Members(read)
}

// Walk visits the values of nested arrays from left to right, for example 1, 2 and 3 in [[1,2],[3]]. A value that is not an
// array is visited alone. The zero Walk with P set begins at P's cursor.
type Walk struct {
	P     *Parser
	base  int // the depth outside the outermost array
	begun bool
}

// Next moves the cursor to the next value that is not an array. It returns false after the last one. The caller must read the
// value before it calls Next again.
//
// hot: one call per element of a JSON tensor.
func (w *Walk) Next() (bool, error) {
	p := w.P
	var more bool
	var err error
	switch {
	case !w.begun:
		w.begun, w.base = true, p.depth
		if p.Peek() != '[' {
			w.base = -1 // a scalar: there is no second value
			return true, nil
		}
		more = true
	case w.base < 0:
		return false, nil
	default:
		more, err = p.more(']')
	}
	for err == nil {
		switch {
		case !more && p.depth == w.base:
			return false, nil
		case !more:
			more, err = p.more(']')
		case p.Peek() == '[':
			more, err = p.enter(']')
		default:
			return true, nil
		}
	}
	return false, err
}

// Str reads the string at the cursor, which the caller must have checked to be one. The result is valid until the next string
// is read: it is a slice of the document, or of scratch memory if the string has escapes.
//
// hot: no copy unless the string has escapes.
func (p *Parser) Str() ([]byte, error) {
	start := p.pos + 1
	for i := start; i < len(p.buf); i++ {
		switch c := p.buf[i]; {
		case c == '"':
			p.pos = i + 1
			return p.buf[start:i], nil
		case c == '\\':
			p.text = append(p.text[:0], p.buf[start:i]...)
			p.pos = i
			return p.escaped()
		case c < ' ':
			return nil, p.control(c, i)
		}
	}
	return nil, p.fail(msgQuote, len(p.buf))
}

func (p *Parser) control(c byte, at int) error {
	if c == 0 {
		return p.fail(msgQuote, at)
	}
	return p.fail(msgEscape, at)
}

// escaped reads the rest of a string whose first escape is at the cursor.
func (p *Parser) escaped() ([]byte, error) {
	for p.pos < len(p.buf) {
		switch c := p.buf[p.pos]; {
		case c == '"':
			p.pos++
			return p.text, nil
		case c == '\\':
			if err := p.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, p.control(c, p.pos)
		default:
			p.text = append(p.text, c)
			p.pos++
		}
	}
	return nil, p.fail(msgQuote, len(p.buf))
}

// escape reads the escape at the cursor.
func (p *Parser) escape() error {
	at := p.pos
	p.pos++
	c := p.Peek()
	p.pos++
	if c == 'u' {
		return p.unicode(at)
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return p.fail(msgEscape, at)
	}
	p.text = append(p.text, "\"\\/\b\f\n\r\t"[i])
	return nil
}

// unicode reads the digits of an escape \uXXXX that began at an offset, and those of a second one for a surrogate pair.
func (p *Parser) unicode(at int) error {
	r, ok := p.hex4()
	if !ok {
		return p.fail("Incorrect hex digit after \\u escape in string.", at)
	}
	if utf16.IsSurrogate(r) {
		if p.Peek() != '\\' || p.pos+1 >= len(p.buf) || p.buf[p.pos+1] != 'u' {
			return p.fail("The surrogate pair in string is invalid.", at)
		}
		p.pos += 2
		low, ok := p.hex4()
		if !ok {
			return p.fail("Incorrect hex digit after \\u escape in string.", at)
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return p.fail("The surrogate pair in string is invalid.", at)
		}
	}
	p.text = utf8.AppendRune(p.text, r)
	return nil
}

func (p *Parser) hex4() (rune, bool) {
	if len(p.buf)-p.pos < 4 {
		return 0, false
	}
	var b [2]byte
	if _, err := hex.Decode(b[:], p.buf[p.pos:p.pos+4]); err != nil {
		return 0, false
	}
	p.pos += 4
	return rune(b[0])<<8 | rune(b[1]), true
}
