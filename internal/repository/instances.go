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
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/device"
)

// instanceSpec is one instance that a configuration demands for.
type instanceSpec struct {
	name   string
	group  *modelconfig.ModelInstanceGroup
	place  tensor.Place
	policy *device.Policy
}

// instanceSpecs expands the instance groups of a normalised configuration. For example, a KIND_GPU group with count
// 2 and gpus [0, 1] gives four.
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

// atDevices places the specs without a device at each of the model's devices. Such a model runs nowhere else.
func atDevices(specs []instanceSpec, places []tensor.Place) []instanceSpec {
	var list []instanceSpec
	for i := range specs {
		if specs[i].place.Kind == tensor.Device {
			list = append(list, specs[i])
			continue
		}
		for _, at := range places {
			s := specs[i]
			s.place = at
			list = append(list, s)
		}
	}
	return list
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

// countInstances returns the number of instances that accept requests.
func countInstances(list []instanceSpec) int {
	n := 0
	for i := range list {
		if !list[i].group.GetPassive() {
			n++
		}
	}
	return n
}

// specsOf returns the instances that a folder demands for, for its open model. Without instance_group a concurrent
// model has one per processor.
func (r *Repository) specsOf(f *folder, m backends.Model) []instanceSpec {
	specs := r.instanceSpecs(f.cfg)
	if p, ok := m.(backends.DeviceModel); ok {
		specs = atDevices(specs, p.Places())
	}
	if _, concurrent := m.(backends.ConcurrentModel); concurrent && f.defaultCount {
		specs = slices.Repeat(specs[:1], runtime.GOMAXPROCS(0))
	}
	return specs
}

// placesOf returns the places of the instances that accept requests.
func placesOf(specs []instanceSpec) (places []tensor.Place) {
	for i := range specs {
		if at := specs[i].place; !specs[i].group.GetPassive() && !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	return places
}

// instance is an instance of a version. A concurrent model has one backends.Instance that is shared by several.
type instance struct {
	instanceSpec
	inst    backends.Instance // one that stands for several is in several units
	limiter *device.Limiter   // nil: unlimited
}

// instances are all or some instances of a version.
type instances []instance

// active returns the instances that accept requests.
func (list instances) active() (active instances) {
	for _, u := range list {
		if !u.group.GetPassive() {
			active = append(active, u)
		}
	}
	return active
}

// backends returns the backend's instances.
func (list instances) backends() []backends.Instance {
	all := make([]backends.Instance, len(list))
	for i := range list {
		all[i] = list[i].inst
	}
	return all
}

// limiters returns the limiters of the instances. Nil if none is limited.
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

// close releases the limiters and closes the instances.
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

// executesAt returns the place where the instance executes.
func (u *instance) executesAt() tensor.Place {
	return batch.PlaceOf(u.inst)
}

// newInstances makes the instances for specs. present are instances that exist already. A concurrent model gets one
// backend instance per place, shared by all.
func (r *Repository) newInstances(ctx context.Context, m backends.Model, specs []instanceSpec, present instances) (instances, error) {
	_, concurrent := m.(backends.ConcurrentModel)
	var made instances
	for i := range specs {
		u := instance{instanceSpec: specs[i]}
		if concurrent {
			u.inst = slices.Concat(present, made).sameInstance(&u.instanceSpec)
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

// sameInstance returns the backend instance in the list that a spec can share, or nil.
func (list instances) sameInstance(s *instanceSpec) backends.Instance {
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
	return u.policy.Do(func() error {
		inst, err := m.NewInstance(ctx, u.place)
		if err == nil {
			u.inst = u.policy.Bind(inst)
		}
		return err
	})
}

// limited reports whether the rate limiter counts resources of the instances.
func (r *Repository) limited(specs []instanceSpec) bool {
	if !r.s.Limits.RateLimit {
		return false
	}
	for i := range specs {
		if len(specs[i].group.GetRateLimiter().GetResources()) > 0 {
			return true
		}
	}
	return false
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
	var behind []*instance
	for i := range list {
		if !list[i].group.GetPassive() {
			demands, behind = append(demands, list[i].demand(threads)), append(behind, &list[i])
		}
	}
	group, err := r.arbiter.Register(demands)
	if err != nil {
		return err
	}
	for i, u := range behind {
		u.limiter = group.Limiters[i]
	}
	return nil
}

// demand returns the threads and resources that one execution takes.
func (s *instanceSpec) demand(threads int) device.Demand {
	d := device.Demand{
		Device: int(s.place.ID), OnCPU: s.place.Kind != tensor.Device,
		Threads: threads, Priority: s.group.GetRateLimiter().GetPriority(),
	}
	for _, r := range s.group.GetRateLimiter().GetResources() {
		d.Resources = append(d.Resources, device.Resource{Name: r.GetName(), Shared: r.GetGlobal(), Count: int64(r.GetCount())})
	}
	return d
}
