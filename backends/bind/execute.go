package bind

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// CheckExecute makes the checks with which every Instance.Execute begins: the instance is open, the batch is not cancelled,
// and it has as many inputs and outputs as the model.
func CheckExecute(ctx context.Context, open bool, model string, b *backends.Batch, ins, outs int) error {
	switch {
	case !open:
		return status.Errorf(status.Unavailable, "instance of model '%s' is closed", model)
	case ctx.Err() != nil:
		return status.ErrCancelled
	case len(b.In) != ins || len(b.Out) != outs:
		return status.Errorf(status.Internal, "model '%s': expected a batch of %d inputs and %d outputs, got %d and %d",
			model, ins, outs, len(b.In), len(b.Out))
	}
	return nil
}

// CheckHost refuses an instance at a device, for backends that run on the host only.
func CheckHost(backend, model string, at tensor.Place) error {
	if at.Kind == tensor.Device {
		return status.Errorf(status.Unsupported, "model '%s': %s on %s is not supported", model, backend, at)
	}
	return nil
}

// CheckExecute is the function of that name, with the model's own numbers of inputs and outputs.
func (b *Binding[R]) CheckExecute(ctx context.Context, open bool, batch *backends.Batch) error {
	return CheckExecute(ctx, open, b.Sig.Model, batch, len(b.In), len(b.Out))
}

// UnexpectedInput returns the error for input i of a wrong type or shape.
func (b *Binding[R]) UnexpectedInput(i int, t *tensor.Tensor) error {
	p := &b.In[i]
	return status.Errorf(status.InvalidArg, "model '%s', input '%s': expected a %s tensor of shape %s, got a %s tensor of shape %s",
		b.Sig.Model, p.Name, p.DType, tensor.Of(p.Shape...), t.DType, t.Shape)
}

// OutputError prefixes err with the model and the name of output i.
func (b *Binding[R]) OutputError(i int, err error) error {
	return status.Prefixf(err, "model '%s', output '%s': ", b.Sig.Model, b.Out[i].Name)
}

// ReshapeOutput gives output i, as the runtime returned it, the shape that the signature has for it. Without a reshape it does
// nothing.
func (b *Binding[R]) ReshapeOutput(i int, t *tensor.Tensor) error {
	p := &b.Out[i]
	if p.Reshape == nil {
		return nil
	}
	var dims [maxRank]int64
	n, ok := p.Reshape.Apply(dims[:], t.Shape.Dims())
	to := tensor.Of(dims[:n]...)
	if !ok || t.Shape.Elements() != to.Elements() {
		return status.Errorf(status.Internal, "model '%s', output '%s': shape %s cannot be reshaped to %s", b.Sig.Model, p.Name, t.Shape, to)
	}
	t.Shape = to
	return nil
}

// maxRank is the most dimensions of a reshaped output.
const maxRank = 16
