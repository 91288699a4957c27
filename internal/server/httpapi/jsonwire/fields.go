package jsonwire

import "github.com/tutti-server/tutti/core/status"

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
	if err == nil {
		if u, ok := n.Unsigned(); ok {
			return u, nil
		}
	}
	return 0, Unable(field, NotUnsigned)
}

// Signed reads an integer.
func (p *Parser) Signed(field string) (int64, error) {
	n, err := p.Number()
	if err == nil {
		if i, ok := n.Signed(); ok {
			return i, nil
		}
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
	if p.Peek() != '[' {
		err = one()
		return values, err
	}
	err = p.Elements(one)
	return values, err
}

// Object calls read for each member of the value, which must be an object.
func (p *Parser) Object(read func(name []byte) error) error {
	if p.Peek() != '{' {
		return status.Errorf(status.Internal, "%s", NoMembers)
	}
	return p.Members(read)
}
