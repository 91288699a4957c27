package inference

import (
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/shm"
)

// readRegionParameter reads a parameter of an input or output that describes its shared memory, and skips any other.
func (x *exchange) readRegionParameter(name []byte, to *region, have *field) (err error) {
	switch {
	case string(name) == "shared_memory_region" && have.first(hasRegion):
		text, err := x.p.Text("shared_memory_region")
		to.name = x.names.of(text)
		return err
	case string(name) == "shared_memory_offset" && have.first(hasOffset):
		to.offset, err = x.p.Unsigned("shared_memory_offset")
		return err
	case string(name) == "shared_memory_byte_size" && have.first(hasByteSize):
		to.size, err = x.p.Unsigned("shared_memory_byte_size")
		return err
	}
	return x.p.Skip()
}

// openRegion opens a window of a region, which stays in use until closeWindows.
func (x *exchange) openRegion(r *region) (*shm.Window, error) {
	w, err := x.srv.Regions.Open(r.name, r.offset, r.size)
	if err == nil {
		x.wanted.windows = append(x.wanted.windows, w)
	}
	return w, err
}

// readShared copies an input out of shared memory, so that the client cannot change it after the checks.
func (x *exchange) readShared(in *input, to *infer.Named) error {
	w, err := x.openRegion(&in.region)
	if err != nil {
		return err
	}
	want, err := infer.ShapeSize(in.name, in.dtype, in.shape)
	if err != nil {
		return err
	}
	size := int64(min(w.Size(), math.MaxInt64))
	if want >= 0 && want != size {
		return x.req.SizeError(in.name, want, size)
	}
	if to.Tensor, err = x.alloc(in, int(size)); err != nil {
		return err
	}
	return w.Read(to.Tensor.Bytes())
}

// placeOutputs replaces outputs by their classes and writes outputs to shared memory, as requested.
func (x *exchange) placeOutputs(resp *infer.Response) error {
	for i := range x.wanted.outputs {
		o := &x.wanted.outputs[i]
		if o.window == nil && o.classes == 0 {
			continue
		}
		out := resp.Output(o.name)
		if out == nil {
			continue
		}
		if o.classes > 0 {
			if err := x.classify(resp, o); err != nil {
				return err
			}
			continue
		}
		if size := uint64(out.Len); size > o.window.Size() {
			return status.Errorf(status.Internal,
				"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
				o.name, o.window.Size(), size)
		}
		if err := o.window.Write(out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// classify replaces an output by its best classes.
func (x *exchange) classify(resp *infer.Response, o *output) error {
	var labels []string
	if port := x.desc.Output(o.name); port != nil {
		labels = port.Labels
	}
	out := resp.Output(o.name)
	top, err := infer.Classify(x.srv.Alloc, out, x.desc.MaxBatch > 0, int(min(o.classes, math.MaxInt32)), labels)
	if err != nil {
		return err
	}
	out.Release()
	*out = top
	return nil
}
