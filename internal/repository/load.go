package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// version is one loaded version of a model.
type version struct {
	key         string                   // of the model
	cfg         *modelconfig.ModelConfig // completed
	sig         *config.Signature
	full        *config.Signature // with sequence controls and states
	description *infer.Description
	precision   string // see backends.PreciseModel
	stats       *telemetry.Model
	exec        *exec.Executor
	// responseCache is in front of exec, for an ensemble with response_cache; else nil.
	responseCache *exec.ResponseCache
	identity      cache.Key // part of the keys of cached responses
	dir           string    // of the model
	fingerprint   []byte    // see Fingerprint; nil until it is asked for. Guarded by prints.mu.
	state         *versionState
	overrideDir   *overrideDir // retained once unless nil
	// queue and model are nil for an ensemble. inner is queue without the response cache.
	queue, inner scheduler.Scheduler
	model        backends.Model
	watch        *batch.Watch   // nil: executions may take any time. See watched
	padding      *batch.Padding // nil: no padding
	places       []tensor.Place // those of the instances at load. Nil: the host.
	holders      *atomic.Int32  // counts the versions that share model
	// residency evicts and loads model, instances, holders and inner while the version serves, and guards them then; nil: they stay.
	residency *residency
	held      *fitting       // keeps the requests of an ensemble back, nil for none; guarded by memory.mu
	instances instances      // guarded by Repository.changes
	lost      []tensor.Place // devices whose instances are closed because they are lost; guarded by Repository.changes
	// removing counts removed instances that are not closed yet. removed are instances that are closed with the
	// version.
	removing    pending.Count
	removed     []backends.Instance
	shownConfig atomic.Pointer[modelconfig.ModelConfig] // cfg with the present instance groups
	// uses are the versions that an ensemble calls. users counts the ensembles that call this version: it must
	// outlive them.
	uses  []*version
	users pending.Count
}

// loadVersion opens one version of a model that is not an ensemble. stats counts its requests.
func (r *Repository) loadVersion(ctx context.Context, f *folder, number int64, stats *telemetry.Model) (*version, error) {
	dir := filepath.Join(f.dir, strconv.FormatInt(number, 10))
	b, factory, err := r.backend(f.cfg, f.dir, dir)
	if err != nil {
		return nil, err
	}
	wanted := r.wantedInstances(f.cfg)
	settings := backends.Settings{
		Model: f.name, Version: number,
		ModelDir: f.dir, Dir: dir,
		Config: config.WithSequence(f.cfg), Declared: f.cfg, Instances: max(1, len(wanted.active())), Strict: r.s.StrictConfig, Alloc: r.s.Alloc,
		Copied: func(name string, from, to tensor.Place, bytes int) {
			stats.Copies.Count(name, from, to, telemetry.ForProcess, 1, bytes)
		},
		Log: r.s.Log.With(slog.String("model", f.name), slog.Int64("version", number)),
	}
	if settings.Filename, err = r.fileOf(f.cfg, wanted); err != nil {
		return nil, err
	}
	if err := runAgents(f.dir, f.cfg); err != nil {
		return nil, err
	}
	if slices.Contains(factory.Params, precision.FidelityKey) {
		if err := precision.Gate(f.cfg, number, settings.Dir, f.dir, precision.Machine()); err != nil {
			return nil, err
		}
	}
	var model backends.Model
	err = wanted[0].policy.Do(func() (err error) {
		model, err = b.Load(ctx, settings)
		return err
	})
	if err != nil {
		return nil, err
	}
	v, err := r.assemble(ctx, f, model, stats)
	if err != nil {
		return nil, errors.Join(err, model.Close())
	}
	v.holders = new(atomic.Int32)
	v.holders.Store(1)
	if v.residency != nil {
		v.residency.f = f
	}
	r.s.Log.DebugContext(ctx, "model loaded", slog.String("model", f.name), slog.Int64("version", number), slog.String("backend", factory.Name))
	return v, nil
}

