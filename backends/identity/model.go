package identity

import (
	"context"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/tensor"
)

// model is a loaded configuration. It has no state, so that one instance serves
// all callers.
type model struct {
	sig    *config.Signature
	source []int // The input of each output.
	zeros  bool  // what is absent is zeros
}

var _ backends.Concurrent = (*model)(nil)

// Signature returns the ports as configured.
func (m *model) Signature() *config.Signature { return m.sig }

// Inline reports true: an execution takes well under a microsecond.
func (*model) Inline() bool { return true }

// NewInstance returns an instance; the place does not matter, since memory is
// shared and never touched.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return instance{m}, nil
}

// Close does nothing: there is nothing to free.
func (*model) Close() error { return nil }

type instance struct{ *model }

var _ backends.Instance = instance{}

// Execute gives each output its input's memory: a tensor that two hold is
// immutable, so sharing is as good as a copy.
//
// hot: no allocation.
func (i instance) Execute(_ context.Context, b *backends.Batch) error {
	for port, in := range i.source {
		if i.zeros && !b.In[in].Present() {
			if err := i.zero(b, port); err != nil {
				return err
			}
			continue
		}
		b.SetOutput(port, b.In[in].Retain())
	}
	return nil
}

// zero makes an output of zeros, with 1 for each variable dimension.
func (m *model) zero(b *backends.Batch, port int) error {
	p := &m.sig.Outputs[port]
	var dims []int64
	if m.sig.MaxBatch > 0 {
		dims = append(dims, int64(b.Rows))
	}
	for _, d := range p.Dims.Dims() {
		if d < 0 {
			d = 1
		}
		dims = append(dims, d)
	}
	shape := tensor.Of(dims...)
	if p.DType == tensor.Bytes {
		out, err := b.AllocBytes(port, shape, int(shape.Elements())*bytesHeader)
		if err == nil {
			clear(out.Bytes()) // lengths of 0
		}
		return err
	}
	out, err := b.Alloc(port, p.DType, shape)
	if err == nil {
		clear(out.Bytes())
	}
	return err
}

// bytesHeader is the length before each string.
const bytesHeader = 4

// Close does nothing.
func (instance) Close() error { return nil }
