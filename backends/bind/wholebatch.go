package bind

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// RequestInputs returns the file's inputs that requests have: all but the computed ones (batch_input).
func (m *Model[R]) RequestInputs(cfg *modelconfig.ModelConfig) []Port[R] {
	if !m.WholeBatch || len(cfg.GetBatchInput()) == 0 {
		return m.Ins
	}
	computed := config.SignatureOf(cfg).Computed
	return slices.DeleteFunc(slices.Clone(m.Ins), func(p Port[R]) bool {
		return slices.ContainsFunc(computed, func(c config.Computed) bool { return c.Name == p.Name })
	})
}

// ragged adds a ragged input: the elements of all requests, concatenated in one dimension.
func (b *Binding[R]) ragged(field string, io *modelconfig.ModelInput) error {
	d := tensor.DType(io.GetDataType())
	p, err := b.find(field, io.GetName(), d, false)
	if err != nil {
		return err
	}
	if err := b.spans("ragged input", &p, tensor.Of(-1)); err != nil {
		return err
	}
	b.add(p, config.Port{Name: p.Name, DType: d, Dims: tensor.Of(-1), Unbatched: true, Optional: io.GetOptional()})
	return nil
}

// computed adds the inputs of batch_input, which the server computes from the shapes of a batch. They come last.
func (b *Binding[R]) computed(cfg *modelconfig.ModelConfig) error {
	if !b.model.WholeBatch {
		return nil
	}
	for _, c := range config.SignatureOf(cfg).Computed {
		p, err := b.find("batch_input", c.Name, c.DType, false)
		if err != nil {
			return err
		}
		if err := b.spans("batch input", &p, c.Dims()); err != nil {
			return err
		}
		b.add(p, config.Port{Name: p.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true})
	}
	return nil
}

func (b *Binding[R]) add(p Port[R], as config.Port) {
	b.Sig.Inputs = append(b.Sig.Inputs, as)
	b.In = append(b.In, Bound[R]{Port: p})
}

// spans checks that the file's tensor has the given rank and a variable first dimension, which is not the batch.
func (b *Binding[R]) spans(what string, p *Port[R], dims tensor.Shape) error {
	if !p.AnyRank && (len(p.Shape) != dims.Rank() || p.Shape[0] != -1) {
		return status.Errorf(status.InvalidArg, "model '%s', tensor '%s': the %s has shape %s over the batch, but shape expected by the model is %s",
			b.Sig.Model, p.Name, what, dims, tensor.Of(p.Shape...))
	}
	return nil
}

// scattered reports whether batch_output splits an output among the requests.
func scattered(cfg *modelconfig.ModelConfig, name string) bool {
	return slices.ContainsFunc(cfg.GetBatchOutput(), func(o *modelconfig.BatchOutput) bool {
		return slices.Contains(o.GetTargetName(), name)
	})
}

// scatter adds a scattered output. Its dimensions are not checked: only the number of elements matters.
func (b *Binding[R]) scatter(field string, io *modelconfig.ModelOutput) error {
	d := tensor.DType(io.GetDataType())
	p, err := b.find(field, io.GetName(), d, true)
	if err != nil {
		return err
	}
	dims := p.Shape
	if p.AnyRank {
		dims = b.batched(io.GetDims())
	}
	b.Sig.Outputs = append(b.Sig.Outputs, config.Port{Name: p.Name, DType: d, Dims: tensor.Of(dims...), Unbatched: true})
	b.Out = append(b.Out, Bound[R]{Port: p})
	return nil
}
