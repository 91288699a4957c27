// Package identity holds the backend identity, which copies INPUTi to OUTPUTi. It
// serves tests, examples and measurements: what a request costs without a model.
// It is also the backend to copy from when writing another one.
package identity

import (
	"context"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// NewFactory declares the backend identity. Its models have no files: config.pbtxt
// declares pairs INPUTi and OUTPUTi of equal type and dims at the model, of any type
// and number, none included. Inputs may be computed over the batch, or ragged: where
// the output is not, each request gets its own input back.
// The output of an optional input that is not given has zeros and empty strings, with 1
// for each variable dimension; the parameter absent_as_zeros "false" leaves it absent.
//
// Further parameters are those of NVIDIA's backend. creation_delay_sec makes loading take
// time. execute_delay_ms makes executions take time, for the i-th instance i times
// instance_wise_delay_multiplier as much, and once for the first. A wait ends when the
// client goes. enable_custom_tracing "true" has each traced request report activities:
// see report.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "identity",
		Guide:  backends.Guide{Doc: "Answers each input `INPUTn` as `OUTPUTn`. Further parameters are those of Triton's model for its tests: delays, absent inputs as zeros."},
		Params: []string{keyZeros, keyCreation, keyTracing, keyExecute, keyMultiplier, keySpans, keyFrequency},
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
	m := &model{sig: sig, zeros: params.zeros}
	if err := m.pair(config.SignatureOf(cfg).AtModel()); err != nil {
		return nil, err
	}
	if params.creation > 0 {
		if err := pause(ctx, params.creation, nil); err != nil {
			return nil, err
		}
	}
	if params.execute > 0 || params.tracing {
		return plain{&slow{model: m, params: params}}, nil
	}
	return m, nil
}

// Close does nothing: there is no runtime.
func (backend) Close() error { return nil }

// pair finds the input of each output. requests is the signature with the dims that
// ragged inputs have in each request.
func (m *model) pair(requests *config.Signature) error {
	sig, name := m.sig, m.sig.Model
	for i := range sig.Inputs {
		if err := expect(name, sig.Inputs[i].Name, "INPUT", "OUTPUT", sig.Output); err != nil {
			return err
		}
	}
	m.source = make([]int, len(sig.Outputs))
	for i := range sig.Outputs {
		out := &sig.Outputs[i]
		if err := expect(name, out.Name, "OUTPUT", "INPUT", sig.Input); err != nil {
			return err
		}
		m.source[i] = sig.Input("INPUT" + strings.TrimPrefix(out.Name, "OUTPUT"))
		in := sig.Inputs[m.source[i]]
		if at := requests.Input(in.Name); at >= 0 && in.Unbatched && !out.Unbatched {
			in, m.split = requests.Inputs[at], true
			in.Unbatched = false // in a request
		}
		if in.DType != out.DType || !sameForm(&in, out, sig.MaxBatch) {
			return status.Errorf(status.InvalidArg, "model '%s': output '%s' is %s, expected %s as input '%s'",
				name, out.Name, describe(out), describe(&in), in.Name)
		}
	}
	return m.checkSplit(requests)
}

// sameForm reports whether an output may hold what its input does. One value for each row of a batch is a row of its own, too.
func sameForm(in, out *config.Port, maxBatch int) bool {
	if in.Unbatched && !out.Unbatched {
		return in.Dims.Equal(out.FullDims(maxBatch))
	}
	return in.Unbatched == out.Unbatched && in.Dims.Equal(out.Dims)
}

// describe returns a tensor's type and dims.
func describe(p *config.Port) string {
	text := p.DType.ConfigName() + " " + p.Dims.String()
	if p.Unbatched {
		text += " over the whole batch"
	}
	return text
}

// checkSplit refuses outputs of each request's own beside one that all requests share.
func (m *model) checkSplit(requests *config.Signature) error {
	for i, in := range m.source {
		if m.split && (m.sig.Outputs[i].Unbatched || in >= len(requests.Inputs)) {
			return status.Errorf(status.InvalidArg, "model '%s': output '%s' is over the whole batch, expected none or all outputs of ragged and computed inputs to be so",
				m.sig.Model, m.sig.Outputs[i].Name)
		}
	}
	return nil
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
