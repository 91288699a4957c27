package repository

import (
	"context"
	"errors"
	"runtime"
	"strconv"

	"tutti/backends"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
	"tutti/scheduler"
	"tutti/scheduler/device"
)

// seat is an instance that a configuration asks for.
type seat struct {
	name   string
	group  *modelconfig.ModelInstanceGroup
	place  tensor.Place
	policy *device.Policy
}

// seats lists the instances of a normalised configuration. GPU groups have as many on
// each of their devices.
func (r *Repository) seats(cfg *modelconfig.ModelConfig) []seat {
	var list []seat
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
				list = append(list, seat{name: name, group: g, place: at, policy: r.s.HostPolicies[policyOf(g, at)]})
			}
		}
	}
	return list
}

// atDevices puts the seats that name no device at each of the model's, which runs
// nowhere else.
func atDevices(seats []seat, places []tensor.Place) []seat {
	var list []seat
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
func countInstances(list []seat) int {
	n := 0
	for i := range list {
		if !list[i].group.GetPassive() {
			n++
		}
	}
	return n
}

// instances are those of a version.
type instances struct {
	// active take requests. One that stands for several is there several times.
	active  []backends.Instance
	gates   []scheduler.Gate // of active, nil for none
	limits  *device.Group    // the gates, nil for none
	passive []backends.Instance
	// inline says that one of active serves all callers where they are.
	inline bool
}

// newInstances makes the version's instances and their gates. A concurrent model has
// one instance at each place, which stands for as many as are configured, by default
// as many as there are processors. batches says that requests are to meet in a queue.
func (r *Repository) newInstances(ctx context.Context, v *version, batches bool) (*instances, error) {
	seats := v.seats
	c, concurrent := v.model.(backends.Concurrent)
	if concurrent && v.anyCount {
		seats = manySeats(seats, runtime.GOMAXPROCS(0))
	}
	x := &instances{}
	for i := range seats {
		if err := x.add(ctx, v.model, seats, i, concurrent); err != nil {
			return nil, errors.Join(err, closeInstances(x.active), closeInstances(x.passive))
		}
	}
	x.inline = concurrent && c.Inline() && !batches && !v.sig.Decoupled && v.cfg.GetSequenceBatching() == nil && len(x.active) > 0 && !r.limited(seats)
	if x.inline {
		return x, nil
	}
	if err := x.limit(r.arbiter, v, seats, concurrent); err != nil {
		return nil, errors.Join(err, closeInstances(x.active), closeInstances(x.passive))
	}
	return x, nil
}

// manySeats repeats the first seat.
func manySeats(list []seat, n int) []seat {
	var all []seat
	for range n {
		all = append(all, list[0])
	}
	return all
}

// add makes the i-th instance, or uses an earlier one of a concurrent model again.
func (x *instances) add(ctx context.Context, m backends.Model, seats []seat, i int, concurrent bool) error {
	s, to := &seats[i], &x.active
	if s.group.GetPassive() {
		to = &x.passive
	}
	if concurrent {
		at := 0 // of the earlier one in its list
		for k := range i {
			if seats[k].group.GetPassive() != s.group.GetPassive() {
				continue
			}
			if seats[k].place == s.place && seats[k].policy == s.policy {
				*to = append(*to, (*to)[at])
				return nil
			}
			at++
		}
	}
	var inst backends.Instance
	err := s.policy.Do(func() (err error) {
		inst, err = m.NewInstance(ctx, s.place)
		return err
	})
	if err == nil {
		*to = append(*to, s.policy.Bind(inst))
	}
	return err
}

// limited reports whether the rate limiter counts what the instances take.
func (r *Repository) limited(seats []seat) bool {
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

// limit puts the instances that take requests behind gates, as far as anything limits them.
func (x *instances) limit(a *device.Arbiter, v *version, seats []seat, concurrent bool) error {
	threads := 1
	if t, ok := v.model.(backends.Threaded); ok {
		threads = t.Threads()
	} else if concurrent {
		threads = 0 // stateless code that is short
	}
	var asks []device.Ask
	for i := range seats {
		if !seats[i].group.GetPassive() {
			asks = append(asks, seats[i].ask(threads))
		}
	}
	group, err := a.Register(asks)
	if err != nil {
		return err
	}
	for i, g := range group.Gates {
		if g == nil {
			continue
		}
		if x.gates == nil {
			x.gates, x.limits = make([]scheduler.Gate, len(asks)), group
		}
		x.gates[i] = g
	}
	return nil
}

// ask is what an execution of the instance takes.
func (s *seat) ask(threads int) device.Ask {
	ask := device.Ask{
		Device: int(s.place.ID), OnCPU: s.place.Kind != tensor.Device,
		Threads: threads, Priority: s.group.GetRateLimiter().GetPriority(),
	}
	for _, r := range s.group.GetRateLimiter().GetResources() {
		ask.Resources = append(ask.Resources, device.Resource{Name: r.GetName(), Shared: r.GetGlobal(), Count: int64(r.GetCount())})
	}
	return ask
}

// closeInstances closes each instance; one that occurs several times may be.
func closeInstances(list []backends.Instance) error {
	var errs []error
	for i, inst := range list {
		if i == 0 || inst != list[i-1] {
			errs = append(errs, inst.Close())
		}
	}
	return errors.Join(errs...)
}
