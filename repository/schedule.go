package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/scheduler"
	"tutti/scheduler/cached"
	"tutti/scheduler/direct"
	"tutti/scheduler/dynamic"
	"tutti/scheduler/spread"
	"tutti/steps"
)

// newScheduler picks the scheduler a configuration asks for and makes the instances.
// When the model's answers are kept, a cache stands in front of it.
func (r *Repository) newScheduler(ctx context.Context, f *folder, v *version) (scheduler.Scheduler, error) {
	keeps, err := r.keeps(v)
	if err != nil {
		return nil, err
	}
	v.identity = r.identity(f, v)
	v.stats.Configure(metricsOf(v, keeps))
	queue, err := r.newQueue(ctx, f, v)
	if err != nil || !keeps {
		return queue, err
	}
	return cached.New(cached.Settings{
		Inner: queue, Cache: r.s.Responses, Identity: v.identity, Stats: v.stats, Workers: r.workers, Mover: r.mover, Signature: v.sig,
	}), nil
}

// native reports whether a version is a step of this process.
func native(v *version) bool { return v.cfg.GetParameters()[steps.Key] != nil }

// newQueue makes the instances and what stands directly before them.
func (r *Repository) newQueue(ctx context.Context, f *folder, v *version) (scheduler.Scheduler, error) {
	params := map[string]string{}
	for key, p := range f.cfg.GetParameters() {
		params[key] = p.GetStringValue()
	}
	padding, err := scheduler.NewPadding(v.sig, params)
	if err != nil {
		return nil, err
	}
	runner := scheduler.NewRunner(scheduler.RunnerSettings{
		Signature: v.sig, Stats: v.stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log, Mover: r.mover, Native: native(v),
	})
	batches := v.cfg.GetDynamicBatching() != nil
	if padding != nil && !batches {
		return nil, fmt.Errorf("model '%s' has parameters that pad inputs, but no dynamic_batching", f.name)
	}
	rules, err := dynamic.RulesOf(v.cfg, padding != nil)
	if err != nil {
		return nil, err
	}
	if v.sig.MaxBatch <= 0 && rules.Free() {
		batches = false // one request at a time, and nothing to queue it by
	}
	_, shared := v.model.(backends.Concurrent)
	made, err := r.newInstances(ctx, v, batches)
	if err != nil {
		return nil, err
	}
	v.limits, v.passive = made.limits, made.passive
	if err := r.prepare(ctx, f, v, made.active, padding); err != nil {
		return nil, errors.Join(err, closeInstances(made.active))
	}
	switch {
	case len(made.active) == 0:
		return direct.NewClosed(runner, status.Errorf(status.Unavailable, "model '%s' has only passive instances, which take no requests", f.name)), nil
	case v.cfg.GetSequenceBatching() != nil:
		q, err := r.newSequences(f, v, made)
		if err != nil {
			return nil, errors.Join(err, closeInstances(made.active))
		}
		return q, nil
	case made.inline:
		return direct.NewInline(direct.Settings{Runner: runner, Instances: made.active[:1]}), nil
	}
	var sites []spread.Site
	for _, g := range made.bySite() {
		site := spread.Site{At: g.at}
		if batches {
			site.To = dynamic.New(dynamic.Settings{
				Runner: runner, Rules: rules, Instances: g.instances, Gates: g.gates, Shared: shared, Workers: r.workers, Hold: r.s.DelayScheduler,
			})
		} else {
			site.To = direct.New(direct.Settings{Runner: runner, Instances: g.instances, Gates: g.gates, Shared: shared, Workers: r.workers})
		}
		sites = append(sites, site)
	}
	return spread.New(sites), nil
}

// group is a model's instances at one place, and their gates.
type group struct {
	at        tensor.Place
	instances []backends.Instance
	gates     []scheduler.Gate
}

// bySite splits the instances that take requests by where they are.
func (x *instances) bySite() []group {
	var groups []group
	for k, inst := range x.active {
		at := tensor.Place{}
		if s := backends.StreamOf(inst); s != nil {
			at = s.Place()
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.at == at })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{at: at})
		}
		groups[i].instances = append(groups[i].instances, inst)
		if x.gates != nil {
			groups[i].gates = append(groups[i].gates, x.gates[k])
		}
	}
	return groups
}
