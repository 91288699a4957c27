// Package negate is a backend whose models return their input with the opposite sign.
package negate

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// NewFactory declares the backend "negate". Its models have no files.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "negate",
		Params: []string{},
		New:    func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

// Load implements backends.Backend.
func (backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	sig := config.SignatureOf(s.Config)
	sig.Model, sig.Version = s.Model, s.Version
	if len(sig.Inputs) != 1 || len(sig.Outputs) != 1 || sig.Inputs[0].DType != tensor.FP32 || sig.Outputs[0].DType != tensor.FP32 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': expected one input and one output of TYPE_FP32", s.Model)
	}
	return &model{sig}, nil
}

// Close implements backends.Backend.
func (backend) Close() error { return nil }

// model is also its only instance, because it has no state.
type model struct{ sig *config.Signature }

var (
	_ backends.ConcurrentModel = (*model)(nil)
	_ backends.Instance        = (*model)(nil)
)

// Signature implements backends.Model.
func (m *model) Signature() *config.Signature { return m.sig }

// Inline implements backends.ConcurrentModel.
func (*model) Inline() bool { return true }

// NewInstance implements backends.Model.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) { return m, nil }

// Execute implements backends.Instance.
func (*model) Execute(_ context.Context, b *backends.Batch) error {
	out, err := b.Alloc(0, tensor.FP32, b.In[0].Shape)
	if err != nil {
		return err
	}
	to := tensor.Slice[float32](out)
	for i, v := range tensor.Slice[float32](&b.In[0]) {
		to[i] = -v
	}
	return nil
}

// Close implements backends.Model and backends.Instance.
func (*model) Close() error { return nil }
