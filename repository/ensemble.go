package repository

import (
	"slices"

	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/telemetry"
	"tutti/pipeline/exec"
	"tutti/pipeline/plan"
	"tutti/scheduler"
)

// compile makes the served version of an ensemble whose steps' models are loaded.
func (r *Repository) compile(f *folder, number int64) (*version, error) {
	p, err := plan.Compile(f.cfg, number, lookup{r})
	if err != nil {
		return nil, err
	}
	if err := config.ReadLabels(f.cfg, f.dir, p.Signature); err != nil {
		return nil, err
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range p.Nodes {
		v, err := r.find(p.Nodes[i].Model, p.Nodes[i].Version)
		if err != nil {
			return nil, err
		}
		targets[i] = v.queue
	}
	stats := &telemetry.Model{Name: f.name, Version: number}
	return &version{
		cfg: f.cfg, sig: p.Signature, about: newDescription(p.Signature), stats: stats,
		exec: exec.New(exec.Settings{Plan: p, Targets: targets, Stats: stats, Workers: r.workers}),
	}, nil
}

// lookup answers the compiler from what is loaded.
type lookup struct{ r *Repository }

var _ plan.Lookup = lookup{}

// Model implements plan.Lookup.
func (l lookup) Model(name string, number int64) (plan.Model, error) {
	m := l.r.models[name]
	switch {
	case m == nil:
		return plan.Model{}, status.Errorf(status.NotFound, "there is no model '%s'", name)
	case m.folder.err != nil:
		return plan.Model{}, status.Errorf(status.InvalidArg, "%w", m.folder.err)
	case config.IsEnsemble(m.folder.cfg) && number > 0 && !slices.Contains(m.folder.versions, number):
		return plan.Model{}, status.Errorf(status.InvalidArg, "there is no version %d of ensemble '%s'", number, name)
	case config.IsEnsemble(m.folder.cfg):
		return plan.Model{Signature: config.SignatureOf(m.folder.cfg), Ensemble: m.folder.cfg}, nil
	}
	v := m.version(number)
	switch {
	case v == nil && m.err != nil:
		return plan.Model{}, status.Errorf(status.Unavailable, "%w", m.err)
	case v == nil:
		return plan.Model{}, status.Errorf(status.InvalidArg, "version %d of model '%s' is not loaded", number, name)
	}
	return plan.Model{Signature: v.sig}, nil
}
