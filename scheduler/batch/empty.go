package batch

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// emptyOutputs sets the outputs of a batch without rows that its model refused with err: shapes without
// rows, and 0 for variable dimensions. It returns err for a decoupled model or a disconnected client.
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
			return err // only the model knows its values
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
