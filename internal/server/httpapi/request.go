package httpapi

import (
	"github.com/tutti-server/tutti/core/status"
)

// The texts of a JSON value of the wrong type.
const (
	notString   = "attempt to access JSON non-string as string"
	notBoolean  = "attempt to access JSON non-boolean as boolean"
	notArray    = "attempt to access JSON non-array as array"
	notObject   = "attempt to access JSON non-object as object"
	noMembers   = "attempt to get members for non-object"
	notSigned   = "attempt to access JSON non-signed-integer as signed-integer"
	notUnsigned = "attempt to access JSON non-unsigned-integer as unsigned-integer"
	notNumber   = "attempt to access JSON non-number as double"
)

// unable says that the value of a field is not what it should be.
func unable(field, why string) error {
	return status.Errorf(status.Internal, "Unable to parse '%s': %s", field, why)
}

func missing(field string) error {
	return unable(field, "attempt to access non-existing object member '"+field+"'")
}

// parse reads the request's JSON into x. A document with an error in its meaning
// and one in its syntax is refused for its syntax, as a parser of whole documents does.
func (x *exchange) parse(doc []byte) error {
	x.p.begin(doc)
	err := x.document()
	if err == nil {
		return nil
	}
	if syntax := x.p.validate(doc); syntax != nil {
		return syntax
	}
	return err
}

func (x *exchange) document() error {
	p := &x.p
	if err := p.root(); err != nil {
		return err
	}
	if p.peek() != '{' {
		return missing("inputs")
	}
	var seen field
	more, err := p.enter('}')
	for ; more && err == nil; more, err = p.more('}') {
		if err = x.member(&seen); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	if !seen.has(hasInputs) {
		return missing("inputs")
	}
	return nil
}

// member reads one member of the request.
func (x *exchange) member(seen *field) error {
	key, err := x.p.key()
	if err != nil {
		return err
	}
	switch {
	case string(key) == "inputs" && seen.see(hasInputs):
		return x.list("inputs", (*exchange).input)
	case string(key) == "outputs" && seen.see(hasOutputs):
		return x.list("outputs", (*exchange).output)
	case string(key) == "id" && seen.see(hasID):
		id, err := x.text("id")
		x.req.ID = string(id)
		return err
	case string(key) == "parameters" && seen.see(hasParameters):
		return x.parameters()
	}
	return x.p.skip()
}

// list reads an array of objects, each with read.
func (x *exchange) list(field string, read func(*exchange) error) error {
	if x.p.peek() != '[' {
		return unable(field, notArray)
	}
	more, err := x.p.enter(']')
	for ; more && err == nil; more, err = x.p.more(']') {
		if err = read(x); err != nil {
			return err
		}
	}
	return err
}

// text reads a string value.
func (x *exchange) text(field string) ([]byte, error) {
	if x.p.peek() != '"' {
		return nil, unable(field, notString)
	}
	return x.p.str()
}

// boolean reads true or false.
func (x *exchange) boolean(field string) (bool, error) {
	switch x.p.peek() {
	case 't':
		return true, x.p.literal("true")
	case 'f':
		return false, x.p.literal("false")
	}
	return false, unable(field, notBoolean)
}

// unsigned reads a non-negative integer.
func (x *exchange) unsigned(field string) (uint64, error) {
	n, err := x.p.number()
	if err == nil {
		if u, ok := n.unsigned(); ok {
			return u, nil
		}
	}
	return 0, unable(field, notUnsigned)
}
