package repository

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// change is one transaction: models are opened and ensembles compiled beside what
// serves, and then all of it is published in one step (commit) or nothing (abandon).
// Its maker holds the repository's turn.
type change struct {
	r        *Repository
	base     *snapshot
	next     map[string]*model // what is to be published, by key
	loading  map[string]*model // those of next that are loaded anew
	unloaded []string          // keys of models that no longer serve
	notes    []keptNote

	renewed      []string                   // keys of ensembles compiled in the round at hand
	opened       []*version                 // of plain models
	staying      map[*versionState]*version // those of loading that serve already and go on doing so
	updates      []*update                  // of them
	failed       map[*versionState]error    // why others of loading do not serve
	compiled     []*version                 // of ensembles, in the round at hand
	overrideDirs []*overrideDir

	inner nesting
}

// note is why a version that serves was not replaced.
type keptNote struct {
	states []*versionState
	reason string
}

func (r *Repository) change() *change {
	base := r.catalog.Load()
	return &change{r: r, base: base, next: maps.Clone(base.models), loading: map[string]*model{}, staying: map[*versionState]*version{}, failed: map[*versionState]error{}}
}

// begin has a model loaded from f.
func (c *change) begin(ctx context.Context, f *folder, explicit bool) {
	if f.overrideDir != nil {
		c.overrideDirs = append(c.overrideDirs, f.overrideDir)
	}
	old := c.base.models[f.key]
	m := &model{key: f.key, name: f.name, folder: f, wanted: true, fingerprint: f.fingerprint, err: f.err, explicit: explicit || old != nil && old.explicit}
	if f.err == nil {
		for _, n := range f.versions {
			m.states = append(m.states, c.stateFor(f, n))
		}
	}
	for _, n := range f.missing {
		c.r.s.Log.WarnContext(ctx, "a version is wanted by the version policy but has no folder", slog.String("model", f.name), slog.Int64("version", n))
	}
	for i := range f.diagnostics {
		c.r.logDiagnostic(ctx, &f.diagnostics[i])
	}
	c.next[f.key], c.loading[f.key] = m, m
}

// begun returns the life of a version that is loaded: that of the one which serves, if it stays.
func (c *change) stateFor(f *folder, number int64) *versionState {
	if v := c.staysOpen(f, number); v != nil {
		c.staying[v.state] = v
		return v.state
	}
	l := newVersionState(number)
	l.set(infer.Loading, "")
	return l
}

// tell logs what a configuration is accepted with; faults are told with the model.
func (r *Repository) logDiagnostic(ctx context.Context, d *config.Diagnostic) {
	level := slog.LevelInfo
	switch d.Severity {
	case config.Fault:
		return
	case config.Warning:
		level = slog.LevelWarn
	}
	r.s.Log.Log(ctx, level, "configuration", slog.String("model", d.Model), slog.String("code", string(d.Code)),
		slog.Int("line", d.Line), slog.String("reason", d.Reason))
}

// gather begins what the named ensemble is made of, as far as it is there and does
// not serve in its present form already.
func (c *change) loadDependencies(ctx context.Context, key string) {
	m := c.next[key]
	if m == nil || m.folder.cfg == nil {
		return
	}
	for _, st := range m.folder.cfg.GetEnsembleScheduling().GetStep() {
		if !plainName(st.GetModelName()) {
			continue
		}
		p, found := c.r.source.locate(key, st)
		if !found || c.loading[p.key] != nil || c.inner.loadingOutside[p.key] != nil {
			continue
		}
		old := c.base.models[p.key]
		if old == nil || len(old.versions) == 0 || old.overrideDir() == nil && !old.current(fingerprint(p)) {
			c.begin(ctx, c.r.source.open(ctx, p), false)
			c.loadDependencies(ctx, p.key)
		}
	}
}

// announce shows in the index what is loading, beside what serves.
func (c *change) announce(ctx context.Context) {
	shown := maps.Clone(c.base.models)
	for key, m := range c.loading {
		show := &model{key: key, name: m.name, folder: m.folder, wanted: true, states: m.states}
		if old := c.base.models[key]; old != nil {
			*show = *old
			show.states = mergeStates(readyStates(old.states), mergeStates(m.states, old.states))
		}
		shown[key] = show
	}
	c.r.publish(ctx, shown)
}

// serving returns the lives that are ready.
func readyStates(lives []*versionState) []*versionState {
	return slices.DeleteFunc(slices.Clone(lives), func(l *versionState) bool { return !l.is(infer.Ready) })
}