// assemble makes the instances, scheduler and executor of a loaded model.
func (r *Repository) assemble(ctx context.Context, f *folder, model backends.Model, stats *telemetry.Model) (*version, error) {
	f = f.completedBy(model)
	if r.s.StrictConfig {
		if err := declared(f.cfg, model.Signature()); err != nil {
			return nil, err
		}
	}
	full, err := config.Agree(config.WithSequence(f.cfg), model.Signature())
	if err != nil {
		return nil, err
	}
	full.Version = stats.Version
	sig, err := config.HideSequence(f.cfg, full)
	if err != nil {
		return nil, err
	}
	if err := config.ReadLabels(f.cfg, f.dir, sig); err != nil {
		return nil, err
	}
	complete := config.Complete(f.cfg, sig)
	if err := config.CheckAPIs(complete); err != nil {
		return nil, err
	}
	v := &version{
		dir: f.dir, cfg: complete, sig: sig, full: full, description: newDescription(sig, f.cfg), model: model,
		stats: stats, overrideDir: f.overrideDir, instances: r.wantedBy(f, model),
	}
	if p, ok := model.(backends.PreciseModel); ok {
		v.precision = p.Precision()
	}
	v.shownConfig.Store(v.cfg)
	if _, ok := model.(backends.DeviceModel); ok {
		v.places = v.instances.places()
	}
	if v.queue, err = r.newScheduler(ctx, f, v); err != nil {
		v.watch.Close()
		return nil, err
	}
	alone := plan.Single(sig)
	alone.Nodes[0].Precision = v.precision
	if v.edge() { // without neighbours it runs on the host
		alone.Nodes[0].Places = v.places
	}
	v.exec = exec.New(exec.Settings{
		Plan: alone, Targets: []scheduler.Scheduler{v.queue}, Stats: v.stats, Workers: r.workers, Mover: r.mover, Tracer: r.s.Tracer,
	})
	v.overrideDir.retain()
	return v, nil
}

// completedBy returns the folder with the configuration as the model completed it. The instance groups remain the
// folder's, because they may change while a model is loaded.
func (f *folder) completedBy(m backends.Model) *folder {
	c, ok := m.(backends.ConfigCompleter)
	if !ok || c.CompletedConfig() == nil {
		return f
	}
	done := *f
	done.cfg = proto.CloneOf(c.CompletedConfig())
	done.cfg.InstanceGroup = f.cfg.InstanceGroup
	return &done
}

// declared rejects a configuration without inputs or outputs where the model has some.
func declared(cfg *modelconfig.ModelConfig, sig *config.Signature) error {
	const text = "unable to load model '%s', configuration expects 0 %s, model provides %d"
	switch {
	case len(cfg.GetInput()) == 0 && len(sig.Inputs) > 0:
		return status.Errorf(status.InvalidArg, text, cfg.GetName(), "inputs", len(sig.Inputs))
	case len(cfg.GetOutput()) == 0 && len(sig.Outputs) > 0:
		return status.Errorf(status.InvalidArg, text, cfg.GetName(), "outputs", len(sig.Outputs))
	}
	return nil
}

// capable is an accelerator with a compute capability. For example, 9.0.
type capable interface{ Capability() (major, minor int) }

// fileOf returns the file of cc_model_filenames for the devices of the instances, "" for the default one. The model is loaded once, so
// devices with different files are an error.
func (r *Repository) fileOf(cfg *modelconfig.ModelConfig, list instances) (file string, err error) {
	if len(cfg.GetCcModelFilenames()) == 0 {
		return "", nil
	}
	for i, u := range list {
		name, text := "", u.place.String()
		if d, ok := r.places.Device(u.place).(capable); ok {
			major, minor := d.Capability()
			text = fmt.Sprintf("%s of compute capability %d.%d", text, major, minor)
			name = cfg.GetCcModelFilenames()[fmt.Sprintf("%d.%d", major, minor)]
		}
		if i > 0 && name != file {
			return "", status.Errorf(status.Unsupported, "model '%s': cc_model_filenames gives '%s' for %s and '%s' for its other instances; expected one file: put them into models of their own",
				cfg.GetName(), cmp.Or(name, cfg.GetDefaultModelFilename()), text, cmp.Or(file, cfg.GetDefaultModelFilename()))
		}
		file = name
	}
	return file, nil
}

