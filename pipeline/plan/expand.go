package plan

import (
	"fmt"
	"slices"
	"strings"

	"tutti/core/config"
	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// maxSteps bounds what an ensemble may expand to: ten ensembles that each hold the
// next one twice are a thousand steps, thirty would be the end of the machine.
const maxSteps = 1 << 14

// maxDepth bounds how deep ensembles nest.
const maxDepth = 64

// expand looks every step's model up and inlines the ensembles among them, so that
// what is left are models that run.
func (c *compiler) expand() error {
	return c.open(&level{cfg: c.root})
}

// open checks the configuration of l and expands its steps.
func (c *compiler) open(l *level) error {
	if !config.IsEnsemble(l.cfg) {
		return l.fail(config.Errorf(config.EnsembleFlow, "", "model '%s' is not an ensemble", l.name()))
	}
	if len(l.path()) > maxDepth {
		return status.Errorf(status.Unsupported, "ensemble '%s' nests ensembles more than %d deep", c.root.GetName(), maxDepth)
	}
	if err := config.Validate(l.cfg); err != nil {
		return l.fail(err)
	}
	c.levels = append(c.levels, l)
	l.sig = config.SignatureOf(l.cfg)
	steps := l.cfg.GetEnsembleScheduling().GetStep()
	if c.total += len(steps); c.total > maxSteps {
		return status.Errorf(status.Unsupported, "ensemble '%s' expands to more than %d steps", c.root.GetName(), maxSteps)
	}
	for _, s := range steps {
		if cycle := l.ring(s.GetModelName()); cycle != "" {
			return config.Errorf(config.Circle, "ensemble_scheduling", "circular dependency between ensembles: %s", cycle)
		}
	}
	models, err := c.models(l, steps)
	if err != nil {
		return l.fail(err)
	}
	names := stepNames(l, steps)
	for i, s := range steps {
		if err := c.step(l, s, names[i], models[i]); err != nil {
			return err
		}
	}
	l.complete()
	return nil
}

func (c *compiler) step(l *level, cfg *modelconfig.ModelEnsembling_Step, name string, m Model) error {
	s := &step{level: l, name: name, model: cfg.GetModelName(), version: cfg.GetModelVersion(), cfg: cfg, sig: m.Signature}
	l.steps = append(l.steps, s)
	if m.Ensemble == nil {
		if s.sig.Decoupled {
			return l.fail(status.Errorf(status.Unsupported,
				"unsupported: ensemble '%s' has a step of model '%s', which is decoupled", l.name(), s.model))
		}
		if s.sig.Version > 0 {
			s.version = s.sig.Version
		}
		c.leaves = append(c.leaves, s)
		return nil
	}
	s.inner = &level{cfg: m.Ensemble, parent: l, within: s}
	if err := c.open(s.inner); err != nil {
		return err
	}
	s.sig = config.SignatureOf(s.inner.cfg)
	if m.Signature != nil {
		for i := range s.sig.Outputs {
			if at := m.Signature.Output(s.sig.Outputs[i].Name); at >= 0 {
				s.sig.Outputs[i].Labels = m.Signature.Outputs[at].Labels
			}
		}
	}
	return nil
}

// ring returns the way from the ensemble called model, in which l is, back to it;
// empty when l is in no such ensemble.
func (l *level) ring(model string) string {
	path := l.path()
	at := slices.Index(path, model)
	if at < 0 {
		return ""
	}
	return strings.Join(append(path[at:], model), " -> ")
}

// models looks up the model of every step.
func (c *compiler) models(l *level, steps []*modelconfig.ModelEnsembling_Step) ([]Model, error) {
	models := make([]Model, len(steps))
	var missing []string
	var first error
	for i, s := range steps {
		m, err := c.model(l, s)
		switch {
		case status.CodeOf(err) == status.NotFound && err != nil:
			missing = append(missing, s.GetModelName())
		case err != nil && first == nil:
			first = err
		}
		models[i] = m
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, config.Errorf(config.NoSuchModel, l.fieldOf(missing[0]), "ensemble %s contains models that are not available or ambiguous: %s",
			l.name(), strings.Join(slices.Compact(missing), ", "))
	}
	return models, first
}

// model looks up one step's model. An unknown model stays a NotFound error; version
// 0, which is what a step without model_version asks for, is never loaded.
func (c *compiler) model(l *level, s *modelconfig.ModelEnsembling_Step) (Model, error) {
	name, version := s.GetModelName(), s.GetModelVersion()
	latest, err := c.look.Model(name, -1)
	switch {
	case status.CodeOf(err) == status.NotFound && err != nil:
		return Model{}, err
	case status.CodeOf(err) == status.Unavailable && err != nil:
		return Model{}, config.Errorf(config.BadDependency, l.fieldOf(name),
			"ensemble '%s' depends on '%s' which has no loaded version. Model '%s' loading failed with error: %w", l.name(), name, name, err)
	case err != nil:
		return Model{}, config.Errorf(config.BadDependency, l.fieldOf(name),
			"ensemble '%s' depends on '%s' which is not valid. Model '%s' failed with error: %w", l.name(), name, name, err)
	}
	m := latest
	if version != -1 {
		if version > 0 {
			m, err = c.look.Model(name, version)
		}
		if err != nil || version <= 0 {
			return Model{}, config.Errorf(config.BadDependency, l.fieldOf(name),
				"ensemble '%s' depends on '%s' whose required version %d is not loaded.", l.name(), name, version)
		}
	}
	if m.Signature == nil && m.Ensemble == nil {
		return Model{}, status.Errorf(status.Internal, "ensemble '%s' depends on '%s' of which no signature is known", l.name(), name)
	}
	return m, nil
}

// stepNames names the steps of l: the model's name, with the step's position when
// the ensemble uses the model twice, and the prefix of l.
func stepNames(l *level, steps []*modelconfig.ModelEnsembling_Step) []string {
	times := make(map[string]int, len(steps))
	for _, s := range steps {
		times[s.GetModelName()]++
	}
	names := make([]string, len(steps))
	prefix := l.prefix()
	for i, s := range steps {
		names[i] = prefix + s.GetModelName()
		if times[s.GetModelName()] > 1 {
			names[i] = fmt.Sprintf("%s%s[%d]", prefix, s.GetModelName(), i)
		}
	}
	return names
}
