package inference

import (
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

// parse reads the request's JSON. A document with both an error in its meaning and one in its syntax is rejected for its syntax,
// as by Triton, which parses the whole document first.
func (x *exchange) parse(doc []byte) error {
	x.p.Begin(doc)
	err := x.readRequest()
	if err == nil {
		return nil
	}
	if syntax := x.p.Validate(doc); syntax != nil {
		return syntax
	}
	return err
}

func (x *exchange) readRequest() error {
	if err := x.p.Start(); err != nil {
		return err
	}
	if x.p.Peek() != '{' {
		return jsonwire.Missing("inputs")
	}
	var seen field
	if err := x.p.Members(func(name []byte) error { return x.readMember(name, &seen) }); err != nil {
		return err
	}
	if err := x.p.End(); err != nil {
		return err
	}
	if !seen.has(hasInputs) {
		return jsonwire.Missing("inputs")
	}
	return nil
}

func (x *exchange) readMember(name []byte, seen *field) error {
	switch {
	case string(name) == "inputs" && seen.first(hasInputs):
		return x.readList("inputs", (*exchange).readInput)
	case string(name) == "outputs" && seen.first(hasOutputs):
		return x.readList("outputs", (*exchange).readOutput)
	case string(name) == "id" && seen.first(hasID):
		id, err := x.p.Text("id")
		x.req.ID = string(id)
		return err
	case string(name) == "parameters" && seen.first(hasParameters):
		return x.readParameters()
	}
	return x.p.Skip()
}

// readList reads an array, each element with read.
func (x *exchange) readList(name string, read func(*exchange) error) error {
	if x.p.Peek() != '[' {
		return jsonwire.Unable(name, jsonwire.NotArray)
	}
	return x.p.Elements(func() error { return read(x) })
}
