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

// change is one transaction on the repository. Models are opened and ensembles compiled beside the snapshot that
// serves; then all of it is published (commit) or nothing (reject, cancel). Its owner holds Repository.changes, or
// runs nested in a change that does.
type change struct {
	r        *Repository
	cause    string // for the journal
	began    int64  // telemetry.Now
	base     *snapshot
	next     map[string]*model        // to be published, by key
	loading  map[string]*model        // those of next that are loaded in this change
	unloaded []string                 // keys of models that stop serving
	notes    map[*versionState]string // why serving versions were not replaced

	renewed      []string                   // keys of ensembles compiled in this round
	opened       []*version                 // versions of models that are not ensembles
	staying      map[*versionState]*version // states of versions that serve already and stay
	updates      []*update                  // instance changes of the staying versions
	failed       map[*versionState]error    // why other versions of loading failed
	compiled     []*version                 // versions of ensembles of this round
	overrideDirs []*overrideDir

	inner nesting
}

// change begins a change, with its cause for the journal.
func (r *Repository) change(cause string) *change {
	base := r.catalog.Load()
	return &change{
		r: r, cause: cause, began: telemetry.Now(), base: base, next: maps.Clone(base.models), loading: map[string]*model{}, notes: map[*versionState]string{},
		staying: map[*versionState]*version{}, failed: map[*versionState]error{},
	}
}

// begin adds a model to be loaded from f.
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

// stateFor returns the state of a version to load: the present one if the version stays, else a new one.
func (c *change) stateFor(f *folder, number int64) *versionState {
	if v := c.staysOpen(f, number); v != nil {
		c.staying[v.state] = v
		return v.state
	}
	return newVersionState(number)
}

// logDiagnostic logs a warning or notice about a configuration. Errors are reported with the model.
func (r *Repository) logDiagnostic(ctx context.Context, d *config.Diagnostic) {
	if d.Severity == config.Notice && r.s.QuietNotices {
		return
	}
	levels := map[config.Severity]slog.Level{config.Warning: slog.LevelWarn, config.Notice: slog.LevelInfo}
	if level, ok := levels[d.Severity]; ok {
		r.s.Log.Log(ctx, level, "configuration", slog.String("model", d.Model), slog.String("code", string(d.Code)),
			slog.Int("line", d.Line), slog.String("reason", d.Reason))
	}
}

// loadDependencies begins to load the models of an ensemble that are found and do not serve their current files.
func (c *change) loadDependencies(ctx context.Context, key string) {
	m := c.next[key]
	if m == nil {
		return
	}
	for _, st := range config.StepModels(m.folder.cfg) {
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

// announce publishes the loading models beside those that serve, so that Index shows them.
func (c *change) announce(ctx context.Context) {
	shown := maps.Clone(c.base.models)
	for key, m := range c.loading {
		show := &model{key: key, name: m.name, folder: m.folder, wanted: true, states: m.states}
		if old := c.base.models[key]; old != nil {
			*show = *old
			notReady := func(l *versionState) bool { return !l.is(infer.Ready) }
			show.states = mergeStates(slices.DeleteFunc(slices.Clone(old.states), notReady), mergeStates(m.states, old.states))
		}
		shown[key] = show
	}
	c.r.publish(ctx, shown)
}

// load opens the versions of every loading model except ensembles, several concurrently.
func (c *change) load(ctx context.Context) {
	c.announce(ctx)
	inner := c.allowNested(ctx)
	var g errgroup.Group
	g.SetLimit(c.r.s.LoadThreads)
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
	_ = g.Wait() // errors are in the outcomes
	c.endNested()
	for m, list := range all {
		c.record(m, list)
	}
}

// outcome is the result of loading a version: it was opened (v), it stays with other instances (v and u), or it
// failed (err).
type outcome struct {
	v   *version
	u   *update
	err error
}

// loadOrUpdate opens a version, or updates the instances of a version that stays.
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
				m.moved[x.v] = x.u.instances.places()
			}
		} else if x.v != nil && c.staying[m.states[i]] == nil {
			c.opened = append(c.opened, x.v)
		}
	}
}

// open loads one version, with Settings.LoadRetries further attempts. A panic counts as a failure.
func (c *change) open(ctx context.Context, m *model, l *versionState) (*version, error) {
	began := telemetry.Now()
	for try := 0; ; try++ {
		v, err := c.attempt(ctx, m, l)
		if err == nil {
			v.stats.LoadNs.Store(telemetry.Now() - began)
			return v, nil
		}
		if try >= c.r.s.LoadRetries || ctx.Err() != nil {
			return nil, err
		}
		c.r.s.Log.WarnContext(ctx, "loading failed, trying again", slog.String("model", m.name), slog.Int64("version", l.number), slog.String("error", err.Error()))
	}
}

// attempt loads one version. If only instances changed it takes over the open model of the version that serves.
func (c *change) attempt(ctx context.Context, m *model, l *versionState) (v *version, err error) {
	defer recovery.Error(&err, c.r.s.Log, "loading model '"+m.name+"'", slog.String("model", m.name), slog.Int64("version", l.number))
	stats := c.stats(m, l.number)
	if v, err = c.regroup(ctx, m, l, stats); v != nil || err != nil {
		return v, err
	}
	if c.r.memory == nil {
		return c.loadVersion(ctx, m, l, stats)
	}
	err = c.r.memory.fit(ctx, m.key, c.r.wantedInstances(m.folder.cfg).places(), func(ctx context.Context) (err error) {
		defer recovery.Error(&err, c.r.s.Log, "loading model '"+m.name+"'", slog.String("model", m.name), slog.Int64("version", l.number))
		v, err = c.loadVersion(ctx, m, l, stats)
		if err == nil && v.residency != nil { // before other loads look for room; from now on they may evict it
			c.r.memory.add(v.residency)
		}
		return err
	})
	return v, err
}

