package repository

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/telemetry"
	"tutti/core/tensor"
	"tutti/scheduler"
)

// loadThreads is how many models load at a time, Triton's default.
const loadThreads = 4

// Settings are what a Repository is opened with.
type Settings struct {
	// Roots are the folders that hold models.
	Roots []string
	// Only, when not nil, names the models to load; what an ensemble among them is
	// made of is loaded too. Nil loads every model.
	Only     []string
	Backends *backends.Registry
	// BackendConfig holds --backend-config values by backend name.
	BackendConfig map[string]map[string]string
	Alloc         tensor.Allocator
	Metrics       *telemetry.Metrics
	Log           *slog.Logger

	_ struct{}
}

// Repository holds every known model. What is served does not change once it is
// open, so requests read it without a lock.
type Repository struct {
	s       Settings
	workers *scheduler.Workers
	models  map[string]*model // complete before the first request
	names   []string          // of models, sorted

	mu     sync.Mutex
	opened map[string]backends.Backend // guarded by mu
}

// model is a model with the versions that serve, or the reason why none does.
type model struct {
	folder *folder
	// versions are the loaded ones, ascending.
	versions []*version
	err      error
}

// version returns the given version, the latest for number <= 0, or nil.
func (m *model) version(number int64) *version {
	if number <= 0 && len(m.versions) > 0 {
		return m.versions[len(m.versions)-1]
	}
	for _, v := range m.versions {
		if v.sig.Version == number {
			return v
		}
	}
	return nil
}

// Open finds and loads the models. A model that cannot be loaded is unavailable and
// does not keep the others from serving; Failures tells which. The error is about
// the repository as a whole: a folder that cannot be read, a name that is not there.
func Open(ctx context.Context, s Settings) (*Repository, error) {
	r := &Repository{s: s, workers: scheduler.NewWorkers(), models: map[string]*model{}, opened: map[string]backends.Backend{}}
	folders, err := scan(s.Roots)
	if err == nil {
		folders, err = selectFolders(folders, s.Only)
	}
	if err != nil {
		r.workers.Close()
		return nil, err
	}
	for _, f := range folders {
		r.models[f.name] = &model{folder: f, err: f.err}
	}
	r.names = slices.Sorted(maps.Keys(r.models))
	r.loadModels(ctx)
	r.compileEnsembles()
	for _, name := range r.names {
		r.report(r.models[name])
	}
	return r, nil
}

// selectFolders keeps the named models and what they are made of.
func selectFolders(all []*folder, only []string) ([]*folder, error) {
	if only == nil {
		return all, nil
	}
	byName := map[string]*folder{}
	for _, f := range all {
		byName[f.name] = f
	}
	var kept []*folder
	var keep func(name string)
	keep = func(name string) {
		f := byName[name]
		if f == nil || slices.Contains(kept, f) {
			return
		}
		kept = append(kept, f)
		for _, st := range f.cfg.GetEnsembleScheduling().GetStep() {
			keep(st.GetModelName())
		}
	}
	for _, name := range only {
		if byName[name] == nil {
			return nil, fmt.Errorf("failed to load '%s', failed to poll from model repository", name)
		}
		keep(name)
	}
	return kept, nil
}

// loadModels loads every model that is no ensemble, several at a time.
func (r *Repository) loadModels(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(loadThreads)
	for _, m := range r.models {
		if m.err != nil || config.IsEnsemble(m.folder.cfg) {
			continue
		}
		g.Go(func() error {
			began := time.Now()
			for _, number := range m.folder.versions {
				v, err := r.loadVersion(ctx, m.folder, number)
				if err != nil {
					m.err = errors.Join(m.err, err)
					continue
				}
				m.versions = append(m.versions, v)
			}
			if len(m.versions) == 0 {
				return nil // report says why
			}
			r.s.Log.InfoContext(ctx, "model loaded", slog.String("model", m.folder.name), slog.Int("versions", len(m.versions)), slog.Duration("took", time.Since(began)))
			return nil
		})
	}
	_ = g.Wait() // every failure is kept with its model
}

// compileEnsembles compiles the ensembles; nested ones are inlined, so their order
// does not matter.
func (r *Repository) compileEnsembles() {
	for _, name := range r.names {
		m := r.models[name]
		if m.err != nil || !config.IsEnsemble(m.folder.cfg) {
			continue
		}
		for _, number := range m.folder.versions {
			v, err := r.compile(m.folder, number)
			if err != nil {
				m.err = errors.Join(m.err, err)
				continue
			}
			m.versions = append(m.versions, v)
		}
	}
}

// report says how loading a model ended and starts exporting its metrics.
func (r *Repository) report(m *model) {
	if m.err != nil {
		r.s.Log.Error("model is unavailable", slog.String("model", m.folder.name), slog.String("reason", m.err.Error()))
	}
	for _, v := range m.versions {
		r.s.Metrics.Add(v.stats)
	}
}

// Failure is a model that does not serve.
type Failure struct {
	Model string
	Dir   string
	Err   error
}

// Failures returns the models of which a version does not serve, by name.
func (r *Repository) Failures() []Failure {
	var list []Failure
	for _, name := range r.names {
		if m := r.models[name]; m.err != nil {
			list = append(list, Failure{Model: name, Dir: m.folder.dir, Err: m.err})
		}
	}
	return list
}

// Check returns every problem that a model's configuration shows by itself, for
// reporting all at once what loading reports one at a time.
func (r *Repository) Check(name string) []error {
	if m := r.models[name]; m != nil && m.folder.cfg != nil {
		return config.Check(m.folder.cfg)
	}
	return nil
}

// Models returns the names of all models, sorted.
func (r *Repository) Models() []string { return r.names }

// Close waits until the requests under way are answered, or ctx is over, and frees
// everything. The front ends have stopped sending requests before.
func (r *Repository) Close(ctx context.Context) error {
	var errs []error
	r.each(func(v *version) { errs = append(errs, v.exec.Drain(ctx)) })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("requests are still under way: %w", err)
	}
	r.workers.Close()
	r.each(func(v *version) {
		r.s.Metrics.Remove(v.stats)
		errs = append(errs, v.close())
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, b := range r.opened {
		errs = append(errs, b.Close())
		delete(r.opened, name)
	}
	return errors.Join(errs...)
}

func (r *Repository) each(f func(*version)) {
	for _, name := range r.names {
		for _, v := range r.models[name].versions {
			f(v)
		}
	}
}

// find returns the version that serves a request, with Triton's words when there is none.
//
// hot: one map lookup.
func (r *Repository) find(name string, number int64) (*version, error) {
	m := r.models[name]
	if m == nil {
		return nil, status.Errorf(status.InvalidArg, "Request for unknown model: '%s' is not found", name)
	}
	if v := m.version(number); v != nil {
		return v, nil
	}
	if number > 0 {
		if m.folder.cfg != nil && slices.Contains(m.folder.versions, number) {
			return nil, status.Errorf(status.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", name, number)
		}
		return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' version %d is not found", name, number)
	}
	return nil, status.Errorf(status.NotFound, "Request for unknown model: '%s' has no available versions", name)
}
