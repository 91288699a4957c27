package inference

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

// The parameters of a request that the server itself interprets.
const (
	paramID field = 1 << iota
	paramStart
	paramEnd
	paramPriority
	paramTimeout
	paramBinary
)

// readParameters reads the request's parameters.
func (x *exchange) readParameters() error {
	if x.p.Peek() != '{' {
		return status.Errorf(status.Internal, "failed to get request params.: %s", jsonwire.NoMembers)
	}
	var seen field
	return x.p.Members(func(name []byte) error { return x.readParameter(name, &seen) })
}

func (x *exchange) readParameter(name []byte, seen *field) (err error) {
	m := &x.req.Meta
	switch {
	case string(name) == "sequence_id" && seen.first(paramID):
		return x.readSequenceID()
	case string(name) == "sequence_start" && seen.first(paramStart):
		m.Sequence.Start, err = x.p.Bool("sequence_start")
	case string(name) == "sequence_end" && seen.first(paramEnd):
		m.Sequence.End, err = x.p.Bool("sequence_end")
	case string(name) == "priority" && seen.first(paramPriority):
		m.Priority, err = x.p.Unsigned("priority")
	case string(name) == "timeout" && seen.first(paramTimeout):
		m.Timeout, err = x.p.Unsigned("timeout")
	case string(name) == "binary_data_output" && seen.first(paramBinary):
		x.wanted.binary, err = x.p.Bool("binary_data_output")
	default:
		return x.readModelParameter(x.names.of(name))
	}
	return err
}

// readSequenceID reads a sequence's id, a number or a string.
func (x *exchange) readSequenceID() error {
	s := &x.req.Sequence
	if x.p.Peek() == '"' {
		name, err := x.p.Str()
		s.Name = string(name)
		return err
	}
	n, err := x.p.Number()
	u, ok := n.Unsigned()
	if err != nil || !ok {
		return jsonwire.Unable("sequence_id", jsonwire.NotString)
	}
	s.ID = u
	return nil
}

// readModelParameter reads a parameter for the model.
func (x *exchange) readModelParameter(name string) error {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output":
		return x.p.Skip() // repeated: the first counts
	}
	if infer.ReservedParam(name) {
		return status.Errorf(status.InvalidArg,
			"parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
	}
	return x.readCustomParameter(name)
}

// readCustomParameter reads a value of any scalar type and adds it to the request's parameters.
func (x *exchange) readCustomParameter(name string) error {
	param := infer.Param{Key: name}
	if err := x.readParamValue(&param); err != nil {
		return err
	}
	x.req.Params = append(x.req.Params, param)
	return nil
}

func (x *exchange) readParamValue(to *infer.Param) (err error) {
	switch x.p.Peek() {
	case '"':
		var s []byte
		s, err = x.p.Str()
		to.Kind, to.String = infer.ParamString, string(s)
	case 't', 'f':
		to.Kind = infer.ParamBool
		to.Bool, err = x.p.Bool(to.Key)
	case '{', '[', 'n':
		err = status.Errorf(status.InvalidArg,
			"parameter '%s' has invalid type. It should be either 'int', 'bool', or 'string'.", to.Key)
	default:
		var n jsonwire.Number
		n, err = x.p.Number()
		setNumber(to, &n)
	}
	return err
}

// setNumber sets the first of int64, uint64 and double that holds n.
func setNumber(to *infer.Param, n *jsonwire.Number) {
	var ok bool
	if to.Int, ok = n.Signed(); ok {
		to.Kind = infer.ParamInt
		return
	}
	to.Int = 0
	if to.Uint, ok = n.Unsigned(); ok {
		to.Kind = infer.ParamUint
		return
	}
	to.Uint, to.Kind, to.Double = 0, infer.ParamDouble, n.Float()
}
