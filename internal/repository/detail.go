package repository

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/scheduler/batch"
)

var _ inspect.Details = (*Repository)(nil)

// detailWait is how long Detail waits for a change of the repository before it leaves the instances out.
const detailWait = 100 * time.Millisecond

// Detail implements inspect.Details. A model of which only the folder is known was never loaded.
func (r *Repository) Detail(ctx context.Context, name string) (*inspect.ModelDetail, error) {
	s := r.catalog.Load()
	m := s.called[name]
	switch {
	case m == nil:
		return r.unopened(name)
	case m.sharedBy > 0:
		return nil, m.ambiguous()
	}
	d := &inspect.ModelDetail{
		Name: name, Ensemble: m.folder.cfg != nil && m.ensemble(), Override: m.folder.override, UsedBy: []string{},
		Versions: []inspect.VersionDetail{}, Loads: r.journal.of(m.key),
	}
	if m.folder.overrideDir == nil {
		d.Dir = m.folder.dir
		d.Changed = !m.folder.override && r.filesChanged(m)
	}
	if v := m.version(0); v != nil {
		if cfg := v.shownConfig.Load(); cfg != nil {
			d.Served, _ = config.JSON(cfg) // what was loaded can be written
		} else {
			d.Served, _ = config.JSON(v.cfg)
		}
	}
	r.written(d, m)
	for _, key := range s.keys {
		if x := s.models[key]; x.wanted && key != m.key && slices.Contains(x.dependencies(&r.source, s.models), m.key) {
			d.UsedBy = append(d.UsedBy, nameOf(key))
		}
	}
	for _, l := range m.states {
		now := r.condition(m, l)
		d.Versions = append(d.Versions, inspect.VersionDetail{Version: strconv.FormatInt(l.number, 10), State: string(now.state), Reason: now.reason})
	}
	if len(m.states) == 0 && m.err != nil {
		d.Versions = append(d.Versions, inspect.VersionDetail{State: "UNAVAILABLE", Reason: m.err.Error()})
	}
	r.live(ctx, d, m)
	return d, nil
}

// unopened describes a model of which only the folder is known.
func (r *Repository) unopened(name string) (*inspect.ModelDetail, error) {
	var list []location
	if plainName(name) {
		list = r.source.findAll(name)
	}
	if len(list) == 0 {
		return nil, status.Errorf(status.NotFound, "model '%s' is not found", name)
	}
	m := &model{key: list[0].key, name: name, folder: &folder{name: name, key: list[0].key, dir: list[0].dir}}
	d := &inspect.ModelDetail{Name: name, Dir: list[0].dir, UsedBy: []string{}, Versions: []inspect.VersionDetail{}, Loads: r.journal.of(m.key)}
	r.written(d, m)
	return d, nil
}

// filesChanged reports whether the files of a model in a folder are others than those that were loaded.
func (r *Repository) filesChanged(m *model) bool {
	return slices.ContainsFunc(r.source.findAll(m.name), func(p location) bool {
		return p.key == m.key && p.bucket == nil && m.folder.fingerprint != 0 && fingerprint(p) != m.folder.fingerprint
	})
}

// written adds the configuration as its file has it.
func (r *Repository) written(d *inspect.ModelDetail, m *model) {
	if m.folder.override || m.folder.overrideDir != nil {
		d.WrittenError = "the configuration came with a load request"
		return
	}
	from := config.Source{Dir: m.folder.dir, Name: m.name, ConfigName: r.source.configName}
	cfg, _, err := from.Open()
	if err == nil {
		var b json.RawMessage
		if b, err = config.JSON(cfg); err == nil {
			d.Written = b
			return
		}
	}
	d.WrittenError = status.Text(err)
}

// live adds what the versions do now, and their instances unless the repository is changed meanwhile.
func (r *Repository) live(ctx context.Context, d *inspect.ModelDetail, m *model) {
	ctx, cancel := context.WithTimeout(ctx, detailWait)
	defer cancel()
	locked := r.changes.lock(ctx) == nil
	if locked {
		defer r.changes.unlock()
	}
	for i := range d.Versions {
		x := &d.Versions[i]
		at := slices.IndexFunc(m.versions, func(v *version) bool { return strconv.FormatInt(v.sig.Version, 10) == x.Version })
		if at < 0 {
			continue
		}
		v := m.versions[at]
		l := v.load()
		x.Queued, x.Running, x.Utilization = v.stats.Pending(), l.Running, l.Utilization
		if locked && !d.Ensemble {
			x.Instances = v.instanceViews()
		}
	}
}

// instanceViews returns the instances of a version, nil while it is evicted or loaded again. The caller holds Repository.changes.
func (v *version) instanceViews() (views []inspect.InstanceView) {
	if x := v.residency; x != nil {
		if !x.use.TryRLock() { // it is being evicted or loaded
			return nil
		}
		defer x.use.RUnlock()
	}
	for i := range v.instances {
		u := &v.instances[i]
		if i > 0 && u.name == v.instances[i-1].name && u.place == v.instances[i-1].place && batch.Same(u.inst, v.instances[i-1].inst) {
			views[len(views)-1].Count++
			continue
		}
		x := inspect.InstanceView{Name: u.name, Kind: u.group.GetKind().String(), Place: u.place.String(), Count: 1, Passive: u.group.GetPassive()}
		if p := backends.RecyclerOf(u.inst); p != nil {
			x.Process, x.Alive, x.Memory = true, p.Alive(), p.Resident()
		}
		views = append(views, x)
	}
	return views
}
