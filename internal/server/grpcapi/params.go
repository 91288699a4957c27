package grpcapi

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/shm"
)

// emptyFinal is the only reserved parameter that clients may set. It matters in streams only.
const emptyFinal = "triton_enable_empty_final_response"

// requestParams reads the request's parameters. A protobuf map has no order on the wire; they are sorted, so that
// equal requests have equal responses.
func (d *decoder) requestParams() error {
	list := d.msg.params
	slices.SortStableFunc(list, func(a, b param) int { return bytes.Compare(a.Name, b.Name) })
	for i := range list {
		if i+1 < len(list) && bytes.Equal(list[i].Name, list[i+1].Name) {
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
	switch string(p.Name) {
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
	case p.Set && p.Kind == infer.ParamInt:
		d.req.Sequence.ID = uint64(p.Int)
	case p.Set && p.Kind == infer.ParamString:
		d.req.Sequence.Name = string(p.Text)
	default:
		return wrongType("sequence_id", "int64_param or string_param")
	}
	return nil
}

func (p *param) boolean(key string) (bool, error) {
	if !p.Set || p.Kind != infer.ParamBool {
		return false, wrongType(key, "bool_param")
	}
	return p.Bool, nil
}

func (p *param) unsigned(key, want string) (uint64, error) {
	switch {
	case p.Set && p.Kind == infer.ParamInt && p.Int < 0:
		return 0, status.Errorf(status.InvalidArg, "invalid value for '%s' parameter, expected >= 0, got %d", key, p.Int)
	case p.Set && p.Kind == infer.ParamInt:
		return uint64(p.Int), nil
	case p.Set && p.Kind == infer.ParamUint:
		return p.Uint, nil
	default:
		return 0, wrongType(key, want)
	}
}

// otherParam reads a parameter for the model.
func (d *decoder) otherParam(p *param) error {
	key := d.svc.names.Get(p.Name)
	if infer.ReservedParam(key) {
		return status.Errorf(status.InvalidArg, "parameter keys starting with 'triton_' are reserved for Triton usage. "+
			"Only the following keys starting with 'triton_' are allowed: %s", emptyFinal)
	}
	if !p.Set {
		return wrongType(key, "bool_param, int64_param, uint64_param, double_param or string_param")
	}
	to := p.Param.Param
	to.Key = key
	if p.Kind == infer.ParamString {
		to.String = string(p.Text)
	}
	d.req.Params = append(d.req.Params, to)
	return nil
}

// region is a part of a client's shared memory.
type region struct {
	name         string
	offset, size uint64
}

// region reads the parameters of a tensor in shared memory.
func (d *decoder) region(tensor string, t *tensorFields) (r region, shared bool, err error) {
	if len(t.params) == 0 {
		return r, false, nil
	}
	if p := t.find("shared_memory_region"); p != nil {
		if !p.Set || p.Kind != infer.ParamString {
			return r, false, wrongRegion("shared_memory_region", tensor, "string_param")
		}
		r.name, shared = d.svc.names.Get(p.Text), true
	}
	if r.offset, err = regionNumber(t, "shared_memory_offset", tensor, shared); err != nil {
		return r, false, err
	}
	r.size, err = regionNumber(t, "shared_memory_byte_size", tensor, shared)
	return r, shared, err
}

func regionNumber(t *tensorFields, key, tensor string, shared bool) (uint64, error) {
	p := t.find(key)
	switch {
	case p == nil:
		return 0, nil
	case !shared:
		return 0, status.Errorf(status.InvalidArg,
			"'%s' can not be specified without 'shared_memory_region' parameter for tensor '%s'", key, tensor)
	case !p.Set || p.Kind != infer.ParamInt:
		return 0, wrongRegion(key, tensor, "int64_param")
	}
	return uint64(p.Int), nil
}

func wrongRegion(key, tensor, want string) error {
	return status.Errorf(status.InvalidArg, "invalid value type for '%s' parameter for tensor '%s', expected %s.", key, tensor, want)
}

// sharedInput copies an input out of the client's memory, which the client may change at any time. One in device memory stays there.
// The region stays in use until the response is complete.
func (d *decoder) sharedInput(to *infer.Named, in *tensorFields, r *region) error {
	if in.typed {
		return status.Errorf(status.InvalidArg, "unexpected 'content' provided when using shared memory for input tensor '%s' for model '%s'",
			to.Name, d.req.Model)
	}
	w, err := d.svc.set.Regions.Open(r.name, r.offset, r.size)
	if err != nil {
		return err
	}
	d.msg.windows = append(d.msg.windows, w)
	if size, err := infer.ShapeSize(to.Name, to.Tensor.DType, to.Tensor.Shape); err != nil || (size >= 0 && uint64(size) != r.size) {
		return cmp.Or(err, d.req.SizeError(to.Name, size, int64(min(r.size, math.MaxInt64))))
	}
	if w.Device() {
		to.Tensor.Buf, to.Tensor.Len = w.Buffer(), int(r.size)
		if to.Tensor.DType == tensor.Bytes { // the executor copies it to the host
			return d.msg.charge.Acquire(int64(r.size))
		}
		return nil
	}
	if err := d.fill(&to.Tensor, int(r.size), 0); err != nil {
		return err
	}
	return w.Read(to.Tensor.Bytes())
}

// outputOptions are what a client asks for beyond an output.
type outputOptions struct {
	name    string
	classes int // number of classes to return; 0: the tensor
	region
	window *shm.Window // the client's memory to write to, one of the message's windows, or nil
}

// closeWindows closes windows and returns the empty list for reuse.
func closeWindows(list []*shm.Window) []*shm.Window {
	for _, w := range list {
		w.Close()
	}
	return reuse(list)
}

// sharedOutput is an output in the client's memory. The response has its size only.
type sharedOutput struct {
	output int
	region
}

// applyOptions classifies outputs and writes them into the client's memory as requested, and appends the latter to
// list. The executor has written those in device memory.
func applyOptions(resp *infer.Response, wants []outputOptions, about *infer.Description, a tensor.Allocator, list []sharedOutput) ([]sharedOutput, error) {
	for i := range wants {
		w := &wants[i]
		for j := range resp.Outputs {
			out := &resp.Outputs[j]
			if out.Name != w.name {
				continue
			}
			if w.classes > 0 {
				if err := about.Classify(a, w.name, &out.Tensor, w.classes); err != nil {
					return list, err
				}
				continue
			}
			if !w.window.Device() {
				if err := w.window.WriteOutput(w.name, out.Tensor.Bytes()); err != nil {
					return list, err
				}
			}
			s := sharedOutput{output: j, region: w.region}
			s.size = uint64(out.Tensor.Len)
			list = append(list, s)
		}
	}
	return list, nil
}
