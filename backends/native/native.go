// Package native runs Go-native steps as models: config.pbtxt says backend "native"
// and names the step by the parameter "step"; further parameters are the step's own,
// or say how a scheduler pads.
package native

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/steps"
)

// Name is the backend's name in config.pbtxt.
const Name = "native"

// NewFactory returns the backend of the given steps.
func NewFactory(registry *steps.Registry) backends.Factory {
	return backends.Factory{
		Name:  Name,
		Guide: backends.Guide{Doc: "Runs a native step: [steps.md](steps.md)."},
		New:   func(backends.Options) (backends.Backend, error) { return &backend{registry}, nil },
	}
}

type backend struct {
	steps *steps.Registry
}

// Load makes the step a model names.
func (b *backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	name := s.Param(steps.Key)
	f := b.steps.ByName(name)
	if f == nil {
		return nil, b.unnamed(s.Model, name)
	}
	given := map[string]string{}
	for key, p := range s.Config.GetParameters() {
		if !batch.IsPaddingParam(key) {
			given[key] = p.GetStringValue()
		}
	}
	m, err := load(f, &s, given)
	if err != nil {
		return nil, faulty(err, f, given)
	}
	return m, nil
}

// load makes the step with the given parameters.
func load(f *steps.Factory, s *backends.Settings, given map[string]string) (*model, error) {
	params, err := f.Resolve(given)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", s.Model, err)
	}
	declared := config.SignatureOf(s.Config).AtModel()
	settings := &steps.Settings{
		Model: s.Model, ModelDir: s.ModelDir, Dir: s.Dir, MaxBatch: declared.MaxBatch,
		Params: params, Inputs: declared.Inputs, Outputs: declared.Outputs, Log: s.Log,
	}
	sig, err := f.Signature(settings)
	if err != nil {
		return nil, err
	}
	sig.Model, sig.Version, sig.MaxBatch = s.Model, s.Version, settings.MaxBatch
	step, err := f.New(settings)
	if err != nil {
		return nil, err
	}
	return &model{sig: sig, step: step, inline: f.Inline}, nil
}

// Close has nothing to close.
func (*backend) Close() error { return nil }

// model is a step with its signature; it is its own instance, for steps are stateless.
type model struct {
	sig    *config.Signature
	step   steps.Step
	inline bool
}

var (
	_ backends.ConcurrentModel = (*model)(nil)
	_ backends.Instance        = (*model)(nil)
)

func (m *model) Signature() *config.Signature { return m.sig }

func (m *model) Inline() bool { return m.inline }

func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if at.Kind == tensor.Device {
		return nil, fmt.Errorf("model '%s' of backend '%s' runs on the CPU only, not on %s", m.sig.Model, Name, at)
	}
	return m, nil
}

// Execute runs the step.
//
// hot: one call.
func (m *model) Execute(ctx context.Context, b *backends.Batch) error { return m.step.Run(ctx, b) }

func (*model) Close() error { return nil }
