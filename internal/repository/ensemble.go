package repository

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
)

// compileAll compiles every ensemble that the change affects. Nested ensembles are inlined, so the order does not
// matter. broken are ensembles that serve and would not after the change.
func (c *change) compileAll(ctx context.Context) (broken []*model) {
	c.undo(ctx)
	for _, key := range c.stale() {
		m := c.forCompile(key)
		c.renewed = append(c.renewed, key)
		c.next[key] = m
		for _, l := range m.states {
			v, err := c.compile(ctx, m, l)
			if err != nil {
				m.err = err
				break // every version has the same steps
			}
			m.versions = append(m.versions, v)
			c.compiled = append(c.compiled, v)
		}
		if m.withdrawn = c.withdrawn(m); m.err == nil {
			continue
		}
		m.versions = nil
		for _, l := range m.states {
			l.set(infer.Unavailable, m.err.Error())
		}
		if old := c.base.models[key]; old != nil && len(old.versions) > 0 {
			broken = append(broken, m)
		}
	}
	return broken
}

// withdrawn reports whether an ensemble fails only because one of its models was unloaded, by this change or an
// earlier one.
func (c *change) withdrawn(m *model) bool {
	if m.err == nil || c.loading[m.key] != nil {
		return false
	}
	return m.withdrawn || slices.ContainsFunc(c.closure(m.key), func(key string) bool { return slices.Contains(c.unloaded, key) })
}

func (c *change) undo(ctx context.Context) {
	for _, v := range c.compiled {
		_ = v.close(ctx) // closing an ensemble cannot fail
	}
	for _, key := range c.renewed { // ensembles that are neither loaded nor kept return to their old state
		if old := c.base.models[key]; c.loading[key] == nil && old != nil && !slices.Contains(old.versions, c.next[key].version(0)) {
			c.next[key] = old
		}
	}
	c.compiled, c.renewed = nil, nil
}

// forCompile returns a fresh copy of an ensemble to compile. compileAll may compile it several times.
func (c *change) forCompile(key string) *model {
	m := *c.next[key]
	m.versions, m.states, m.err = nil, nil, nil
	for _, n := range m.folder.versions {
		l := newVersionState(n)
		l.set(infer.Loading, "")
		m.states = append(m.states, l)
	}
	if c.loading[key] != nil {
		c.loading[key] = &m
	}
	return &m
}

// stale returns the sorted keys of the ensembles to compile: those that are loaded, and those that use a model that
// changes. With namespacing a change of one model may change which model a step refers to, so all ensembles that
// use its name are compiled.
func (c *change) stale() []string {
	changed := map[string]bool{}
	for key, m := range c.loading {
		if c.affectsEnsembles(m) {
			changed[nameOf(key)] = true
		}
	}
	for _, key := range c.unloaded {
		changed[nameOf(key)] = true
	}
	stale := map[string]bool{}
	for again := true; again; {
		again = false
		for key, m := range c.next {
			if stale[key] || !m.wanted || m.folder.err != nil || !m.ensemble() || c.inner.loadingOutside[key] != nil {
				continue
			}
			if c.loading[key] != nil || m.usesAny(changed) {
				stale[key], changed[m.name], again = true, true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(stale))
}

// affectsEnsembles reports whether loading a model changes the ensembles that use it. It does not if all versions
// stay at their places.
func (c *change) affectsEnsembles(m *model) bool {
	old := c.base.models[m.key]
	return old == nil || !slices.Equal(m.versions, old.versions) ||
		slices.ContainsFunc(m.versions, func(v *version) bool { return !samePlaces(m.placesOf(v), old.placesOf(v)) })
}

func (m *model) usesAny(names map[string]bool) bool {
	return slices.ContainsFunc(m.folder.cfg.GetEnsembleScheduling().GetStep(), func(st *modelconfig.ModelEnsembling_Step) bool {
		return names[st.GetModelName()]
	})
}

// compile makes a version of an ensemble whose models are open.
func (c *change) compile(ctx context.Context, m *model, l *versionState) (v *version, err error) {
	defer recovery.Error(&err, c.r.s.Log, "compiling ensemble '"+m.name+"'", slog.String("model", m.name), slog.Int64("version", l.number))
	p, err := plan.Compile(m.folder.cfg, l.number, lookup{source: &c.r.source, models: c.next, home: m.key})
	if err != nil {
		return nil, err
	}
	if err := config.ReadLabels(p.Config, m.folder.dir, p.Signature); err != nil {
		return nil, err
	}
	v = &version{
		key: m.key, cfg: p.Config, sig: p.Signature, description: newDescription(p.Signature), state: l,
		stats: c.stats(m, l.number), overrideDir: m.folder.overrideDir,
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range p.Nodes {
		used := c.next[p.Nodes[i].ID].version(p.Nodes[i].Version)
		targets[i] = used.queue
		if !slices.Contains(v.uses, used) {
			v.uses = append(v.uses, used)
		}
	}
	for _, used := range v.uses {
		used.users.Add(1)
	}
	v.overrideDir.retain()
	if n := p.Config.GetEnsembleScheduling().GetMaxInflightRequests(); n > 0 {
		//nolint:sloglint // the line is Triton's, which people look for
		c.r.s.Log.InfoContext(ctx, "Ensemble model '"+m.name+"' configured with max_inflight_requests: "+strconv.FormatUint(uint64(n), 10))
	}
	settings := exec.Settings{
		Plan: p, Targets: targets, Stats: v.stats, Workers: c.r.workers, Mover: c.r.mover,
		Tracer: c.r.s.Tracer, Log: c.r.s.Log,
	}
	v.exec = exec.New(settings)
	if err := c.r.addResponseCache(m.folder, v); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	settings.Stats = &telemetry.Model{Name: m.name, Version: l.number}
	if err := c.r.checkGoldens(ctx, m.folder, v.sig, &dryRun{exec: exec.New(settings)}); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	return v, nil
}
