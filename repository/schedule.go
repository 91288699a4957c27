package repository

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"tutti/backends"
	"tutti/core/tensor"
	"tutti/scheduler"
	"tutti/scheduler/direct"
	"tutti/scheduler/dynamic"
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
		Signature: v.sig, Stats: v.stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log,
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
	c, shared := v.model.(backends.Concurrent)
	if shared {
		inline = c.Inline() && !batches && !v.sig.Decoupled
	}
	instances, err := newInstances(ctx, f, v.model)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, f, v, instances, padding); err != nil {
		return nil, errors.Join(err, closeInstances(instances))
	}
	switch {
	case inline:
		return direct.NewInline(direct.Settings{Runner: runner, Instances: instances[:1]}), nil
	case batches:
		return dynamic.New(dynamic.Settings{Runner: runner, Rules: rules, Instances: instances, Shared: shared, Workers: r.workers}), nil
	default:
		return direct.New(direct.Settings{Runner: runner, Instances: instances, Shared: shared, Workers: r.workers}), nil
	}
}

// newInstances makes the model's instances. A concurrent model has one, which stands
// for as many as are configured, by default as many as there are processors.
func newInstances(ctx context.Context, f *folder, model backends.Model) ([]backends.Instance, error) {
	n := countInstances(f)
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
