package identity

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// model is a loaded configuration. It has no state, so all callers share one instance.
type model struct {
	sig    *config.Signature
	source []int // the input index of each output
	zeros  bool  // omitted optional inputs yield zeros
	// split is set when an output has the batch dimension that its ragged or computed input lacks: each request
	// then has per-request outputs.
	split bool
}

var _ backends.ConcurrentModel = (*model)(nil)

// Signature returns the ports as configured.
func (m *model) Signature() *config.Signature { return m.sig }

// Inline reports true: an execution takes well under a microsecond.
func (*model) Inline() bool { return true }

// NewInstance returns an instance. The place does not matter: the instance shares memory and never reads or writes
// it.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return instance{m}, nil
}

// Close does nothing: there is nothing to free.
func (*model) Close() error { return nil }

type instance struct{ *model }

var _ backends.Instance = instance{}

// Execute makes each output share its input's memory. This is safe because a tensor with two references is
// immutable.
//
// hot: no allocation unless an input is ragged or absent.
//
// hot: no allocation unless an input is ragged or absent.
func (i instance) Execute(_ context.Context, b *backends.Batch) error {
	if i.split {
		return i.executeEach(b)
	}
	for port := range i.source {
		if err := i.copy(b, b.In, b.Out, port, b.Rows); err != nil {
			return err
		}
	}
	return nil
}

// executeEach sets per-request outputs from the inputs of each request, as they were before batching.
func (i instance) executeEach(b *backends.Batch) error {
	for k := range b.Requests {
		q := &b.Requests[k]
		q.Out = make([]tensor.Tensor, len(i.source))
		for port := range i.source {
			if err := i.copy(b, q.In, q.Out, port, q.Rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// copy sets an output to its input, or to zeros of the given rows when an optional input is absent.
func (m *model) copy(b *backends.Batch, in, out []tensor.Tensor, port, rows int) (err error) {
	from := &in[m.source[port]]
	out[port].Release()
	if !from.Present() && m.zeros && m.sig.Inputs[m.source[port]].Optional {
		out[port], err = m.zero(b, port, rows)
		return err
	}
	out[port] = from.Retain()
	return nil
}

// zero returns an output of zeros with size 1 for each variable dimension.
func (m *model) zero(b *backends.Batch, port, rows int) (tensor.Tensor, error) {
	p := &m.sig.Outputs[port]
	var dims []int64
	if m.sig.MaxBatch > 0 && !p.Unbatched {
		dims = append(dims, int64(rows))
	}
	for _, d := range p.Dims.Dims() {
		if d < 0 {
			d = 1
		}
		dims = append(dims, d)
	}
	shape := tensor.Of(dims...)
	var out tensor.Tensor
	var err error
	if p.DType == tensor.Bytes {
		out, err = tensor.NewBytes(b.Allocator, shape, int(shape.Elements())*bytesHeader)
	} else {
		out, err = tensor.New(b.Allocator, p.DType, shape)
	}
	if err == nil {
		clear(out.Bytes()) // strings of length 0
	}
	return out, err
}

// bytesHeader is the size of the length prefix of each string.
const bytesHeader = 4

// Close does nothing.
func (instance) Close() error { return nil }