// load opens the versions of every model that is no ensemble, several at a time.
func (c *change) load(ctx context.Context) {
	c.announce(ctx)
	inner := c.allowNested(ctx)
	var g errgroup.Group
	g.SetLimit(max(1, c.r.loadThreads()))
	all := map[*model][]outcome{}
	for _, m := range c.loading {
		if m.err != nil || m.ensemble() {
			continue
		}
		list := make([]outcome, len(m.states))
		all[m] = list
		for i, l := range m.states {
			g.Go(func() error {
				list[i] = c.loadOrUpdate(inner, m, l)
				return nil
			})
		}
	}
	_ = g.Wait() // every failure is in its outcome
	c.endNested()
	for m, list := range all {
		c.record(m, list)
	}
}

// outcome is what became of a version that is loaded: it was opened, or stays and has an
// update, or could not.
type outcome struct {
	v   *version
	u   *update
	err error
}

// bring opens a version, or updates the one that stays.
func (c *change) loadOrUpdate(ctx context.Context, m *model, l *versionState) (x outcome) {
	if x.v = c.staying[l]; x.v != nil {
		x.u, x.err = c.update(ctx, m, x.v)
		return x
	}
	if x.v, x.err = c.open(ctx, m, l); x.err != nil {
		l.set(infer.Unavailable, x.err.Error())
	}
	return x
}

// gathered notes what became of a model's versions.
func (c *change) record(m *model, list []outcome) {
	m.moved = map[*version][]tensor.Place{}
	for i, x := range list {
		if x.err != nil {
			c.failed[m.states[i]] = x.err
			m.err = errors.Join(m.err, x.err)
		}
		if x.v != nil {
			m.versions = append(m.versions, x.v)
		}
		if x.u != nil {
			c.updates = append(c.updates, x.u)
			if x.v.places != nil {
				m.moved[x.v] = placesOf(x.u.instances.specs())
			}
		} else if x.v != nil && c.staying[m.states[i]] == nil {
			c.opened = append(c.opened, x.v)
		}
	}
}

// open loads one version, and again when that fails and the settings say so. A panic is a failure as any other.
func (c *change) open(ctx context.Context, m *model, l *versionState) (*version, error) {
	began := telemetry.Now()
	for try := 0; ; try++ {
		v, err := c.attempt(ctx, m, l.number)
		if err == nil {
			v.key, v.state = m.key, l
			v.stats.Loaded(telemetry.Now() - began)
			return v, nil
		}
		if try >= c.r.s.LoadRetries || ctx.Err() != nil {
			return nil, err
		}
		c.r.s.Log.WarnContext(ctx, "loading failed, trying again", slog.String("model", m.name), slog.Int64("version", l.number), slog.String("error", err.Error()))
	}
}

// attempt loads one version: with what the one that serves has open where only instances differ, else from the folder.
func (c *change) attempt(ctx context.Context, m *model, number int64) (v *version, err error) {
	defer recovery.Error(&err, c.r.s.Log, "loading model '"+m.name+"'", slog.String("model", m.name), slog.Int64("version", number))
	stats := c.stats(m, number)
	if v, err = c.regroup(ctx, m, number, stats); v != nil || err != nil {
		return v, err
	}
	return c.r.loadVersion(ctx, m.folder, number, stats)
}

// stats returns the counters of a version: those of the one that it replaces, which
// go on counting, so that a reload neither resets them nor loses what the old one
// still answers.
func (c *change) stats(m *model, number int64) *telemetry.Model {
	if old := c.base.models[m.key]; old != nil {
		for _, v := range old.versions {
			if v.sig.Version == number {
				return v.stats
			}
		}
	}
	return &telemetry.Model{Name: m.name, Namespace: spaceOf(m.key), Version: number}
}

// settle compiles the ensembles. A model that could not be loaded, or without which
// an ensemble that serves would not, stays as it was when it serves.
func (c *change) compileOrRevert(ctx context.Context) {
	for key, m := range c.loading {
		if m.err != nil {
			c.keepServing(key, m.err)
		}
	}
	for {
		broken := c.compileAll(ctx)
		if !c.revert(broken) {
			return
		}
	}
}

// keep has the model stay what it is, if it serves, and its index say why.
func (c *change) keepServing(key string, why error) bool {
	m, old := c.loading[key], c.base.models[key]
	if m == nil || old == nil || len(old.versions) == 0 {
		return false
	}
	kept := *old
	kept.explicit = m.explicit
	if c.r.s.Mode == Polled { // it is not tried again before it changes again
		kept.fingerprint = m.fingerprint
	}
	c.next[key] = &kept
	delete(c.loading, key)
	c.notes = append(c.notes, keptNote{old.states, why.Error()})
	c.r.s.Metrics.LoadFailed()
	c.r.s.Log.Error("model stays as it is", slog.String("model", m.name), slog.String("reason", why.Error()))
	return true
}

