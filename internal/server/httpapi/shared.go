package httpapi

import (
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// placeParameter reads a parameter of an input or output that may say where in shared
// memory it is.
func (x *exchange) placeParameter(key []byte, to *place, have *field) (err error) {
	switch {
	case string(key) == "shared_memory_region" && have.see(hasRegion):
		name, err := x.text("shared_memory_region")
		to.name = x.names.of(name)
		return err
	case string(key) == "shared_memory_offset" && have.see(hasOffset):
		to.offset, err = x.unsigned("shared_memory_offset")
		return err
	case string(key) == "shared_memory_byte_size" && have.see(hasByteSize):
		to.size, err = x.unsigned("shared_memory_byte_size")
		return err
	}
	return x.p.skip()
}

// sharedInput copies an input out of shared memory: what a client changes there later
// must not change what has been checked. The region stays in use nevertheless.
func (x *exchange) sharedInput(in *spec, to *infer.Named) error {
	w, err := x.srv.regions.Open(in.region.name, in.region.offset, in.region.size)
	if err != nil {
		return err
	}
	x.windows = append(x.windows, w)
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

// finish makes of a model's outputs what was asked for: classes instead of values,
// and those that go to shared memory written there.
func (x *exchange) finish(resp *infer.Response) error {
	for i := range x.wants {
		w := &x.wants[i]
		if !w.shared && w.classes == 0 {
			continue
		}
		out := resp.Output(w.name)
		if out == nil {
			continue
		}
		if w.classes > 0 {
			if err := x.classify(resp, w); err != nil {
				return err
			}
			continue
		}
		if size := uint64(out.Len); size > w.window.Size() {
			return status.Errorf(status.Internal,
				"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
				w.name, w.window.Size(), size)
		}
		if err := w.window.Write(out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// classify replaces an output by its best classes.
func (x *exchange) classify(resp *infer.Response, w *want) error {
	var labels []string
	if port := x.about.Output(w.name); port != nil {
		labels = port.Labels
	}
	out := resp.Output(w.name)
	top, err := infer.Classify(x.srv.alloc, out, x.about.MaxBatch > 0, int(min(w.classes, math.MaxInt32)), labels)
	if err != nil {
		return err
	}
	out.Release()
	*out = top
	return nil
}
