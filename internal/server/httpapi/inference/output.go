package inference

import (
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

// readOutput reads one element of outputs.
func (x *exchange) readOutput() error {
	if x.p.Peek() != '{' {
		return jsonwire.Missing("name")
	}
	var out output
	var have field
	if err := x.p.Members(func(name []byte) error { return x.readOutputMember(&out, &have, name) }); err != nil {
		return err
	}
	return x.completeOutput(out, have)
}

func (x *exchange) readOutputMember(out *output, have *field, name []byte) error {
	switch {
	case string(name) == "name" && have.first(hasName):
		text, err := x.p.Text("name")
		out.name = x.names.of(text)
		return err
	case string(name) == "parameters" && have.first(hasParameters) && x.p.Peek() == '{':
		return x.p.Members(func(name []byte) error { return x.readOutputParameter(out, have, name) })
	}
	return x.p.Skip()
}

func (x *exchange) readOutputParameter(out *output, have *field, name []byte) (err error) {
	switch {
	case string(name) == "binary_data" && have.first(hasBinary):
		out.binary, err = x.p.Bool("binary_data")
		return err
	case string(name) == "classification" && have.first(hasClasses):
		n, err := x.p.Number()
		u, ok := n.Unsigned()
		if err != nil || !ok {
			return status.Errorf(status.Internal, "Unable to set 'classification': %s", jsonwire.NotUnsigned)
		}
		out.classes = u
		return nil
	}
	return x.readRegionParameter(name, &out.region, have)
}

// completeOutput checks an output's members together, and opens its region.
func (x *exchange) completeOutput(out output, have field) (err error) {
	switch {
	case have.has(hasRegion) && have.has(hasClasses):
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'classification'")
	case have.has(hasRegion) && out.binary:
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'binary_data'")
	case !have.has(hasName):
		return jsonwire.Missing("name")
	case have.has(hasRegion):
		if out.window, err = x.openRegion(&out.region); err != nil {
			return err
		}
	}
	x.wanted.outputs = append(x.wanted.outputs, out)
	x.req.Outputs = append(x.req.Outputs, out.name)
	return nil
}
