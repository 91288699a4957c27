package repository

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// watchDevices closes the instances at a device when it is lost. Nothing makes instances there again: after the errors that lose a
// device, CUDA asks for another process.
func (r *Repository) watchDevices(ctx context.Context) {
	for _, d := range r.s.Accelerators {
		if l, ok := d.(interface{ OnLost(f func(error)) }); ok {
			at := d.Place()
			l.OnLost(func(err error) { r.recycle(ctx, at, err) })
		}
	}
}

// recycle takes the instances at a lost device from their schedulers, and closes each when its batch has ended. It waits for a change of
// the models that is in progress.
func (r *Repository) recycle(ctx context.Context, at tensor.Place, why error) {
	if r.changes.lock(ctx) != nil {
		return
	}
	defer r.changes.unlock()
	if r.closed {
		return
	}
	s := r.catalog.Load()
	for _, key := range s.keys {
		for _, v := range s.models[key].versions {
			r.loseInstances(ctx, v, at, why)
		}
	}
}

// loseInstances closes the instances of a version at a lost device. Called with the lock for changes held.
func (r *Repository) loseInstances(ctx context.Context, v *version, at tensor.Place, why error) {
	inner := v.inner
	if x := v.residency; x != nil {
		x.op.Lock()
		defer x.op.Unlock()
		if inner = x.inner; inner == nil { // it has no instances while it is evicted
			return
		}
	}
	gone := slices.DeleteFunc(slices.Clone(v.instances), func(u instance) bool { return u.executesAt() != at })
	if len(gone) == 0 {
		return
	}
	v.instances = slices.DeleteFunc(slices.Clone(v.instances), func(u instance) bool { return u.executesAt() == at })
	v.lost = append(v.lost, at)
	if len(v.instances.active()) == 0 {
		why = noOtherPlace(v, why)
	}
	c := &recycling{r: r, v: v, at: at, left: len(gone), all: len(gone)}
	v.removing.Add(len(gone))
	queue, losing := inner.(scheduler.Losing)
	for _, u := range gone {
		if u.group.GetPassive() || !losing {
			go c.close(ctx, u)
		}
	}
	if !losing {
		return
	}
	queue.Lose(at, why, func(inst backends.Instance) {
		i := slices.IndexFunc(gone, func(u instance) bool { return batch.Same(u.inst, inst) })
		go c.close(ctx, gone[i])
	})
}

// noOtherPlace returns why a version cannot serve whose last place is lost.
func noOtherPlace(v *version, why error) error {
	return status.Prefixf(why, "model '%s' has no other place: ", v.sig.Model)
}

// recycling closes the instances of a version at a lost device.
type recycling struct {
	r   *Repository
	v   *version
	at  tensor.Place
	all int

	mu     sync.Mutex
	left   int     // guarded by mu
	failed []error // of different texts, guarded by mu
}

// close closes an instance. Most calls of a runtime fail on a lost device, so its errors are told once, with the last instance.
func (c *recycling) close(ctx context.Context, u instance) {
	defer c.v.removing.Add(-1)
	u.limiter.Close()
	err := c.r.closeInstance(c.v, u.inst)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !slices.ContainsFunc(c.failed, func(e error) bool { return e.Error() == err.Error() }) {
		c.failed = append(c.failed, err)
	}
	if c.left--; c.left > 0 {
		return
	}
	args := []any{
		slog.String("model", c.v.sig.Model), slog.Int64("version", c.v.sig.Version), slog.String("device", c.at.String()), slog.Int("instances", c.all),
	}
	if len(c.failed) > 0 {
		args = append(args, slog.String("error", status.Line(errors.Join(c.failed...).Error())))
	}
	c.r.s.Log.WarnContext(ctx, "instances on a lost GPU are closed", args...)
}

// closeWarning logs err, of closing a version or what it used, if it comes of a lost device, and returns nil; else it returns err.
func (r *Repository) closeWarning(ctx context.Context, err error, at []tensor.Place, what ...any) error {
	lost, others := tensor.SplitLost(err)
	if others != nil && slices.ContainsFunc(at, func(p tensor.Place) bool { return r.places.Lost(p) != nil }) {
		lost, others = err, nil // of a runtime, which does not say so
	}
	if lost != nil {
		r.s.Log.WarnContext(ctx, "closing what was on a lost GPU failed", append(what, slog.String("error", status.Line(lost.Error())))...)
	}
	return others
}

// placesOf returns the present places of a version's instances, the lost ones included.
func (r *Repository) placesOf(v *version) []tensor.Place {
	if m := r.catalog.Load().models[v.key]; m != nil {
		return m.placesOf(v)
	}
	return v.places
}

// lost returns why a version cannot serve any more, because it or a model of its steps has no place that is not lost.
func (r *Repository) lost(v *version) (err error) {
	for _, used := range v.uses {
		if err := r.lost(used); err != nil {
			return status.Prefixf(err, "in ensemble '%s', ", v.sig.Model)
		}
	}
	for _, at := range r.placesOf(v) {
		if err = r.places.Lost(at); err == nil {
			return nil
		}
	}
	if err != nil {
		return noOtherPlace(v, err)
	}
	return nil
}

// condition returns the state of a version for the index: that of l, but for a version at lost devices. One that has other places is
// READY, with a reason.
func (r *Repository) condition(m *model, l *versionState) condition {
	now := *l.current.Load()
	i := slices.IndexFunc(m.versions, func(v *version) bool { return v.sig.Version == l.number })
	if i < 0 || now.state != infer.Ready {
		return now
	}
	v := m.versions[i]
	if err := r.lost(v); err != nil {
		return condition{infer.Unavailable, status.Text(err)}
	}
	var live, reasons []string
	for _, at := range r.placesOf(v) {
		if err := r.places.Lost(at); err != nil {
			reasons = append(reasons, status.Text(err))
		} else {
			live = append(live, at.String())
		}
	}
	if now.reason == "" {
		now.reason = v.residency.reason()
	}
	if now.reason == "" && v.residency == nil { // the model of one that can be evicted changes
		if m, ok := v.model.(backends.Reporter); ok {
			now.reason = m.Report()
		}
	}
	if len(reasons) > 0 {
		now.reason = "serves at " + strings.Join(live, ", ") + " only: " + strings.Join(reasons, "; ")
	}
	return now
}
