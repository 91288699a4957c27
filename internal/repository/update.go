package repository

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
)

// update changes the instances of a version that goes on serving: what its new instance
// groups ask for and it has stays, what it lacks is made before anything changes, and what
// it has too much goes once it is not in use any more. The queue and the statistics go on,
// and so do the ensembles over the version.
type update struct {
	m         *model // that the version belongs to once the change is made
	v         *version
	config    *modelconfig.ModelConfig
	instances instances // from then on
	added     instances
	gone      instances
}

// stays returns the version that serves under a number if it can go on as m's: nothing else
// changes than its instances, and its scheduler allows that. Else it returns nil.
func (c *change) staysOpen(f *folder, number int64) *version {
	v := c.served(f, number)
	if v == nil {
		return nil
	}
	seats := c.r.specsOf(f, v.model)
	_, missing, gone := v.instances.match(seats)
	if len(missing)+len(gone) == 0 || v.resizes(seats) {
		return v
	}
	return nil
}

// resizes reports whether the version's scheduler can serve with other instances. Those of a
// concurrent model have no state, so that nothing is lost when all are made anew; and only
// sequences need instances where none were.
func (v *version) resizes(seats []instanceSpec) bool {
	if _, ok := v.inner.(scheduler.Resizable); !ok || countInstances(seats) == 0 {
		return false
	}
	if v.cfg.GetSequenceBatching() != nil {
		return true
	}
	return !v.shared() && samePlaces(placesOf(v.instances.specs()), placesOf(seats))
}

// samePlaces reports whether two lists have the same places.
func samePlaces(a, b []tensor.Place) bool {
	within := func(list []tensor.Place) func(tensor.Place) bool {
		return func(p tensor.Place) bool { return !slices.Contains(list, p) }
	}
	return !slices.ContainsFunc(a, within(b)) && !slices.ContainsFunc(b, within(a))
}

// seats returns those of the units.
func (list instances) specs() []instanceSpec {
	seats := make([]instanceSpec, len(list))
	for i := range list {
		seats[i] = list[i].instanceSpec
	}
	return seats
}

// match finds the units that seats ask for, the seats for which there is none, and the units
// that nothing asks for.
func (list instances) match(seats []instanceSpec) (kept instances, missing []instanceSpec, gone instances) {
	gone = slices.Clone(list)
	for _, s := range seats {
		i := slices.IndexFunc(gone, func(u instance) bool { return u.equivalent(&s) })
		if i < 0 {
			missing = append(missing, s)
			continue
		}
		kept = append(kept, gone[i])
		gone = slices.Delete(gone, i, i+1)
	}
	return kept, missing, gone
}

// like reports whether a seat asks for an instance as s is: what it is called, and how many
// there are, makes no difference.
func (s *instanceSpec) equivalent(o *instanceSpec) bool {
	return s.place == o.place && proto.Equal(unnamed(s.group), unnamed(o.group))
}

// unnamed returns a group without what it says of several instances.
func unnamed(g *modelconfig.ModelInstanceGroup) *modelconfig.ModelInstanceGroup {
	g = proto.CloneOf(g)
	g.Name, g.Count, g.Gpus = "", 0, nil // a seat has its own place
	return g
}

// update makes the instances that a version which stays lacks.
func (c *change) update(ctx context.Context, m *model, v *version) (u *update, err error) {
	defer recovery.Error(&err, c.r.s.Log, "updating the instances of model '"+m.name+"'", slog.String("model", m.name), slog.Int64("version", v.sig.Version))
	f := m.folder.completedBy(v.model)
	kept, missing, gone := v.instances.match(c.r.specsOf(m.folder, v.model))
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

// discard closes what was made in vain.
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

// apply makes the change. It never fails.
func (r *Repository) apply(ctx context.Context, u *update) {
	v := u.v
	v.shownConfig.Store(u.config)
	v.instances = u.instances
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

// closeUnit closes an instance that was removed and is not in use any more.
func (r *Repository) closeRemoved(ctx context.Context, v *version, x instance) {
	defer v.removing.Add(-1)
	x.limiter.Close()
	if v.shared() {
		return // it may stand for others
	}
	if err := r.closeInstance(v, x.inst); err != nil {
		r.closeFailed(ctx, v, err)
	}
}

// closeInstance closes an instance of a version; a panic is an error.
func (r *Repository) closeInstance(v *version, inst backends.Instance) (err error) {
	defer recovery.Error(&err, r.s.Log, "closing an instance of model '"+v.sig.Model+"'", slog.String("model", v.sig.Model), slog.Int64("version", v.sig.Version))
	return inst.Close()
}

// removeWait bounds how long a load waits for instances that it removed.
const removeWait = 30 * time.Second

// settled waits until the instances are closed that changes removed, so that what loads a
// model may count on it; not for those that have sequences, and not for longer than
// removeWait, for a request may take any time.
func (r *Repository) waitRemoved(ctx context.Context, updates []*update) {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	for _, u := range updates {
		if u.v.cfg.GetSequenceBatching() != nil {
			continue
		}
		if err := u.v.removing.Wait(ctx); err != nil {
			r.s.Log.WarnContext(ctx, "a removed instance is still in use, it is closed when its requests have ended",
				slog.String("model", u.v.sig.Model), slog.Int64("version", u.v.sig.Version))
		}
	}
}
