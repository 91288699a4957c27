package repository

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/device"
)

// instance is one instance of a version.
type instance struct {
	name    string
	group   *modelconfig.ModelInstanceGroup
	place   tensor.Place
	policy  *device.Policy
	inst    backends.Instance // nil: not made yet; a concurrent model has one that is shared by several
	limiter *device.Limiter   // nil: unlimited
}

// instances are all or some instances of a version.
type instances []instance

// wantedInstances expands the instance groups of a normalised configuration. For example, a KIND_GPU group with count
// 2 and gpus [0, 1] gives four.
func (r *Repository) wantedInstances(cfg *modelconfig.ModelConfig) (list instances) {
	for _, g := range cfg.GetInstanceGroup() {
		places := []tensor.Place{{}}
		if g.GetKind() == modelconfig.ModelInstanceGroup_KIND_GPU {
			places = places[:0]
			for _, id := range g.GetGpus() {
				places = append(places, tensor.Place{Kind: tensor.Device, ID: int16(id)})
			}
		}
		for _, at := range places {
			for i := range max(1, int(g.GetCount())) {
				name := g.GetName()
				if g.GetCount() > 1 {
					name += "_" + strconv.Itoa(i)
				}
				list = append(list, instance{name: name, group: g, place: at, policy: r.s.HostPolicies[policyOf(g, at)]})
			}
		}
	}
	return list
}

// atDevices places the instances without a device at each of the model's places. Those of a model that also runs on the host stay there,
// unless their kind is KIND_AUTO.
func (list instances) atDevices(places []tensor.Place) (placed instances) {
	for _, u := range list {
		stays := slices.Contains(places, u.place) && u.group.GetKind() != modelconfig.ModelInstanceGroup_KIND_AUTO
		if u.place.Kind == tensor.Device || stays {
			placed = append(placed, u)
			continue
		}
		for _, at := range places {
			u.place = at
			placed = append(placed, u)
		}
	}
	return placed
}

// policyOf returns the name of a group's host policy. The default is the one of its kind, for example "gpu_0" or "cpu".
func policyOf(g *modelconfig.ModelInstanceGroup, at tensor.Place) string {
	switch {
	case g.GetHostPolicy() != "":
		return g.GetHostPolicy()
	case at.Kind == tensor.Device:
		return "gpu_" + strconv.Itoa(int(at.ID))
	case g.GetKind() == modelconfig.ModelInstanceGroup_KIND_MODEL:
		return "model"
	}
	return "cpu"
}

// wantedBy returns the instances that a folder demands for, for its open model. Without instance_group a concurrent
// model has one per processor.
func (r *Repository) wantedBy(f *folder, m backends.Model) instances {
	list := r.wantedInstances(f.cfg)
	p, ok := m.(backends.DeviceModel)
	if ok && (f.cfg.GetSequenceBatching() == nil || !slices.Contains(p.Places(), tensor.Place{})) {
		list = list.atDevices(p.Places())
	}
	c, concurrent := m.(backends.ConcurrentModel)
	if !concurrent || !f.defaultCount {
		return list
	}
	var all instances
	for _, u := range list {
		n := runtime.GOMAXPROCS(0)
		if p, ok := m.(backends.ParallelModel); ok {
			n = p.Parallelism()
		}
		if u.place.Kind == tensor.Device && c.Inline() {
			n = 1 // an execution only puts work into its stream
		}
		all = append(all, slices.Repeat(instances{u}, n)...)
	}
	return all
}

// edge reports whether the model's place is the one of its neighbours in an ensemble: KIND_AUTO, with instances on the host and at devices.
func (v *version) edge() bool {
	return slices.Contains(v.places, tensor.Place{}) && len(v.places) > 1 &&
		!slices.ContainsFunc(v.cfg.GetInstanceGroup(), func(g *modelconfig.ModelInstanceGroup) bool {
			return g.GetKind() != modelconfig.ModelInstanceGroup_KIND_AUTO
		})
}

// gathers reports whether the version batches across requests, and its instances are few: concurrent models have one for each processor.
func (v *version) gathers() bool { return v.cfg.GetDynamicBatching() != nil && !v.shared() }

// places returns the places of the instances that accept requests.
func (list instances) places() (places []tensor.Place) {
	for _, u := range list.active() {
		if !slices.Contains(places, u.place) {
			places = append(places, u.place)
		}
	}
	return places
}

