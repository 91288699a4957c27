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
	"github.com/tutti-server/tutti/scheduler"
)

// compileAll compiles every ensemble that the change concerns; nested ones are
// inlined, so their order does not matter. It returns those that serve and would not
// after the change.
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
				break // another version is made of the same
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

// withdrawn reports whether an ensemble that was not loaded by this change fails because a
// model within it was unloaded, now or by an earlier change.
func (c *change) withdrawn(m *model) bool {
	if m.err == nil || c.loading[m.key] != nil {
		return false
	}
	return m.withdrawn || slices.ContainsFunc(c.closure(m.key), func(key string) bool { return slices.Contains(c.unloaded, key) })
}

// undo takes back what compileAll did before.
func (c *change) undo(ctx context.Context) {
	for _, v := range c.compiled {
		_ = v.close(ctx) // an ensemble has nothing that fails to close
	}
	for _, key := range c.renewed { // those neither loaded nor kept are what they were
		if old := c.base.models[key]; c.loading[key] == nil && old != nil && !slices.Contains(old.versions, c.next[key].version(0)) {
			c.next[key] = old
		}
	}
	c.compiled, c.renewed = nil, nil
}

// anew returns an ensemble to be compiled, as often as it takes.
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

// stale lists the keys of the ensembles that are loaded anew or made of what changes,
// sorted. With namespacing a model may change what others of its name are to a step.
func (c *change) stale() []string {
	changed := map[string]bool{}
	for key, m := range c.loading {
		if c.alters(m) {
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

// alters reports whether a model that is loaded is another one to its ensembles: not when
// all of its versions stay where they are.
func (c *change) alters(m *model) bool {
	old := c.base.models[m.key]
	return old == nil || !slices.Equal(m.versions, old.versions) ||
		slices.ContainsFunc(m.versions, func(v *version) bool { return !samePlaces(m.placesOf(v), old.placesOf(v)) })
}

func (m *model) usesAny(names map[string]bool) bool {
	for _, st := range m.folder.cfg.GetEnsembleScheduling().GetStep() {
		if names[st.GetModelName()] {
			return true
		}
	}
	return false
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
	if err := c.r.remember(m.folder, v); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	settings.Stats = &telemetry.Model{Name: m.name, Version: l.number}
	if err := c.r.checkGoldens(ctx, m.folder, v.sig, &dryRun{exec: exec.New(settings)}); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	return v, nil
}
