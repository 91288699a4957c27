package httpapi

import (
	"math"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/tensor"
)

// The texts of a JSON value of the wrong type.
const (
	notString   = "attempt to access JSON non-string as string"
	notBoolean  = "attempt to access JSON non-boolean as boolean"
	notArray    = "attempt to access JSON non-array as array"
	notObject   = "attempt to access JSON non-object as object"
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

// input reads one element of inputs.
func (x *exchange) input() error {
	if x.p.peek() != '{' {
		return new(spec).oneSource()
	}
	x.specs = append(x.specs, spec{})
	in := &x.specs[len(x.specs)-1]
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		if err = x.inputMember(in); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return x.completeInput(in)
}

func (x *exchange) inputMember(in *spec) error {
	key, err := x.p.key()
	if err != nil {
		return err
	}
	switch {
	case string(key) == "name" && in.have.see(hasName):
		name, err := x.text("name")
		in.name = x.names.of(name)
		return err
	case string(key) == "datatype" && in.have.see(hasDatatype):
		name, err := x.text("datatype")
		in.dtype = dtypeOf(name)
		return err
	case string(key) == "shape" && in.have.see(hasShape):
		return x.shape(in)
	case string(key) == "parameters" && in.have.see(hasParameters):
		return x.inputParameters(in)
	case string(key) == "data" && in.have.see(hasData):
		const known = hasName | hasDatatype | hasShape
		if in.have&known == known && !in.have.has(hasBinary|hasRegion) {
			in.have |= isDecoded
			return x.data(in)
		}
		in.data = x.p.pos
	}
	return x.p.skip()
}

// dtypeOf finds a type by its wire name.
//
// hot: no allocation.
func dtypeOf(name []byte) tensor.DType {
	for d := tensor.Bool; d <= tensor.BF16; d++ {
		if string(name) == d.String() {
			return d
		}
	}
	return tensor.Invalid
}

// shape reads an input's dimensions. One beyond an int64 becomes negative, and is refused as such.
func (x *exchange) shape(in *spec) error {
	if x.p.peek() != '[' {
		return unable("shape", notArray)
	}
	var few [8]int64
	dims := few[:0]
	more, err := x.p.enter(']')
	for ; more && err == nil; more, err = x.p.more(']') {
		d, err := x.unsigned("shape")
		if err != nil {
			return err
		}
		dims = append(dims, int64(d))
	}
	in.shape = tensor.Of(dims...)
	return err
}

func (x *exchange) inputParameters(in *spec) error {
	if x.p.peek() != '{' {
		return x.p.skip()
	}
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		key, err := x.p.key()
		if err != nil {
			return err
		}
		switch {
		case string(key) == "binary_data_size" && in.have.see(hasBinary):
			n, err := x.unsigned("binary_data_size")
			if err != nil {
				return err
			}
			in.size = int64(min(n, math.MaxInt64))
			continue
		case string(key) == "shared_memory_region":
			in.have.see(hasRegion)
		}
		if err := x.p.skip(); err != nil {
			return err
		}
	}
	return err
}

// completeInput checks an input's members together, and reads data that could not be read in passing.
func (x *exchange) completeInput(in *spec) error {
	if err := in.oneSource(); err != nil {
		return err
	}
	switch {
	case !in.have.has(hasName):
		return missing("name")
	case !in.have.has(hasDatatype):
		return missing("datatype")
	case !in.have.has(hasShape):
		return missing("shape")
	case in.have.has(hasRegion):
		return unsupported("input", in.name, "shared_memory_region")
	}
	if in.have.has(hasData) && !in.have.has(isDecoded) {
		end := x.p.pos
		x.p.pos = in.data
		if err := x.data(in); err != nil {
			return err
		}
		x.p.pos = end
	}
	x.req.Inputs = append(x.req.Inputs, infer.Named{Name: in.name, Tensor: in.tensor.Move()})
	return nil
}

// oneSource verifies that an input says exactly once where its data is.
func (in *spec) oneSource() error {
	switch in.have & (hasData | hasBinary | hasRegion) {
	case hasData, hasBinary, hasRegion:
		return nil
	}
	text := "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', " +
		"'shared_memory_region' in 'parameters'. But"
	set := " set"
	if in.have.has(hasData) {
		set += " 'data'"
	}
	if in.have.has(hasBinary) {
		set += " 'binary_data_size'"
	}
	if in.have.has(hasRegion) {
		set += " 'shared_memory_region'"
	}
	if !in.have.has(hasData | hasBinary | hasRegion) {
		set = " no field is set"
	}
	return status.Errorf(status.InvalidArg, "%s%s", text, set)
}

// unsupported refuses what a tensor asks for and this server cannot do.
func unsupported(side, name, what string) error {
	return status.Errorf(status.Unsupported, "%s '%s' sets '%s', which is not supported by this server", side, name, what)
}

// output reads one element of outputs.
func (x *exchange) output() error {
	if x.p.peek() != '{' {
		return missing("name")
	}
	var w want
	var have field
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		key, err := x.p.key()
		if err != nil {
			return err
		}
		switch {
		case string(key) == "name" && have.see(hasName):
			name, err := x.text("name")
			if err != nil {
				return err
			}
			w.name = x.names.of(name)
			continue
		case string(key) == "parameters" && have.see(hasParameters):
			err = x.outputParameters(&w, &have)
		default:
			err = x.p.skip()
		}
		if err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return x.completeOutput(w, have)
}

func (x *exchange) outputParameters(w *want, have *field) error {
	if x.p.peek() != '{' {
		return x.p.skip()
	}
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		if err = x.outputParameter(w, have); err != nil {
			return err
		}
	}
	return err
}

func (x *exchange) outputParameter(w *want, have *field) error {
	key, err := x.p.key()
	if err != nil {
		return err
	}
	switch {
	case string(key) == "binary_data" && have.see(hasBinary):
		w.binary, err = x.boolean("binary_data")
		return err
	case string(key) == "classification":
		n, err := x.p.number()
		if err != nil {
			return err
		}
		if u, ok := n.unsigned(); !ok {
			return status.Errorf(status.Internal, "Unable to set 'classification': %s", notUnsigned)
		} else if u > 0 {
			have.see(hasClasses)
		}
		return nil
	case string(key) == "shared_memory_region":
		have.see(hasRegion)
	}
	return x.p.skip()
}

func (x *exchange) completeOutput(w want, have field) error {
	switch {
	case have.has(hasRegion) && have.has(hasClasses):
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'classification'")
	case have.has(hasRegion) && w.binary:
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'binary_data'")
	case !have.has(hasName):
		return missing("name")
	case have.has(hasRegion):
		return unsupported("output", w.name, "shared_memory_region")
	case have.has(hasClasses):
		return unsupported("output", w.name, "classification")
	}
	x.wants = append(x.wants, w)
	x.req.Outputs = append(x.req.Outputs, w.name)
	return nil
}