// placesWhy names the kinds of the version's instance groups, which decide its places, or its backend where that does.
// For example, "KIND_CPU".
func (v *version) placesWhy() string {
	var kinds []string
	if v.residency == nil && len(v.places) == 0 {
		if m, ok := v.model.(backends.HostModel); ok && m.WhyHost() != "" {
			return m.WhyHost()
		}
	}
	for _, g := range v.cfg.GetInstanceGroup() {
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU && len(v.places) > 0 && !slices.Contains(v.places, tensor.Place{}) {
			return "its backend decides"
		}
		if kind := g.GetKind().String(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, ", ")
}

// Options returns the options under which the repository reads configurations. They must not be changed.
func (r *Repository) Options() *config.Options { return &r.source.options }

// Places returns where the instances of a served version are, nil for the host, and why.
func (r *Repository) Places(name string, number int64) (places []tensor.Place, why string) {
	s := r.catalog.Load()
	v, err := s.find(name, number)
	if err != nil {
		return nil, ""
	}
	return s.models[v.key].placesOf(v), v.placesWhy()
}

// active returns the instances that accept requests.
func (list instances) active() instances {
	return slices.DeleteFunc(slices.Clone(list), func(u instance) bool { return u.group.GetPassive() })
}

func (list instances) backends() []backends.Instance {
	all := make([]backends.Instance, len(list))
	for i := range list {
		all[i] = list[i].inst
	}
	return all
}

// limiters returns the limiters of the instances. Nil if none is limited.
func (list instances) limiters() []scheduler.Limiter {
	var limiters []scheduler.Limiter
	for i := range list {
		if list[i].limiter == nil {
			continue
		}
		if limiters == nil {
			limiters = make([]scheduler.Limiter, len(list))
		}
		limiters[i] = list[i].limiter
	}
	return limiters
}

func (list instances) close() error {
	var errs []error
	for i := range list {
		list[i].limiter.Close()
		errs = append(errs, list[i].inst.Close())
	}
	return errors.Join(errs...)
}

// byPlace groups the instances by the place where they execute.
func (list instances) byPlace() []instances {
	var groups []instances
	for _, u := range list {
		i := slices.IndexFunc(groups, func(g instances) bool { return g[0].executesAt() == u.executesAt() })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], u)
	}
	return groups
}

func (u *instance) executesAt() tensor.Place { return batch.PlaceOf(u.inst) }

// newInstances makes the wanted instances. present are instances that exist already. A concurrent model gets one
// backend instance per place, shared by all.
func (r *Repository) newInstances(ctx context.Context, m backends.Model, wanted, present instances) (instances, error) {
	_, concurrent := m.(backends.ConcurrentModel)
	var made instances
	for _, u := range wanted { // before any is made: a reload must not need memory for nothing
		if err := r.places.Lost(u.place); err != nil {
			return nil, status.Prefixf(err, "no instance of model '%s' can be made: ", m.Signature().Model)
		}
	}
	for _, u := range wanted {
		if concurrent && u.place.Kind != tensor.Device { // an instance at a device has a stream
			u.inst = slices.Concat(present, made).sameInstance(&u)
		}
		if u.inst == nil {
			if err := r.makeInstance(ctx, m, &u); err != nil {
				return nil, errors.Join(err, made.close())
			}
		}
		made = append(made, u)
	}
	return made, nil
}

// sameInstance returns the backend instance in the list that s can share, or nil.
func (list instances) sameInstance(s *instance) backends.Instance {
	for i := range list {
		if u := &list[i]; u.group.GetPassive() == s.group.GetPassive() && u.place == s.place && u.policy == s.policy {
			return u.inst
		}
	}
	return nil
}

// makeInstance makes the backend instance of u. A panic is an error.
func (r *Repository) makeInstance(ctx context.Context, m backends.Model, u *instance) (err error) {
	defer recovery.Error(&err, r.s.Log, "making an instance of model '"+m.Signature().Model+"'", slog.String("model", m.Signature().Model))
	if err := r.room(m.Signature().Model, u.place); err != nil {
		return err
	}
	err = u.policy.Do(func() error {
		create := m.NewInstance
		if g, ok := m.(backends.GroupModel); ok {
			create = func(ctx context.Context, at tensor.Place) (backends.Instance, error) {
				return g.NewGroupInstance(ctx, at, u.group)
			}
		}
		inst, err := create(ctx, u.place)
		if err == nil {
			u.inst = u.policy.Bind(inst)
		}
		return err
	})
	return noRoomAt(err, onDevices([]tensor.Place{u.place})...)
}

// limited reports whether the rate limiter counts resources of the instances.
func (r *Repository) limited(list instances) bool {
	return r.s.Limits.RateLimit && slices.ContainsFunc(list, func(u instance) bool { return len(u.group.GetRateLimiter().GetResources()) > 0 })
}

// limit registers the active instances with the arbiter and stores their limiters.
func (r *Repository) limit(m backends.Model, list instances) error {
	threads := 1
	if t, ok := m.(backends.ThreadedModel); ok {
		threads = t.Threads()
	} else if _, concurrent := m.(backends.ConcurrentModel); concurrent {
		threads = 0 // stateless and short
	}
	var demands []device.Demand
	for _, u := range list.active() {
		demands = append(demands, u.demand(threads))
	}
	group, err := r.arbiter.Register(demands)
	if err != nil {
		return err
	}
	next := 0
	for i := range list {
		if !list[i].group.GetPassive() {
			list[i].limiter = group.Limiters[next]
			next++
		}
	}
	return nil
}

// demand returns the threads and resources that one execution takes.
func (u *instance) demand(threads int) device.Demand {
	d := device.Demand{
		Device: int(u.place.ID), OnCPU: u.place.Kind != tensor.Device,
		Threads: threads, Priority: u.group.GetRateLimiter().GetPriority(),
	}
	for _, r := range u.group.GetRateLimiter().GetResources() {
		d.Resources = append(d.Resources, device.Resource{Name: r.GetName(), Shared: r.GetGlobal(), Count: int64(r.GetCount())})
	}
	return d
}
