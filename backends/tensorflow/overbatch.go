package tensorflow

import (
	"slices"

	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
)

// given returns the model's inputs without those that the scheduler computes.
func given(cfg *modelconfig.ModelConfig, ins []port) []port {
	computed := config.SignatureOf(cfg).Computed
	return slices.DeleteFunc(slices.Clone(ins), func(p port) bool {
		return slices.ContainsFunc(computed, func(c config.Computed) bool { return c.Name == p.name })
	})
}

// ragged adds an input that is given the elements of a whole batch in one dimension.
func (b *binding) ragged(io declaredIO, ins []port) error {
	d := tensor.DType(io.GetDataType())
	p, err := b.find(io.GetName(), d, ins, false)
	if err != nil {
		return err
	}
	if err := b.whole("ragged input", p, tensor.Of(-1)); err != nil {
		return err
	}
	b.add(p, d, tensor.Of(-1))
	optional, _ := io.(interface{ GetOptional() bool })
	b.sig.Inputs[len(b.sig.Inputs)-1].Optional = optional != nil && optional.GetOptional()
	return nil
}

// computed adds the inputs that are made of a batch's shapes, after all others.
func (b *binding) computed(cfg *modelconfig.ModelConfig, ins []port) error {
	for _, c := range config.SignatureOf(cfg).Computed {
		p, err := b.find(c.Name, c.DType, ins, false)
		if err != nil {
			return err
		}
		if err := b.whole("batch input", p, c.Dims()); err != nil {
			return err
		}
		b.add(p, c.DType, c.Dims())
	}
	return nil
}

func (b *binding) add(p port, d tensor.DType, dims tensor.Shape) {
	b.sig.Inputs = append(b.sig.Inputs, config.Port{Name: p.name, DType: d, Dims: dims, Whole: true})
	b.in = append(b.in, boundPort{port: p})
}

// whole checks that the model's tensor has as many dimensions as it will be given, of
// any extent: they belong to no row.
func (b *binding) whole(what string, p port, dims tensor.Shape) error {
	if p.anyRank {
		return nil
	}
	if len(p.shape) != dims.Rank() || p.shape[0] != -1 {
		return status.Errorf(status.InvalidArg, "model '%s', tensor '%s': the %s has shape %s over the batch, but shape expected by the model is %s",
			b.sig.Model, p.name, what, dims, tensor.Of(p.shape...))
	}
	return nil
}

// scattered reports whether an output is split as an input was joined.
func scattered(cfg *modelconfig.ModelConfig, name string) bool {
	return slices.ContainsFunc(cfg.GetBatchOutput(), func(o *modelconfig.BatchOutput) bool {
		return slices.Contains(o.GetTargetName(), name)
	})
}

// scattered adds such an output: whatever its dimensions, its elements count.
func (b *binding) scattered(io declaredIO, outs []port) error {
	d := tensor.DType(io.GetDataType())
	p, err := b.find(io.GetName(), d, outs, true)
	if err != nil {
		return err
	}
	dims := p.shape
	if p.anyRank {
		dims = b.batched(io.GetDims())
	}
	b.sig.Outputs = append(b.sig.Outputs, config.Port{Name: p.name, DType: d, Dims: tensor.Of(dims...), Whole: true})
	b.out = append(b.out, boundPort{port: p})
	return nil
}
