package grpcapi

import (
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/shm"
)

// region names a part of a client's shared memory.
type region struct {
	name         string
	offset, size uint64
}

// region reads the parameters by which a tensor says that its bytes are shared.
func (d *decoder) region(tensor string, t *tensorFields) (r region, shared bool, err error) {
	if len(t.params) == 0 {
		return r, false, nil
	}
	if p := t.find("shared_memory_region"); p != nil {
		if !p.set || p.kind != infer.ParamString {
			return r, false, wrongRegion("shared_memory_region", tensor, "string_param")
		}
		r.name, shared = d.svc.names.of(p.text), true
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
	case !p.set || p.kind != infer.ParamInt:
		return 0, wrongRegion(key, tensor, "int64_param")
	}
	return uint64(p.int), nil
}

func wrongRegion(key, tensor, want string) error {
	return status.Errorf(status.InvalidArg, "invalid value type for '%s' parameter for tensor '%s', expected %s.", key, tensor, want)
}

// sharedInput copies an input out of the client's memory, which the client may change
// at any time. The region stays in use until the response is made.
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
		return firstError(err, d.req.SizeError(to.Name, size, int64(min(r.size, math.MaxInt64))))
	}
	if err := d.fill(&to.Tensor, int(r.size), 0); err != nil {
		return err
	}
	return w.Read(to.Tensor.Bytes())
}

// want is what a client asks of one output beyond having it.
type want struct {
	name    string
	classes int // how many classes it is to be answered as, 0 for as it is
	region
	window *shm.Window // where it is to go, or nil
}

// closeWindows closes windows and returns their list for reuse.
func closeWindows(list []*shm.Window) []*shm.Window {
	for _, w := range list {
		w.Close()
	}
	return reuse(list)
}

func closeWants(list []want) {
	for i := range list {
		if w := list[i].window; w != nil {
			list[i].window = nil
			w.Close()
		}
	}
}

// shared tells that an output is in the client's memory and not in the answer.
type shared struct {
	output int
	region
}

// fulfil gives the client what it wants of the outputs, and adds those that went to
// its memory to list.
func fulfil(resp *infer.Response, wants []want, about *infer.Description, a tensor.Allocator, list []shared) ([]shared, error) {
	for i := range wants {
		w := &wants[i]
		for j := range resp.Outputs {
			out := &resp.Outputs[j]
			if out.Name != w.name {
				continue
			}
			if w.classes > 0 {
				if err := classify(out, w, about, a); err != nil {
					return list, err
				}
				continue
			}
			n := out.Tensor.Len
			if uint64(n) > w.size {
				return list, status.Errorf(status.Internal,
					"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
					w.name, w.size, n)
			}
			if err := w.window.Write(out.Tensor.Bytes()); err != nil {
				return list, err
			}
			s := shared{output: j, region: w.region}
			s.size = uint64(n)
			list = append(list, s)
		}
	}
	return list, nil
}

func classify(out *infer.Named, w *want, about *infer.Description, a tensor.Allocator) error {
	var labels []string
	if p := about.Output(w.name); p != nil {
		labels = p.Labels
	}
	t, err := infer.Classify(a, &out.Tensor, about.MaxBatch > 0, w.classes, labels)
	if err != nil {
		return err
	}
	out.Tensor.Release()
	out.Tensor = t
	return nil
}
