package grpcapi

import (
	"bytes"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// emptyFinal is the only reserved parameter that clients may set. It matters in streams only.
const emptyFinal = "triton_enable_empty_final_response"

// requestParams reads the request's parameters. A protobuf map has no order on the wire; they are sorted, so that
// equal requests have equal responses.
func (d *decoder) requestParams() error {
	list := d.msg.params
	slices.SortStableFunc(list, func(a, b param) int { return bytes.Compare(a.key, b.key) })
	for i := range list {
		if i+1 < len(list) && bytes.Equal(list[i].key, list[i+1].key) {
			continue // the last of several entries with one key counts
		}
		if err := d.param(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

func wrongType(key, want string) error {
	return status.Errorf(status.InvalidArg, "invalid value type for '%s' parameter, expected %s.", key, want)
}

func (d *decoder) param(p *param) (err error) {
	m := &d.req.Meta
	switch string(p.key) {
	case "sequence_id":
		return d.sequenceID(p)
	case "sequence_start":
		m.Sequence.Start, err = p.boolean("sequence_start")
	case "sequence_end":
		m.Sequence.End, err = p.boolean("sequence_end")
	case "priority":
		m.Priority, err = p.unsigned("priority", "int64_param or uint64_param")
	case "timeout":
		m.Timeout, err = p.unsigned("timeout", "int64_param")
	case emptyFinal:
		d.emptyFinal, err = p.boolean(emptyFinal)
	default:
		return d.otherParam(p)
	}
	return err
}

func (d *decoder) sequenceID(p *param) error {
	switch {
	case p.set && p.kind == infer.ParamInt:
		d.req.Sequence.ID = uint64(p.int)
	case p.set && p.kind == infer.ParamString:
		d.req.Sequence.Name = string(p.text)
	default:
		return wrongType("sequence_id", "int64_param or string_param")
	}
	return nil
}

func (p *param) boolean(key string) (bool, error) {
	if !p.set || p.kind != infer.ParamBool {
		return false, wrongType(key, "bool_param")
	}
	return p.bool, nil
}

func (p *param) unsigned(key, want string) (uint64, error) {
	switch {
	case p.set && p.kind == infer.ParamInt && p.int < 0:
		return 0, status.Errorf(status.InvalidArg, "invalid value for '%s' parameter, expected >= 0, got %d", key, p.int)
	case p.set && p.kind == infer.ParamInt:
		return uint64(p.int), nil
	case p.set && p.kind == infer.ParamUint:
		return p.uint, nil
	default:
		return 0, wrongType(key, want)
	}
}

// otherParam reads a parameter for the model.
func (d *decoder) otherParam(p *param) error {
	key := d.svc.names.get(p.key)
	if infer.ReservedParam(key) {
		return status.Errorf(status.InvalidArg, "parameter keys starting with 'triton_' are reserved for Triton usage. "+
			"Only the following keys starting with 'triton_' are allowed: %s", emptyFinal)
	}
	if !p.set {
		return wrongType(key, "bool_param, int64_param, uint64_param, double_param or string_param")
	}
	d.req.Params = append(d.req.Params, infer.Param{
		Key: key, Kind: p.kind, Bool: p.bool && p.kind == infer.ParamBool,
	})
	to := &d.req.Params[len(d.req.Params)-1]
	switch p.kind {
	case infer.ParamInt:
		to.Int = p.int
	case infer.ParamUint:
		to.Uint = p.uint
	case infer.ParamDouble:
		to.Double = p.double
	case infer.ParamString:
		to.String = string(p.text)
	case infer.ParamBool:
	}
	return nil
}
