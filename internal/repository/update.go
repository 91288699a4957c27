package repository

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
)

// update changes the instances of a version that continues to serve. Instances that the new groups still ask for
// stay. Missing ones are made before anything changes; surplus ones are removed when they are idle. The queue, the
// statistics and the ensembles over the version are not touched.
type update struct {
	m         *model // the version's model after the change
	v         *version
	config    *modelconfig.ModelConfig
	instances instances // after the change
	added     instances
	gone      instances
}

// staysOpen returns the serving version with this number if it can continue as a version of f: only its instances
// differ and its scheduler can be resized. Else it returns nil.
func (c *change) staysOpen(f *folder, number int64) *version {
	v := c.served(f, number)
	if v == nil {
		return nil
	}
	wanted := c.r.wantedBy(f, v.model)
	_, missing, gone := v.instances.match(wanted)
	if len(missing)+len(gone) == 0 || v.resizes(wanted) {
		return v
	}
	return nil
}

// resizes reports whether the version's scheduler can continue with other instances. The instances of a concurrent
// model have no state, so they can be made again. Only sequence models gain from keeping the scheduler when places
// change.
func (v *version) resizes(wanted instances) bool {
	if _, ok := v.inner.(scheduler.Resizable); !ok || len(wanted.active()) == 0 {
		return false
	}
	return v.cfg.GetSequenceBatching() != nil || !v.shared() && samePlaces(v.instances.places(), wanted.places())
}

// samePlaces reports whether two lists without duplicates hold the same places, in any order.
func samePlaces(a, b []tensor.Place) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p tensor.Place) bool { return !slices.Contains(b, p) })
}

// match compares instances with those that a configuration asks for: kept, missing and surplus instances.
func (list instances) match(wanted instances) (kept, missing, gone instances) {
	gone = slices.Clone(list)
	for _, s := range wanted {
		i := slices.IndexFunc(gone, func(u instance) bool { return u.place == s.place && proto.Equal(unnamed(u.group), unnamed(s.group)) })
		if i < 0 {
			missing = append(missing, s)
			continue
		}
		kept = append(kept, gone[i])
		gone = slices.Delete(gone, i, i+1)
	}
	return kept, missing, gone
}

// unnamed returns a group without name, count and list of GPUs.
func unnamed(g *modelconfig.ModelInstanceGroup) *modelconfig.ModelInstanceGroup {
	g = proto.CloneOf(g)
	g.Name, g.Count, g.Gpus = "", 0, nil // each spec has one place
	return g
}

// update makes the missing instances of a version that stays.
func (c *change) update(ctx context.Context, m *model, v *version) (u *update, err error) {
	defer recovery.Error(&err, c.r.s.Log, "updating the instances of model '"+m.name+"'", slog.String("model", m.name), slog.Int64("version", v.sig.Version))
	f := m.folder.completedBy(v.model)
	kept, missing, gone := v.instances.match(c.r.wantedBy(m.folder, v.model))
	u = &update{m: m, v: v, config: config.Complete(f.cfg, v.sig), gone: gone}
	if u.added, err = c.r.newInstances(ctx, v.model, missing, kept); err != nil {
		return nil, err
	}
	if err = c.r.limit(v.model, u.added); err == nil {
		err = c.r.prepare(ctx, f, v, u.added.active())
	}
	if err != nil {
		return nil, errors.Join(err, u.discard())
	}
	u.instances = slices.Concat(kept, u.added)
	return u, nil
}

// discard closes the added instances of a change that was rejected.
func (u *update) discard() error {
	var errs []error
	for i := range u.added {
		x := &u.added[i]
		x.limiter.Close()
		if !slices.ContainsFunc(u.v.instances, func(y instance) bool { return y.inst == x.inst }) { // one may stand for several
			errs = append(errs, x.inst.Close())
		}
	}
	return errors.Join(errs...)
}

// apply carries out the update. It cannot fail.
func (r *Repository) apply(ctx context.Context, u *update) {
	v := u.v
	v.shownConfig.Store(u.config)
	v.instances, v.lost = u.instances, nil // one at a lost device cannot be made
	if len(u.added)+len(u.gone) == 0 {
		return
	}
	queue, resizable := v.inner.(scheduler.Resizable)
	if added := u.added.active(); len(added) > 0 {
		queue.Add(added.backends(), added.limiters())
	}
	ctx = context.WithoutCancel(ctx)
	for _, x := range u.gone {
		v.removing.Add(1)
		if v.shared() {
			v.removed = append(v.removed, x.inst)
		}
		closed := func() { r.closeRemoved(ctx, v, x) }
		if resizable && !x.group.GetPassive() {
			queue.Remove(x.inst, func() { go closed() })
		} else {
			go closed()
		}
	}
	r.s.Log.InfoContext(ctx, "instances changed", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version),
		slog.Int("added", len(u.added)), slog.Int("removed", len(u.gone)))
}