// loadVersion loads a version of a model of the change.
func (c *change) loadVersion(ctx context.Context, m *model, l *versionState, stats *telemetry.Model) (*version, error) {
	v, err := c.r.loadVersion(ctx, m.folder, l.number, stats)
	if err == nil {
		v.key, v.state = m.key, l
	}
	return v, err
}

// stats returns the counters of a version. A version that replaces another continues its counters, so a reload
// loses no request that the old one still completes.
func (c *change) stats(m *model, number int64) *telemetry.Model {
	if old := c.base.models[m.key]; old != nil {
		if v := old.version(number); v != nil {
			return v.stats
		}
	}
	return &telemetry.Model{Name: m.name, Namespace: spaceOf(m.key), Version: number}
}

// compileOrRevert compiles the ensembles. A serving model that failed to load, or whose new version breaks a
// serving ensemble, stays as it is.
func (c *change) compileOrRevert(ctx context.Context) {
	for key, m := range c.loading {
		if m.err != nil {
			c.keepServing(key, m.err)
		}
	}
	for kept := true; kept; {
		kept = false
		for _, m := range c.compileAll(ctx) { // models that broke serving ensembles are dropped
			for _, key := range c.closure(m.key) {
				kept = c.keepServing(key, m.err) || kept
			}
		}
	}
}

// keepServing drops a model from the change if an old version of it serves. The index shows why. It reports whether
// the model was dropped.
func (c *change) keepServing(key string, why error) bool {
	m, old := c.loading[key], c.base.models[key]
	if m == nil || old == nil || len(old.versions) == 0 {
		return false
	}
	c.note(m, "kept", why.Error(), old.versions, c.since())
	kept := *old
	kept.explicit = m.explicit
	if c.r.s.Mode == Polled { // the next attempt is after the next change of the files
		kept.fingerprint = m.fingerprint
	}
	c.next[key] = &kept
	delete(c.loading, key)
	for _, l := range old.states {
		c.notes[l] = why.Error()
	}
	c.r.s.Metrics.LoadFailed()
	c.r.s.Log.Error("model stays as it is", slog.String("model", m.name), slog.String("reason", why.Error()))
	return true
}

// closure returns the key of an ensemble and of all models it consists of, before and after the change.
func (c *change) closure(key string) []string {
	list := []string{key}
	for i := 0; i < len(list); i++ {
		for _, models := range []map[string]*model{c.base.models, c.next} {
			if m := models[list[i]]; m != nil {
				used := m.dependencies(&c.r.source, models)
				list = append(list, slices.DeleteFunc(used, func(key string) bool { return slices.Contains(list, key) })...)
			}
		}
	}
	return list
}

func (c *change) commit(ctx context.Context) {
	for _, m := range c.next {
		if old := c.base.models[m.key]; old != m {
			c.finish(m, old)
		}
	}
	c.end(ctx, c.next)
}

// finish marks the versions of a model READY, and carries over the states of versions that leave.
func (c *change) finish(m, old *model) {
	m.holdsOverride = m.wanted
	for _, v := range m.versions {
		v.state.set(infer.Ready, "") // one that stays loses the reason of what failed before
	}
	if old != nil {
		leave := slices.DeleteFunc(slices.Clone(old.states), func(l *versionState) bool { return l.is(infer.Unavailable) && m.wanted })
		m.states = mergeStates(m.states, leave)
	}
	c.report(m, c.loading[m.key] != nil && slices.ContainsFunc(m.versions, func(v *version) bool { return c.staying[v.state] == nil }))
}

// reject gives the change up. The index shows why for the named model and for every model that failed.
func (c *change) reject(ctx context.Context, name string, why error) {
	if cause := errors.Unwrap(why); cause != nil {
		why = cause // the index names the model already
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
			c.report(m, true)
		}
	}
	c.end(ctx, shown)
}

// unavailable returns the model as the index shows it when no version of it serves.
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

// cancel gives the change up without a trace in the index.
func (c *change) cancel(ctx context.Context) { c.end(ctx, c.base.models) }

// end publishes models and closes versions and instances that are not used.
func (c *change) end(ctx context.Context, models map[string]*model) {
	for l, reason := range c.notes {
		if l.is(infer.Ready) {
			l.set(infer.Ready, reason)
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
			c.note(u.m, "updated", "", []*version{u.v}, c.since())
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

// report logs what became of a model, and adds it to the journal.
func (c *change) report(m *model, loaded bool) {
	r := c.r
	name := slog.String("model", m.name)
	switch {
	case m.err != nil:
		r.s.Metrics.LoadFailed()
		c.note(m, "failed", m.err.Error(), nil, c.since())
		// Triton's log has the kind of the failure before its text.
		r.s.Log.Error("model is unavailable", name, slog.String("reason", status.CodeOf(m.err).String()+": "+status.Line(m.err.Error())))
	case !m.wanted:
		c.note(m, "unloaded", "", nil, 0)
		r.s.Log.Info("model unloaded", name)
	case loaded:
		took := time.Duration(0)
		for _, v := range m.versions {
			took = max(took, time.Duration(v.stats.LoadNs.Load()))
		}
		c.note(m, "loaded", "", m.versions, int64(took))
		r.s.Log.Info("model loaded", name, slog.Int("versions", len(m.versions)), slog.Duration("took", took))
	}
}
