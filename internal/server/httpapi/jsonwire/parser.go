// Package jsonwire reads and writes JSON as Triton's HTTP API does, that is, as RapidJSON does: with its leniencies (NaN,
// Infinity, a NUL byte as the end), its error texts and offsets, and its form of numbers.
//
//   - parser.go: Parser, which walks a document in place
//   - values.go: its strings, nested arrays, and values with Triton's errors for a wrong type
//   - number.go: its numbers, and how they are printed; strings are printed by package jsontext
//
// Decision record 021 has the reasons for a parser of this project.
package jsonwire

import (
	"bytes"

	"github.com/tutti-server/tutti/core/status"
)

// maxDepth is the deepest nesting of values that are read. Skipped values may nest deeper.
const maxDepth = 100

const (
	msgEscape = "Invalid escape character in string."
	msgQuote  = "Missing a closing quotation mark in string."
)

// Parser reads one JSON document by RapidJSON's rules, and reports errors with RapidJSON's texts and offsets. It builds no tree:
// the caller visits members and elements in order and skips what it does not know. It is not safe for concurrent use.
//
// Lifecycle:
//
//  1. Begin or Document sets the document, which the Parser borrows until the next Begin or Release.
//  2. Members, Elements and the methods that read a value move the cursor. Each expects the cursor at a value and leaves it
//     behind that value. After an error the cursor is undefined.
//  3. End verifies that the document ends. Then the Parser can begin another one.
//
// For example, this sums the member "n" of each element of [{"n":1},{"n":2}]:
//
//	err := p.Elements(func() error {
//		return p.Members(func(key []byte) error {
//			if string(key) != "n" {
//				return p.Skip()
//			}
//			n, err := p.Unsigned("n")
//			sum += n
//			return err
//		})
//	})
type Parser struct {
	buf   []byte
	pos   int
	depth int
	text  []byte // the last string that had escapes
	open  []byte // the closing brackets of the value that is being skipped
}

// Begin sets the document to read, with the cursor at its first byte.
func (p *Parser) Begin(doc []byte) { p.buf, p.pos, p.depth = doc, 0, 0 }

// Document checks the syntax of a whole document, then begins it with the cursor at its value.
func (p *Parser) Document(doc []byte) error {
	if err := p.Validate(doc); err != nil {
		return err
	}
	p.Begin(doc)
	return p.Start()
}

// Release drops the document, and scratch memory larger than limit bytes.
func (p *Parser) Release(limit int) {
	p.Begin(nil)
	if cap(p.text) > limit {
		p.text = nil
	}
	if cap(p.open) > limit {
		p.open = nil
	}
}

// Mark is a position of the cursor.
type Mark struct{ pos, depth int }

// Mark returns the position of the cursor.
func (p *Parser) Mark() Mark { return Mark{p.pos, p.depth} }

// Reset moves the cursor to a position in the same document, to read a value again.
func (p *Parser) Reset(m Mark) { p.pos, p.depth = m.pos, m.depth }

// Rest returns the number of bytes from the cursor to the end of the document.
func (p *Parser) Rest() int { return len(p.buf) - p.pos }

// fail returns a syntax error at an offset. The texts are RapidJSON's, which Triton passes on to clients.
func (*Parser) fail(msg string, at int) error {
	return status.Errorf(status.Internal, "failed to parse the request JSON buffer: %s at %d", msg, at)
}

// Peek returns the byte at the cursor, 0 at the end of the document.
func (p *Parser) Peek() byte {
	if p.pos < len(p.buf) {
		return p.buf[p.pos]
	}
	return 0
}

func (p *Parser) space() {
	for p.pos < len(p.buf) {
		switch p.buf[p.pos] {
		case ' ', '\n', '\r', '\t':
			p.pos++
		default:
			return
		}
	}
}

// Start moves the cursor to the document's value. A NUL byte outside of a string ends the document.
func (p *Parser) Start() error {
	if bytes.HasPrefix(p.buf, []byte("\xef\xbb\xbf")) { // a byte order mark
		p.pos = 3
	}
	p.space()
	if p.Peek() == 0 {
		return p.fail("The document is empty.", p.pos)
	}
	return nil
}

