package httpapi

import (
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

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
		if err = x.inputParameter(in); err != nil {
			return err
		}
	}
	return err
}

func (x *exchange) inputParameter(in *spec) error {
	key, err := x.p.key()
	if err != nil {
		return err
	}
	if string(key) == "binary_data_size" && in.have.see(hasBinary) {
		n, err := x.unsigned("binary_data_size")
		in.size = int64(min(n, math.MaxInt64))
		return err
	}
	return x.placeParameter(key, &in.region, &in.have)
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
