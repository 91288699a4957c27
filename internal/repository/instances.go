package repository

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/device"
)

// seat is an instance that a configuration asks for.
type instanceSpec struct {
	name   string
	group  *modelconfig.ModelInstanceGroup
	place  tensor.Place
	policy *device.Policy
}

// seats lists the instances of a normalised configuration. GPU groups have as many on
// each of their devices.
func (r *Repository) instanceSpecs(cfg *modelconfig.ModelConfig) []instanceSpec {
	var list []instanceSpec
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
				list = append(list, instanceSpec{name: name, group: g, place: at, policy: r.s.HostPolicies[policyOf(g, at)]})
			}
		}
	}
	return list
}

// atDevices puts the seats that name no device at each of the model's, which runs
// nowhere else.
func atDevices(seats []instanceSpec, places []tensor.Place) []instanceSpec {
	var list []instanceSpec
	for i := range seats {
		if seats[i].place.Kind == tensor.Device {
			list = append(list, seats[i])
			continue
		}
		for _, at := range places {
			s := seats[i]
			s.place = at
			list = append(list, s)
		}
	}
	return list
}

// policyOf names the host policy of a group, by default that of its kind.
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

// countInstances returns how many instances take requests.
func countInstances(list []instanceSpec) int {
	n := 0
	for i := range list {
		if !list[i].group.GetPassive() {
			n++
		}
	}
	return n
}

// seatsOf lists the instances that a folder asks for of its open model. Where it leaves
// open how many, one of a concurrent model stands for as many as there are processors.
func (r *Repository) specsOf(f *folder, m backends.Model) []instanceSpec {
	seats := r.instanceSpecs(f.cfg)
	if p, ok := m.(backends.DeviceModel); ok {
		seats = atDevices(seats, p.Places())
	}
	if _, concurrent := m.(backends.ConcurrentModel); concurrent && f.defaultCount {
		seats = slices.Repeat(seats[:1], runtime.GOMAXPROCS(0))
	}
	return seats
}

// placesOf returns where instances take requests.
func placesOf(seats []instanceSpec) (places []tensor.Place) {
	for i := range seats {
		if at := seats[i].place; !seats[i].group.GetPassive() && !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	return places
}

// unit is an instance of a version.
type instance struct {
	instanceSpec
	inst    backends.Instance // one that stands for several is in several units
	limiter *device.Limiter   // nil: nothing limits it
}

// units are all instances of a version, or some.
type instances []instance

// active returns those that take requests.
func (list instances) active() (active instances) {
	for _, u := range list {
		if !u.group.GetPassive() {
			active = append(active, u)
		}
	}
	return active
}

// instances returns those of the units.
func (list instances) backends() []backends.Instance {
	all := make([]backends.Instance, len(list))
	for i := range list {
		all[i] = list[i].inst
	}
	return all
}

// gates returns those of the units, nil when nothing limits any.
func (list instances) limiters() []scheduler.Limiter {
	var gates []scheduler.Limiter
	for i := range list {
		if list[i].limiter == nil {
			continue
		}
		if gates == nil {
			gates = make([]scheduler.Limiter, len(list))
		}
		gates[i] = list[i].limiter
	}
	return gates
}

// close gives up gates and closes instances.
func (list instances) close() error {
	var errs []error
	for i := range list {
		list[i].limiter.Close()
		errs = append(errs, list[i].inst.Close())
	}
	return errors.Join(errs...)
}

// bySite splits the units by where they are.
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

// site returns where the instance executes.
func (u *instance) executesAt() tensor.Place {
	if s := backends.StreamOf(u.inst); s != nil {
		return s.Place()
	}
	return tensor.Place{}
}

// newUnits makes the instances of a model that seats ask for, beside those that are there. A
// concurrent model has one at each place, which stands for as many as are configured.
func (r *Repository) newInstances(ctx context.Context, m backends.Model, seats []instanceSpec, there instances) (instances, error) {
	_, concurrent := m.(backends.ConcurrentModel)
	var made instances
	for i := range seats {
		u := instance{instanceSpec: seats[i]}
		if concurrent {
			u.inst = slices.Concat(there, made).sameInstance(&u.instanceSpec)
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

// like returns the instance of a unit that is where a seat is, nil when there is none.
func (list instances) sameInstance(s *instanceSpec) backends.Instance {
	for i := range list {
		if u := &list[i]; u.group.GetPassive() == s.group.GetPassive() && u.place == s.place && u.policy == s.policy {
			return u.inst
		}
	}
	return nil
}

// makeInstance makes the unit's instance; a panic is an error.
func (r *Repository) makeInstance(ctx context.Context, m backends.Model, u *instance) (err error) {
	defer recovery.Error(&err, r.s.Log, "making an instance of model '"+m.Signature().Model+"'", slog.String("model", m.Signature().Model))
	return u.policy.Do(func() error {
		inst, err := m.NewInstance(ctx, u.place)
		if err == nil {
			u.inst = u.policy.Bind(inst)
		}
		return err
	})
}

// limited reports whether the rate limiter counts what the instances take.
func (r *Repository) limited(seats []instanceSpec) bool {
	if !r.s.Limits.RateLimit {
		return false
	}
	for i := range seats {
		if len(seats[i].group.GetRateLimiter().GetResources()) > 0 {
			return true
		}
	}
	return false
}

// limit puts the units that take requests behind gates, as far as anything limits them.
func (r *Repository) limit(m backends.Model, list instances) error {
	threads := 1
	if t, ok := m.(backends.ThreadedModel); ok {
		threads = t.Threads()
	} else if _, concurrent := m.(backends.ConcurrentModel); concurrent {
		threads = 0 // stateless code that is short
	}
	var asks []device.Ask
	var behind []*instance
	for i := range list {
		if !list[i].group.GetPassive() {
			asks, behind = append(asks, list[i].demand(threads)), append(behind, &list[i])
		}
	}
	group, err := r.arbiter.Register(asks)
	if err != nil {
		return err
	}
	for i, u := range behind {
		u.limiter = group.Gates[i]
	}
	return nil
}

// ask is what an execution of the instance takes.
func (s *instanceSpec) demand(threads int) device.Ask {
	ask := device.Ask{
		Device: int(s.place.ID), OnCPU: s.place.Kind != tensor.Device,
		Threads: threads, Priority: s.group.GetRateLimiter().GetPriority(),
	}
	for _, r := range s.group.GetRateLimiter().GetResources() {
		ask.Resources = append(ask.Resources, device.Resource{Name: r.GetName(), Shared: r.GetGlobal(), Count: int64(r.GetCount())})
	}
	return ask
}
