package plan

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// declaration is the type and shape that one port declares for a tensor.
type declaration struct {
	model      string
	dtype      tensor.DType
	dims, full tensor.Shape
}

func declarationOf(model string, maxBatch int, p *config.Port) *declaration {
	return &declaration{model: model, dtype: p.DType, dims: p.Dims, full: p.FullDims(maxBatch)}
}

// types checks that all ports mapped to a tensor agree on its data type and shape.
func (c *compiler) types() error {
	for _, l := range c.levels {
		first := map[string]*declaration{}
		sig := l.sig.AtModel() // tensors have their reshaped dims inside of an ensemble
		for i := range sig.Inputs {
			first[sig.Inputs[i].Name] = declarationOf(l.name(), sig.MaxBatch, &sig.Inputs[i])
		}
		for i := range sig.Outputs {
			p := &sig.Outputs[i]
			if err := l.agree(first, fmt.Sprintf("output[%d]", i), p.Name, declarationOf(l.name(), sig.MaxBatch, p)); err != nil {
				return err
			}
		}
		for _, s := range l.steps {
			if err := s.types(first); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *step) types(first map[string]*declaration) error {
	for i := range s.sig.Inputs {
		p := &s.sig.Inputs[i]
		if t, mapped := s.cfg.GetInputMap()[p.Name]; mapped {
			if err := s.level.agree(first, s.field()+".input_map", t, declarationOf(s.model, s.sig.MaxBatch, p)); err != nil {
				return err
			}
		}
	}
	for i := range s.sig.Outputs {
		p := &s.sig.Outputs[i]
		if t, mapped := s.cfg.GetOutputMap()[p.Name]; mapped {
			if err := s.level.agree(first, s.field()+".output_map", t, declarationOf(s.model, s.sig.MaxBatch, p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// agree compares a port with the first declaration of the tensor. Shapes may
// differ by a batch dimension that only one side counts as such.
func (l *level) agree(first map[string]*declaration, field, name string, b *declaration) error {
	a, known := first[name]
	if !known {
		first[name] = b
		return nil
	}
	if a.dtype != b.dtype {
		return l.errorf(config.TypesDiffer, field, "ensemble tensor %s: inconsistent data type: %s is inferred from model %s while %s is inferred from model %s",
			name, a.dtype.ConfigName(), a.model, b.dtype.ConfigName(), b.model)
	}
	_, same := config.Narrow(a.dims, b.dims)
	_, sameFull := config.Narrow(a.full, b.full)
	if !same && !sameFull {
		return l.errorf(config.ShapesDiffer, field, "ensemble tensor %s: inconsistent shape: %s is inferred from model %s while %s is inferred from model %s",
			name, a.full, a.model, b.full, b.model)
	}
	return nil
}
