package grpcapi

import (
	"slices"
	"strings"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/proto/inference"
)

// emptyFinal is the one parameter of a reserved name that clients may set; it
// matters to streams only.
const emptyFinal = "triton_enable_empty_final_response"

// params reads the request's parameters.
func (d *decoder) params() error {
	for key, p := range d.msg.GetParameters() {
		if err := d.param(key, p); err != nil {
			return err
		}
	}
	// A map has no order; one that does not change keeps answers the same.
	slices.SortFunc(d.req.Params, func(a, b infer.Param) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

func wrongType(key, want string) error {
	return status.Errorf(status.InvalidArg, "invalid value type for '%s' parameter, expected %s.", key, want)
}

func (d *decoder) param(key string, p *inference.InferParameter) (err error) {
	m := &d.req.Meta
	switch key {
	case "sequence_id":
		return d.sequenceID(p)
	case "sequence_start":
		m.Sequence.Start, err = boolean(key, p)
	case "sequence_end":
		m.Sequence.End, err = boolean(key, p)
	case "priority":
		m.Priority, err = unsigned(key, p, "int64_param or uint64_param")
	case "timeout":
		m.Timeout, err = unsigned(key, p, "int64_param")
	case emptyFinal:
		_, err = boolean(key, p)
	default:
		return d.otherParam(key, p)
	}
	return err
}

func (d *decoder) sequenceID(p *inference.InferParameter) error {
	switch v := p.GetParameterChoice().(type) {
	case *inference.InferParameter_Int64Param:
		d.req.Sequence.ID = uint64(v.Int64Param)
	case *inference.InferParameter_StringParam:
		d.req.Sequence.Name = v.StringParam
	default:
		return wrongType("sequence_id", "int64_param or string_param")
	}
	return nil
}

func boolean(key string, p *inference.InferParameter) (bool, error) {
	v, ok := p.GetParameterChoice().(*inference.InferParameter_BoolParam)
	if !ok {
		return false, wrongType(key, "bool_param")
	}
	return v.BoolParam, nil
}

func unsigned(key string, p *inference.InferParameter, want string) (uint64, error) {
	switch v := p.GetParameterChoice().(type) {
	case *inference.InferParameter_Int64Param:
		if v.Int64Param < 0 {
			return 0, status.Errorf(status.InvalidArg, "invalid value for '%s' parameter, expected >= 0, got %d", key, v.Int64Param)
		}
		return uint64(v.Int64Param), nil
	case *inference.InferParameter_Uint64Param:
		return v.Uint64Param, nil
	}
	return 0, wrongType(key, want)
}

// otherParam reads a parameter that only the model knows.
func (d *decoder) otherParam(key string, p *inference.InferParameter) error {
	if infer.ReservedParam(key) {
		return status.Errorf(status.InvalidArg, "parameter keys starting with 'triton_' are reserved for Triton usage. "+
			"Only the following keys starting with 'triton_' are allowed: %s", emptyFinal)
	}
	to := infer.Param{Key: key}
	switch v := p.GetParameterChoice().(type) {
	case *inference.InferParameter_BoolParam:
		to.Kind, to.Bool = infer.ParamBool, v.BoolParam
	case *inference.InferParameter_Int64Param:
		to.Kind, to.Int = infer.ParamInt, v.Int64Param
	case *inference.InferParameter_Uint64Param:
		to.Kind, to.Uint = infer.ParamUint, v.Uint64Param
	case *inference.InferParameter_DoubleParam:
		to.Kind, to.Double = infer.ParamDouble, v.DoubleParam
	case *inference.InferParameter_StringParam:
		to.Kind, to.String = infer.ParamString, v.StringParam
	default:
		return wrongType(key, "bool_param, int64_param, uint64_param, double_param or string_param")
	}
	d.req.Params = append(d.req.Params, to)
	return nil
}