func (r *Repository) closeRemoved(ctx context.Context, v *version, x instance) {
	defer v.removing.Add(-1)
	x.limiter.Close()
	if v.shared() {
		return // closed with the version
	}
	if err := r.closeInstance(v, x.inst); err != nil {
		r.closeFailed(ctx, v, err)
	}
}

// closeInstance closes a backend instance. A panic is an error.
func (r *Repository) closeInstance(v *version, inst backends.Instance) (err error) {
	defer recovery.Error(&err, r.s.Log, "closing an instance of model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	return inst.Close()
}

// removeWait is the longest time that a load waits for removed instances.
const removeWait = 30 * time.Second

// waitRemoved waits until removed instances are closed, at most removeWait, so that a client that loads a model can
// rely on it. It does not wait for sequence models, whose instances serve until their sequences end.
func (r *Repository) waitRemoved(ctx context.Context, updates []*update) {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	for _, u := range updates {
		if u.v.cfg.GetSequenceBatching() == nil && u.v.removing.Wait(ctx) != nil {
			r.s.Log.WarnContext(ctx, "a removed instance is still in use, it is closed when its requests have ended",
				slog.String("model", u.v.sig.Model), slog.Int64("version", u.v.sig.Version))
		}
	}
}

// contents returns a fingerprint for each version: of the files in its folder and of the model's other files,
// without configurations and other versions. It is never 0.
func contents(dir string, versions []int64) map[int64]uint64 {
	shared := fnv.New64a()
	w := &walk{out: shared, skip: func(name string) bool {
		_, version := config.VersionOf(name)
		return version || name == config.FileName || name == "configs"
	}}
	w.folder(dir, 0)
	prints := make(map[int64]uint64, len(versions))
	for _, n := range versions {
		h := fnv.New64a()
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, shared.Sum64())) // a hash takes everything
		w := &walk{out: h}
		w.folder(filepath.Join(dir, strconv.FormatInt(n, 10)), 1)
		prints[n] = max(1, h.Sum64())
	}
	return prints
}

// sameModel reports whether the version has the same files and the same configuration in both folders. Instance
// groups and the version policy are ignored.
func (v *version) sameModel(was, now *folder) bool {
	n := v.sig.Version
	if was.overrideDir != nil || now.overrideDir != nil || was.dir != now.dir || was.contents[n] == 0 || was.contents[n] != now.contents[n] {
		return false
	}
	cfg := ungrouped(now.cfg)
	return proto.Equal(ungrouped(was.cfg), cfg) || proto.Equal(ungrouped(v.cfg), cfg) // a client may send back the completed configuration
}

// ungrouped returns a configuration without the parts that may change while the model is open.
func ungrouped(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	rest := proto.CloneOf(cfg)
	rest.InstanceGroup, rest.VersionPolicy = nil, nil
	return rest
}

// regroup returns a version with new instances of the model that the serving version has open, or nil if the model
// must be loaded. Both versions hold the model.
func (c *change) regroup(ctx context.Context, m *model, l *versionState, stats *telemetry.Model) (*version, error) {
	old := c.served(m.folder, l.number)
	if old == nil {
		return nil, nil //nolint:nilnil // there is nothing to use again
	}
	old.holders.Add(1)
	v, err := c.r.assemble(ctx, m.folder, old.model, stats)
	if err != nil {
		return nil, errors.Join(err, old.release())
	}
	v.key, v.state, v.holders = m.key, l, old.holders
	c.r.s.Log.DebugContext(ctx, "instances made anew", slog.String("model", m.name), slog.Int64("version", l.number))
	return v, nil
}

// served returns the serving version with this number if a folder has the same model, else nil. A model that may be evicted is loaded
// anew: its parts may leave at any time.
func (c *change) served(f *folder, number int64) *version {
	was := c.base.models[f.key]
	if was == nil || was.folder.cfg == nil || was.ensemble() {
		return nil
	}
	if v := was.version(number); v != nil && v.residency == nil && v.sameModel(was.folder, f) {
		return v
	}
	return nil
}

// release gives up the model. The last holder closes it.
func (v *version) release() error {
	if v.holders.Add(-1) > 0 {
		return nil
	}
	return v.model.Close()
}
