package httpapi

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// The places of the parameters with a meaning of their own, for field.see.
const (
	paramID field = 1 << iota
	paramStart
	paramEnd
	paramPriority
	paramTimeout
	paramBinary
)

// parameters reads the request's parameters.
func (x *exchange) parameters() error {
	if x.p.peek() != '{' {
		return status.Errorf(status.Internal, "failed to get request params.: %s", noMembers)
	}
	var seen field
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		if err = x.parameter(&seen); err != nil {
			return err
		}
	}
	return err
}

func (x *exchange) parameter(seen *field) error {
	key, err := x.p.key()
	if err != nil {
		return err
	}
	m := &x.req.Meta
	switch {
	case string(key) == "sequence_id" && seen.see(paramID):
		return x.sequenceID()
	case string(key) == "sequence_start" && seen.see(paramStart):
		m.Sequence.Start, err = x.boolean("sequence_start")
	case string(key) == "sequence_end" && seen.see(paramEnd):
		m.Sequence.End, err = x.boolean("sequence_end")
	case string(key) == "priority" && seen.see(paramPriority):
		m.Priority, err = x.unsigned("priority")
	case string(key) == "timeout" && seen.see(paramTimeout):
		m.Timeout, err = x.unsigned("timeout")
	case string(key) == "binary_data_output" && seen.see(paramBinary):
		x.binary, err = x.boolean("binary_data_output")
	default:
		return x.otherParameter(x.names.of(key))
	}
	return err
}

// sequenceID reads a sequence's id, a number or a string.
func (x *exchange) sequenceID() (err error) {
	s := &x.req.Sequence
	if x.p.peek() == '"' {
		name, err := x.p.str()
		s.Name = string(name)
		return err
	}
	n, err := x.p.number()
	if err != nil {
		return unable("sequence_id", notString)
	}
	u, ok := n.unsigned()
	if !ok {
		return unable("sequence_id", notString)
	}
	s.ID = u
	return nil
}

// otherParameter reads a parameter that only the model knows.
func (x *exchange) otherParameter(key string) error {
	switch key {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output":
		return x.p.skip() // a repeated one: the first counts
	}
	if infer.ReservedParam(key) {
		return status.Errorf(status.InvalidArg,
			"parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
	}
	return x.customParameter(key)
}

// customParameter reads the value of a parameter and adds it to the request's.
func (x *exchange) customParameter(key string) error {
	param := infer.Param{Key: key}
	if err := x.paramValue(&param); err != nil {
		return err
	}
	x.req.Params = append(x.req.Params, param)
	return nil
}

func (x *exchange) paramValue(to *infer.Param) (err error) {
	switch x.p.peek() {
	case '"':
		var s []byte
		s, err = x.p.str()
		to.Kind, to.String = infer.ParamString, string(s)
	case 't', 'f':
		to.Kind = infer.ParamBool
		to.Bool, err = x.boolean(to.Key)
	case '{', '[', 'n':
		err = status.Errorf(status.InvalidArg,
			"parameter '%s' has invalid type. It should be either 'int', 'bool', or 'string'.", to.Key)
	default:
		var n number
		n, err = x.p.number()
		setNumber(to, &n)
	}
	return err
}

func setNumber(to *infer.Param, n *number) {
	var ok bool
	if to.Int, ok = n.signed(); ok {
		to.Kind = infer.ParamInt
		return
	}
	to.Int = 0
	if to.Uint, ok = n.unsigned(); ok {
		to.Kind = infer.ParamUint
		return
	}
	to.Uint, to.Kind, to.Double = 0, infer.ParamDouble, n.float()
}
