package repository

import (
	"context"
	"errors"
	"fmt"

	"tutti/backends"
	"tutti/core/status"
	"tutti/scheduler"
	"tutti/scheduler/cached"
	"tutti/scheduler/direct"
	"tutti/scheduler/dynamic"
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
		Inner: queue, Cache: r.s.Responses, Identity: v.identity, Stats: v.stats, Workers: r.workers,
	}), nil
}

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
		Signature: v.sig, Stats: v.stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log,
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
		q, err := r.newSequences(f, v, v.stats, made)
		if err != nil {
			return nil, errors.Join(err, closeInstances(made.active))
		}
		return q, nil
	case made.inline:
		return direct.NewInline(direct.Settings{Runner: runner, Instances: made.active[:1]}), nil
	case batches:
		return dynamic.New(dynamic.Settings{
			Runner: runner, Rules: rules, Instances: made.active, Gates: made.gates, Shared: shared, Workers: r.workers, Hold: r.s.DelayScheduler,
		}), nil
	default:
		return direct.New(direct.Settings{Runner: runner, Instances: made.active, Gates: made.gates, Shared: shared, Workers: r.workers}), nil
	}
}