// backend returns the backend of a model: one that adopts it, or the one that its configuration names. It is opened at its first use. dir is
// the folder of the version.
func (r *Repository) backend(cfg *modelconfig.ModelConfig, modelDir, dir string) (backends.Backend, *backends.Factory, error) {
	f := r.s.Backends.For(cfg, modelDir, dir, r.s.BackendConfig)
	if f == nil {
		return nil, nil, config.UnknownBackend(cfg.GetName(), cmp.Or(cfg.GetBackend(), cfg.GetPlatform()), "backend", r.s.Backends.Names())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.opened[f.Name]; b != nil {
		return b, f, nil
	}
	b, err := f.New(backends.Options{
		Log: r.s.Log.With(slog.String("backend", f.Name)), Config: r.s.BackendConfig[f.Name],
		Others: r.s.BackendConfig, Places: r.places, Infer: r, Control: r, Catalog: r, Metrics: r.s.Metrics, Isolate: r.s.Isolate, Crashes: r.s.Crashes,
	})
	if err != nil {
		return nil, nil, err
	}
	r.opened[f.Name] = b
	return b, f, nil
}

func (v *version) close(ctx context.Context) error {
	var errs []error
	switch {
	case v.residency != nil:
		errs = append(errs, v.queue.Close(), v.residency.close(ctx))
	case v.queue != nil:
		errs = append(errs, v.closeModel(ctx, v.queue))
	}
	for _, used := range v.uses {
		used.residency.unpin(v)
		used.users.Add(-1)
	}
	return errors.Join(append(errs, v.overrideDir.release())...)
}

// closeModel closes the scheduler, the instances and the model.
func (v *version) closeModel(ctx context.Context, queue scheduler.Scheduler) error {
	errs := []error{queue.Close(), v.removing.Wait(context.WithoutCancel(ctx))}
	for _, u := range v.instances { // the scheduler closed the active ones
		u.limiter.Close()
		if u.group.GetPassive() {
			errs = append(errs, u.inst.Close())
		}
	}
	for _, inst := range v.removed {
		errs = append(errs, inst.Close())
	}
	v.watch.Close()
	return errors.Join(append(errs, v.release())...)
}

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
		m.states = append(m.states, newVersionState(n))
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
	return slices.ContainsFunc(config.StepModels(m.folder.cfg), func(st *modelconfig.ModelEnsembling_Step) bool {
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
	if err := config.CheckAPIs(p.Config); err != nil {
		return nil, err
	}
	v = &version{
		key: m.key, dir: m.folder.dir, cfg: p.Config, sig: p.Signature, description: newDescription(p.Signature, p.Config), state: l,
		stats: c.stats(m, l.number), overrideDir: m.folder.overrideDir,
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range p.Nodes {
		if p.Nodes[i].Operation != nil {
			continue
		}
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
		Tracer: c.r.s.Tracer, Log: c.r.s.Log, Alloc: c.r.s.Alloc, Submit: c.r.Submit,
		TimeoutPerStep: c.r.s.TimeoutPerStep,
	}
	v.exec = exec.New(settings)
	for _, used := range v.uses {
		used.residency.pin(v)
	}
	if err := c.r.addResponseCache(m.folder, v); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	settings.Stats = &telemetry.Model{Name: m.name, Version: l.number}
	if err := c.r.checkGoldens(ctx, m.folder, v, &dryRun{exec: exec.New(settings)}); err != nil {
		return nil, errors.Join(err, v.close(ctx))
	}
	return v, nil
}