// revert keeps the models by which ensembles broke, and reports whether there are any.
func (c *change) revert(broken []*model) bool {
	kept := false
	for _, m := range broken {
		for _, key := range c.closure(m.key) {
			kept = c.keepServing(key, m.err) || kept
		}
	}
	return kept
}

// within lists the keys of the models that an ensemble consists of, before and after the change,
// and itself.
func (c *change) closure(key string) []string {
	list := []string{key}
	for i := 0; i < len(list); i++ {
		for _, models := range []map[string]*model{c.base.models, c.next} {
			m := models[list[i]]
			if m == nil || m.folder.cfg == nil {
				continue
			}
			for _, used := range m.dependencies(&c.r.source, models) {
				if !slices.Contains(list, used) {
					list = append(list, used)
				}
			}
		}
	}
	return list
}

// commit publishes the change.
func (c *change) commit(ctx context.Context) {
	for _, m := range c.next {
		if old := c.base.models[m.key]; old != m {
			c.finish(m, old)
		}
	}
	c.end(ctx, c.next)
}

// finish makes the versions of a model ready, and carries over those that leave.
func (c *change) finish(m, old *model) {
	m.holdsOverride = m.wanted
	for _, v := range m.versions {
		v.state.set(infer.Ready, "") // one that stays loses the reason of what failed before
	}
	if old != nil {
		leave := slices.DeleteFunc(slices.Clone(old.states), func(l *versionState) bool { return l.is(infer.Unavailable) && m.wanted })
		m.states = mergeStates(m.states, leave)
	}
	c.r.report(m, c.loading[m.key] != nil && slices.ContainsFunc(m.versions, func(v *version) bool { return c.staying[v.state] == nil }))
}

// abandon gives the change up because of why, which the index tells of the named
// model and of those that failed.
func (c *change) reject(ctx context.Context, name string, why error) {
	if cause := errors.Unwrap(why); cause != nil {
		why = cause // the index need not name the model again
	}
	shown := maps.Clone(c.base.models)
	for _, m := range c.loading {
		if m.err == nil && m.name == name {
			m.err = why
		}
		switch {
		case m.err == nil:
		case c.keepServing(m.key, m.err):
			shown[m.key] = c.next[m.key]
		default:
			shown[m.key] = m.unavailable(c.base.models[m.key])
			c.r.report(m, true)
		}
	}
	c.end(ctx, shown)
}

// unavailable returns the model when none of it serves.
func (m *model) unavailable(old *model) *model {
	f := *m
	f.versions, f.holdsOverride = nil, false
	for _, l := range m.states {
		if l.is(infer.Loading) {
			l.set(infer.Unavailable, m.err.Error())
		}
	}
	if old != nil {
		f.states = mergeStates(m.states, old.states)
	}
	return &f
}

// cancel gives the change up without a trace.
func (c *change) cancel(ctx context.Context) { c.end(ctx, c.base.models) }

// end publishes models and closes what was made in vain.
func (c *change) end(ctx context.Context, models map[string]*model) {
	for _, n := range c.notes {
		for _, l := range n.states {
			if l.is(infer.Ready) {
				l.set(infer.Ready, n.reason)
			}
		}
	}
	c.r.publish(ctx, models)
	now := c.r.catalog.Load()
	var errs []error
	for _, v := range slices.Concat(c.compiled, c.opened) {
		if m := now.models[v.key]; m == nil || !slices.Contains(m.versions, v) {
			errs = append(errs, v.close(ctx))
		}
	}
	for _, u := range c.updates {
		if now.models[u.v.key] == u.m {
			c.r.apply(ctx, u)
		} else {
			errs = append(errs, u.discard())
		}
	}
	for _, t := range c.overrideDirs {
		errs = append(errs, t.release())
	}
	if err := errors.Join(errs...); err != nil {
		c.r.s.Log.ErrorContext(ctx, "closing what could not be loaded failed", slog.String("error", err.Error()))
	}
}

// report logs how loading a model ended.
func (r *Repository) report(m *model, loaded bool) {
	name := slog.String("model", m.name)
	switch {
	case m.err != nil:
		r.s.Metrics.LoadFailed()
		// Triton's log has the kind of the failure before its text.
		r.s.Log.Error("model is unavailable", name, slog.String("reason", status.CodeOf(m.err).String()+": "+status.Line(m.err.Error())))
	case !m.wanted:
		r.s.Log.Info("model unloaded", name)
	case loaded:
		took := time.Duration(0)
		for _, v := range m.versions {
			took = max(took, time.Duration(v.stats.LoadNs()))
		}
		r.s.Log.Info("model loaded", name, slog.Int("versions", len(m.versions)), slog.Duration("took", took))
	}
}
