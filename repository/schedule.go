package repository

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"tutti/backends"
	"tutti/core/tensor"
	"tutti/scheduler"
	"tutti/scheduler/direct"
	"tutti/scheduler/dynamic"
	"tutti/scheduler/spread"
)

// newScheduler picks the scheduler a configuration asks for and makes the instances.
func (r *Repository) newScheduler(ctx context.Context, f *folder, v *version) (scheduler.Scheduler, error) {
	params := map[string]string{}
	for key, p := range f.cfg.GetParameters() {
		params[key] = p.GetStringValue()
	}
	padding, err := scheduler.NewPadding(v.sig, params)
	if err != nil {
		return nil, err
	}
	runner := scheduler.NewRunner(scheduler.RunnerSettings{
		Signature: v.sig, Stats: v.stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log, Mover: r.mover,
	})
	batches := v.cfg.GetDynamicBatching() != nil && v.sig.MaxBatch > 0
	if padding != nil && !batches {
		return nil, fmt.Errorf("model '%s' has parameters that pad inputs, but no dynamic_batching", f.name)
	}
	rules, err := dynamic.RulesOf(v.cfg, padding != nil)
	if err != nil {
		return nil, err
	}
	inline := false
	if c, ok := v.model.(backends.Concurrent); ok {
		inline = c.Inline() && !batches && !v.sig.Decoupled
	}
	instances, err := newInstances(ctx, f, v.model)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, f, v, instances, padding); err != nil {
		return nil, errors.Join(err, closeInstances(instances))
	}
	if inline {
		return direct.NewInline(direct.Settings{Runner: runner, Instances: instances[:1]}), nil
	}
	var sites []spread.Site
	for _, g := range bySite(instances, v.places) {
		site := spread.Site{At: g.at}
		if batches {
			site.To = dynamic.New(dynamic.Settings{Runner: runner, Rules: rules, Instances: g.instances, Workers: r.workers})
		} else {
			site.To = direct.New(direct.Settings{Runner: runner, Instances: g.instances, Workers: r.workers})
		}
		sites = append(sites, site)
	}
	return spread.New(sites), nil
}

// group is a model's instances at one place.
type group struct {
	at        tensor.Place
	instances []backends.Instance
}

// bySite splits instances by where they are; without places all are on the host.
func bySite(list []backends.Instance, places []tensor.Place) []group {
	var groups []group
	for _, inst := range list {
		at := tensor.Place{}
		if p, ok := inst.(backends.Placed); ok && len(places) > 0 {
			at = p.Stream().Place()
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.at == at })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{at: at})
		}
		groups[i].instances = append(groups[i].instances, inst)
	}
	return groups
}

// newInstances makes the model's instances. A concurrent model has one, which stands
// for as many as are configured, by default as many as there are processors.
func newInstances(ctx context.Context, f *folder, model backends.Model) ([]backends.Instance, error) {
	n := countInstances(f)
	if p, ok := model.(backends.Placer); ok {
		return placedInstances(ctx, p, n)
	}
	_, concurrent := model.(backends.Concurrent)
	if concurrent && f.instances == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	var list []backends.Instance
	for i := range n {
		if concurrent && i > 0 {
			list = append(list, list[0])
			continue
		}
		inst, err := model.NewInstance(ctx, tensor.Place{})
		if err != nil {
			return nil, errors.Join(err, closeInstances(list))
		}
		list = append(list, inst)
	}
	return list, nil
}

// placedInstances makes n instances of a model at each of its devices.
func placedInstances(ctx context.Context, model backends.Placer, n int) ([]backends.Instance, error) {
	var list []backends.Instance
	for _, at := range model.Places() {
		for range n {
			inst, err := model.NewInstance(ctx, at)
			if err != nil {
				return nil, errors.Join(err, closeInstances(list))
			}
			list = append(list, inst)
		}
	}
	return list, nil
}

// closeInstances closes each instance once, however often it is in the list.
func closeInstances(list []backends.Instance) error {
	var errs []error
	for i, inst := range list {
		if i == 0 || inst != list[0] {
			errs = append(errs, inst.Close())
		}
	}
	return errors.Join(errs...)
}
