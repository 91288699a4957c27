package jsonwire

import (
	"unicode/utf16"
	"unicode/utf8"
)

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
	switch c {
	case '"', '\\', '/':
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
		return p.unicode(at)
	default:
		return p.fail(msgEscape, at)
	}
	p.text = append(p.text, c)
	return nil
}

// unicode reads the digits of an escape \uXXXX that began at an offset, and those of a second one for a surrogate pair.
func (p *Parser) unicode(at int) error {
	r, ok := p.hex4()
	if !ok {
		return p.fail(msgHex, at)
	}
	if utf16.IsSurrogate(r) {
		if p.Peek() != '\\' || p.pos+1 >= len(p.buf) || p.buf[p.pos+1] != 'u' {
			return p.fail(msgSurrogate, at)
		}
		p.pos += 2
		low, ok := p.hex4()
		if !ok {
			return p.fail(msgHex, at)
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return p.fail(msgSurrogate, at)
		}
	}
	p.text = utf8.AppendRune(p.text, r)
	return nil
}

func (p *Parser) hex4() (rune, bool) {
	if len(p.buf)-p.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range p.buf[p.pos : p.pos+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
}
