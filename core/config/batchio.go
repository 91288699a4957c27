package config

import (
	"slices"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// batchIO adds batch_input and batch_output to the signature, as far as it has the ports that they name.
func (s *Signature) batchIO(cfg *modelconfig.ModelConfig) {
	s.Computed, s.Scattered = nil, nil
	for _, in := range cfg.GetBatchInput() {
		source := s.Input(first(in.GetSourceInput()))
		for _, name := range in.GetTargetName() {
			s.Computed = append(s.Computed, Computed{
				Name: name, DType: tensor.DType(in.GetDataType()), Kind: in.GetKind(), Source: source, At: -1,
			})
		}
	}
	for _, out := range cfg.GetBatchOutput() {
		source := s.Input(first(out.GetSourceInput()))
		for _, name := range out.GetTargetName() {
			if at := s.Output(name); at >= 0 {
				s.Outputs[at].Unbatched = true
				s.Scattered = append(s.Scattered, Scattered{Output: at, Source: source})
			}
		}
	}
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// Dims returns the dims of a computed input, which has no batch dimension.
func (c *Computed) Dims() tensor.Shape {
	if c.Kind == modelconfig.BatchInput_BATCH_ITEM_SHAPE {
		return tensor.Of(-1, -1)
	}
	return tensor.Of(-1)
}

// checkBatchIO rejects settings that only the model's own ports show to be impossible.
func (s *Signature) checkBatchIO(cfg *modelconfig.ModelConfig) error {
	for i := range s.Computed {
		if c := &s.Computed[i]; c.Source < 0 {
			return status.Errorf(status.InvalidArg, "unable to load model '%s', batch input '%s' has an unknown source input name", s.Model, c.Name)
		}
	}
	for _, out := range cfg.GetBatchOutput() {
		for _, name := range out.GetTargetName() {
			if s.Output(name) < 0 {
				return status.Errorf(status.InvalidArg, "unable to load model '%s', unknown target output name '%s'", s.Model, name)
			}
		}
	}
	for _, x := range s.Scattered {
		if err := s.checkScattered(x); err != nil {
			return err
		}
	}
	return nil
}

func (s *Signature) checkScattered(x Scattered) error {
	out := &s.Outputs[x.Output]
	if x.Source < 0 {
		return status.Errorf(status.InvalidArg, "unable to load model '%s', batch output '%s' has an unknown source input name", s.Model, out.Name)
	}
	in := &s.Inputs[x.Source]
	dims, from := out.ModelDims(), in.ModelDims()
	for i, d := range dims.Dims() {
		if d == -1 && i >= from.Rank() {
			return status.Errorf(status.InvalidArg,
				"unable to load model '%s', batch output '%s' has variable dimension %d, which its source input '%s' with dims %s does not have",
				s.Model, out.Name, i, in.Name, from)
		}
	}
	if s.Decoupled {
		return status.Errorf(status.Unsupported, "unable to load model '%s', batch output '%s' of a decoupled model is not supported", s.Model, out.Name)
	}
	return nil
}

// computed checks that the model has the computed inputs with suitable types, and returns its other inputs.
func (a *agreement) computed(have []Port) ([]Port, error) {
	given := slices.Clone(have)
	for i := range a.want.Computed {
		c := &a.want.Computed[i]
		at := indexOf(given, c.Name)
		if at < 0 {
			return nil, status.Errorf(status.InvalidArg, "unable to load model '%s', unexpected inference input '%s', allowed inputs are: %s",
				a.want.Model, c.Name, portNames(have))
		}
		p := &given[at]
		if p.DType != c.DType {
			return nil, status.Errorf(status.InvalidArg, "unable to load model '%s', unexpected datatype %s for inference input '%s', expecting %s",
				a.want.Model, c.DType.ConfigName(), c.Name, p.DType.ConfigName())
		}
		if !p.Unbatched {
			return nil, a.notUnbatched("batch_input", "input", c.Name)
		}
		given = slices.Delete(given, at, at+1)
	}
	return given, nil
}

// unbatched merges a tensor without a batch dimension. Its dims are those of requests.
func (a *agreement) unbatched(kind string, want, p *Port) error {
	field := "allow_ragged_batch"
	if kind == "output" {
		field = "batch_output"
	}
	switch {
	case !p.Unbatched:
		return a.notUnbatched(field, kind, want.Name)
	case !want.Unbatched:
		return status.Errorf(status.InvalidArg, "unable to load model '%s', %s '%s' expects %s", a.want.Model, kind, want.Name, field)
	case want.Dims.Rank() == 0:
		return status.Errorf(status.InvalidArg, "unable to load model '%s', %s '%s' with %s must specify 'dims'", a.want.Model, kind, want.Name, field)
	}
	p.Dims, p.Reshape, p.Optional = want.Dims, want.Reshape, want.Optional
	return nil
}

// notUnbatched rejects batch_input and batch_output for a backend that does not support them.
func (a *agreement) notUnbatched(field, kind, name string) error {
	return status.Errorf(status.Unsupported, "unable to load model '%s', %s of %s '%s' is not supported by its backend", a.want.Model, field, kind, name)
}
