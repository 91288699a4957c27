// Package native runs Go-native steps as models: config.pbtxt has backend "native" and names the step by the
// parameter "step", for example "tokenize". The other parameters configure the step, or the padding of batches.
package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// Name is the value of the field backend in config.pbtxt.
const Name = "native"

// NewFactory returns the factory of the backend native with the given steps.
func NewFactory(registry *steps.Registry) backends.Factory {
	return backends.Factory{
		Name:  Name,
		Guide: backends.Guide{Doc: "Runs a native step: [steps.md](steps.md)."},
		New:   func(o backends.Options) (backends.Backend, error) { return &backend{registry, o.Places}, nil },
		Auto:  func(map[string]string) config.Auto { return config.AutoEdge },
	}
}

type backend struct {
	steps  *steps.Registry
	places *tensor.Places // nil: no devices
}

// Load creates the step that the model names.
func (b *backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	name := s.Param(steps.Key)
	f := b.steps.ByName(name)
	if f == nil {
		return nil, b.unknownStep(s.Model, name)
	}
	given := map[string]string{}
	for key, p := range s.Config.GetParameters() {
		if !config.IsPaddingParam(key) && !config.IsAPIParam(key) && key != config.IdempotentParam {
			given[key] = p.GetStringValue()
		}
	}
	m, err := load(f, &s, given)
	if err != nil {
		return nil, withParam(err, f, given)
	}
	return m.placed(b.places), nil
}

// load creates the step with the given parameters.
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
	return &model{sig: sig, name: f.Name, step: step, inline: f.Inline}, nil
}

// Close does nothing: there is no runtime.
func (*backend) Close() error { return nil }

// model is a step with its signature. It is also its only instance, because steps are stateless.
type model struct {
	sig      *config.Signature
	name     string // of the step
	step     steps.Step
	inline   bool
	hostOnly string // why the step does not run at the devices of the machine
}

var (
	_ backends.ConcurrentModel = (*model)(nil)
	_ backends.Instance        = (*model)(nil)
)

func (m *model) Signature() *config.Signature { return m.sig }

func (m *model) Inline() bool { return m.inline }

func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if at.Kind == tensor.Device {
		why := "this machine has no device with kernels"
		if m.hostOnly != "" {
			why = m.hostOnly
		}
		return nil, status.Errorf(status.Unsupported, "model '%s' of backend '%s' runs on the CPU only, not on %s, because %s: expected KIND_CPU or KIND_AUTO",
			m.sig.Model, Name, at, why)
	}
	return m, nil
}

// Execute runs the step.
//
// hot: one call.
func (m *model) Execute(ctx context.Context, b *backends.Batch) error { return m.step.Run(ctx, b) }

func (*model) Close() error { return nil }

// unknownStep returns the error of a model that names no step, or an unknown one.
func (b *backend) unknownStep(model, name string) error {
	names := b.steps.Names()
	if name == "" {
		return config.WithFix(config.Errorf(config.StepParam, "parameters", "model '%s' of backend '%s' must name its step by parameter '%s', one of: %s",
			model, Name, steps.Key, strings.Join(names, ", ")), `add parameters { key: "step" value { string_value: "NAME" } }`)
	}
	near := config.DidYouMean(name, names)
	if near != "" {
		near = "." + near
	}
	return config.WithFix(config.Errorf(config.StepParam, "parameters."+steps.Key, "model '%s' names unknown step '%s', expected one of: %s%s",
		model, name, strings.Join(names, ", "), near), "name one of the steps: docs/steps.md describes them")
}

// withParam adds to a step's error the field of config.pbtxt that it concerns, and the documentation of that
// parameter. The error concerns the parameter whose name or value it quotes.
func withParam(err error, f *steps.Factory, given map[string]string) error {
	key := quotedParam(err.Error(), f, given)
	field := "parameters"
	if _, set := given[key]; set {
		field += "." + key
	}
	if _, known := config.Diagnosed(err); known {
		return config.WithField(err, field)
	}
	if _, coded := errors.AsType[*status.Error](err); coded {
		err = config.Coded(config.StepParam, field, err)
	} else {
		err = config.Errorf(config.StepParam, field, "%w", err)
	}
	if i := slices.IndexFunc(f.Params, func(p steps.Param) bool { return p.Key == key }); i >= 0 {
		return config.WithFix(err, paramHint(&f.Params[i]))
	}
	return err
}

// quotedParam returns the parameter whose name the text quotes, else the one whose value it quotes, else "".
func quotedParam(text string, f *steps.Factory, given map[string]string) string {
	quotes := func(word string) bool { return word != "" && strings.Contains(text, "'"+word+"'") }
	for _, p := range f.Params {
		if quotes(p.Key) {
			return p.Key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if key != steps.Key && (quotes(key) || quotes(given[key])) {
			return key
		}
	}
	return ""
}

// paramHint describes a parameter for an error's hint.
func paramHint(p *steps.Param) string {
	text := fmt.Sprintf(`%s: %s`, p.Key, strings.TrimSuffix(p.Doc, "."))
	switch {
	case p.Required:
		return text + "; it must be set"
	case p.Default != "":
		return text + "; by default " + p.Default
	}
	return text
}
