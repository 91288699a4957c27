// Package identity holds the backend identity, which copies INPUTi to OUTPUTi. It
// serves tests, examples and measurements: what a request costs without a model.
// It is also the backend to copy from when writing another one.
package identity

import (
	"context"
	"strings"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
)

// NewFactory declares the backend identity. Its models have no files: config.pbtxt
// declares pairs INPUTi and OUTPUTi of equal type and dims at the model, of any type
// and number, none as well; inputs may be ragged or computed over the batch.
// An optional input that is not given leaves its output absent, or with the parameter
// absent_as_zeros "true", as in Triton, has one of zeros and empty strings, with 1 for
// each variable dimension.
//
// Further parameters are those of Triton's model for its tests. creation_delay_sec makes
// loading take time. execute_delay_ms makes executions take time, for the i-th instance
// i times instance_wise_delay_multiplier as much, and once for the first. A wait ends
// when the client goes.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "identity",
		Guide:  backends.Guide{Doc: "Answers each input `INPUTn` as `OUTPUTn`. Further parameters are those of Triton's model for its tests: delays, absent inputs as zeros."},
		Params: []string{keyZeros, keyCreation, keyExecute, keyMultiplier},
		New:    func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

var _ backends.Backend = backend{}

// Load checks that the configuration declares matching pairs.
func (backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	cfg := s.Config
	params, err := parse(s.Model, cfg.GetParameters())
	if err != nil {
		return nil, err
	}
	sig := config.ModelOf(config.SignatureOf(cfg))
	sig.Model, sig.Version = s.Model, s.Version
	source, err := pair(s.Model, sig)
	if err != nil {
		return nil, err
	}
	if params.creation > 0 {
		if err := pause(ctx, params.creation, nil); err != nil {
			return nil, err
		}
	}
	m := &model{sig: sig, source: source, zeros: params.zeros}
	if params.execute > 0 {
		return plain{&slow{model: m, params: params}}, nil
	}
	return m, nil
}

// Close does nothing: there is no runtime.
func (backend) Close() error { return nil }

// pair returns the input of each output.
func pair(model string, sig *config.Signature) ([]int, error) {
	for i := range sig.Inputs {
		if err := expect(model, sig.Inputs[i].Name, "INPUT", "OUTPUT", sig.Output); err != nil {
			return nil, err
		}
	}
	source := make([]int, len(sig.Outputs))
	for i := range sig.Outputs {
		out := &sig.Outputs[i]
		if err := expect(model, out.Name, "OUTPUT", "INPUT", sig.Input); err != nil {
			return nil, err
		}
		source[i] = sig.Input("INPUT" + strings.TrimPrefix(out.Name, "OUTPUT"))
		in := &sig.Inputs[source[i]]
		if in.DType != out.DType || !full(sig, in).Equal(full(sig, out)) {
			return nil, status.Errorf(status.InvalidArg, "model '%s': output '%s' is %s %s, expected %s %s as input '%s'",
				model, out.Name, out.DType.ConfigName(), out.Dims, in.DType.ConfigName(), in.Dims, in.Name)
		}
	}
	return source, nil
}

// full returns the dims that a batch has at the model.
func full(sig *config.Signature, p *config.Port) tensor.Shape {
	if p.Whole {
		return p.Dims
	}
	return p.FullDims(sig.MaxBatch)
}

// expect checks that name is prefix and a number, and that its partner exists.
func expect(model, name, prefix, partner string, find func(string) int) error {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return status.Errorf(status.InvalidArg, "model '%s': backend 'identity' expects tensors named %s0, %s1, ..., found '%s'", model, prefix, prefix, name)
	}
	if find(partner+digits) < 0 {
		return status.Errorf(status.InvalidArg, "model '%s': '%s' has no partner, expected '%s' in the configuration", model, name, partner+digits)
	}
	return nil
}