// End verifies that nothing follows the document's value.
func (p *Parser) End() error {
	p.space()
	if p.Peek() != 0 {
		return p.fail("The document root must not be followed by other values.", p.pos)
	}
	return nil
}

// Validate reads a whole document and returns its first syntax error.
func (p *Parser) Validate(doc []byte) error {
	p.Begin(doc)
	if err := p.Start(); err != nil {
		return err
	}
	if err := p.Skip(); err != nil {
		return err
	}
	return p.End()
}

// Members calls read with the name of each member of the object at the cursor. read must read or skip the value; name is valid
// until it reads a string.
func (p *Parser) Members(read func(name []byte) error) error {
	more, err := p.enter('}')
	for ; more && err == nil; more, err = p.more('}') {
		name, err := p.key()
		if err == nil {
			err = read(name)
		}
		if err != nil {
			return err
		}
	}
	return err
}

// Elements calls read at each element of the array at the cursor. read must read or skip the element.
func (p *Parser) Elements(read func() error) error {
	more, err := p.enter(']')
	for ; more && err == nil; more, err = p.more(']') {
		if err := read(); err != nil {
			return err
		}
	}
	return err
}

// enter steps into the array or object at the cursor and reports whether it has any content. closing is its closing bracket.
func (p *Parser) enter(closing byte) (bool, error) {
	if p.depth >= maxDepth {
		return false, status.Errorf(status.InvalidArg, "JSON nesting depth exceeds maximum allowed limit (%d)", maxDepth)
	}
	p.step()
	if p.Peek() == closing {
		p.leave()
		return false, nil
	}
	return true, nil
}

func (p *Parser) step() {
	p.pos++
	p.depth++
	p.space()
}

func (p *Parser) leave() {
	p.pos++
	p.depth--
}

// key reads a member's name and stops at its value.
func (p *Parser) key() ([]byte, error) {
	if p.Peek() != '"' {
		return nil, p.fail("Missing a name for object member.", p.pos)
	}
	name, err := p.Str()
	if err != nil {
		return nil, err
	}
	p.space()
	if p.Peek() != ':' {
		return nil, p.fail("Missing a colon after a name of object member.", p.pos)
	}
	p.pos++
	p.space()
	return name, nil
}

// more reports whether another member or element follows, and stops at it.
func (p *Parser) more(closing byte) (bool, error) {
	p.space()
	switch p.Peek() {
	case ',':
		p.pos++
		p.space()
		return true, nil
	case closing:
		p.leave()
		return false, nil
	}
	if closing == '}' {
		return false, p.fail("Missing a comma or '}' after an object member.", p.pos)
	}
	return false, p.fail("Missing a comma or ']' after an array element.", p.pos)
}

// Skip reads over one value of any type and depth, checking its syntax.
func (p *Parser) Skip() error {
	if c := p.Peek(); c == '{' || c == '[' {
		return p.skipNested()
	}
	return p.skipScalar()
}

func (p *Parser) skipScalar() error {
	switch p.Peek() {
	case '"':
		_, err := p.Str()
		return err
	case 't':
		return p.Literal("true")
	case 'f':
		return p.Literal("false")
	case 'n':
		return p.Literal("null")
	default:
		_, err := p.Number()
		return err
	}
}

// skipNested skips an array or object without recursion, so that its depth needs no limit.
func (p *Parser) skipNested() error {
	for p.open = p.open[:0]; ; {
		var err error
		switch c := p.Peek(); c {
		case '{', '[':
			p.step()
			if closing := c + 2; p.Peek() != closing {
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

// skipEnds skips the closing brackets behind the last value, and stops at the next value.
func (p *Parser) skipEnds() error {
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

// member reads the name before a value of an object, which closing shows.
func (p *Parser) member(closing byte) error {
	if closing != '}' {
		return nil
	}
	_, err := p.key()
	return err
}

// Literal reads a word such as "true" at the cursor. The caller must have checked its first byte.
func (p *Parser) Literal(word string) error {
	for i := range len(word) {
		if p.pos+i >= len(p.buf) || p.buf[p.pos+i] != word[i] {
			return p.fail("Invalid value.", p.pos+i)
		}
	}
	p.pos += len(word)
	return nil
}
