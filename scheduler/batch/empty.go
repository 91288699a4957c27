package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// nothing answers a batch of no rows that its model would not take: no rows of each
// output, of no extent where the signature tells none. err is the model's, which
// stays where the client has gone or a model answers as it likes.
func (r *Runner) emptyOutputs(b *backends.Batch, err error) error {
	if r.sig.Decoupled || status.CodeOf(err) == status.Cancelled {
		return err
	}
	for port := range b.Out {
		p := &r.sig.Outputs[port]
		shape := p.FullDims(r.sig.MaxBatch)
		if p.Unbatched {
			shape = tensor.Of(0)
		}
		for i, d := range shape.Dims() {
			if d < 0 {
				shape.SetDim(i, 0)
			}
		}
		if p.ShapeTensor && shape.Elements() != 0 {
			return err // its values are the model's to give
		}
		out, failed := tensor.NewBytes(r.s.Alloc, shape, 0)
		if failed != nil {
			return failed
		}
		out.DType = p.DType
		b.SetOutput(port, out)
	}
	return nil
}
