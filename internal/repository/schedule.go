package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/cached"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/spread"
	"github.com/tutti-server/tutti/steps"
)

// newScheduler makes the instances and the scheduler that a configuration asks for, with a response cache in front
// if it asks for one.
func (r *Repository) newScheduler(ctx context.Context, f *folder, v *version) (scheduler.Scheduler, error) {
	keeps, err := r.cachesResponses(v)
	if err != nil {
		return nil, err
	}
	v.identity = r.identity(f, v)
	v.stats.Configure(metricsOf(v, keeps))
	queue, err := r.newQueue(ctx, f, v)
	if err != nil {
		return nil, err
	}
	if v.inner = queue; !keeps {
		return queue, nil
	}
	return cached.New(cached.Settings{
		Inner: queue, Cache: r.s.Responses, Identity: v.identity, Stats: v.stats, Workers: r.workers, Mover: r.mover, Signature: v.sig,
	}), nil
}

// native reports whether a version is a native step.
func native(v *version) bool { return v.cfg.GetParameters()[steps.Key] != nil }

// newQueue makes the instances and their scheduler, without a response cache.
func (r *Repository) newQueue(ctx context.Context, f *folder, v *version) (scheduler.Scheduler, error) {
	params := map[string]string{}
	for key, p := range f.cfg.GetParameters() {
		params[key] = p.GetStringValue()
	}
	padding, err := batch.NewPadding(v.sig, params)
	if err != nil {
		return nil, err
	}
	runner := batch.NewRunner(batch.Settings{
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
		batches = false // one request at a time: there is nothing to batch
	}
	if v.instances, err = r.newInstances(ctx, v.model, v.specs, nil); err != nil {
		return nil, err
	}
	v.padding = padding
	queue, err := r.queueFor(ctx, f, v, runner, &rules, batches)
	if err != nil {
		return nil, errors.Join(err, v.instances.close())
	}
	return queue, nil
}

// queueFor prepares the instances and makes the scheduler for them.
func (r *Repository) queueFor(
	ctx context.Context, f *folder, v *version, runner *batch.Runner, rules *dynamic.Rules, batches bool,
) (scheduler.Scheduler, error) {
	inline := r.inline(v, batches)
	if !inline {
		if err := r.limit(v.model, v.instances); err != nil {
			return nil, err
		}
	}
	active := v.instances.active()
	if err := r.prepare(ctx, f, v, active); err != nil {
		return nil, err
	}
	switch {
	case len(active) == 0:
		return direct.NewClosed(runner, status.Errorf(status.Unavailable, "model '%s' has only passive instances, which take no requests", f.name)), nil
	case v.cfg.GetSequenceBatching() != nil:
		return r.newSequences(f, v, active)
	case inline:
		return direct.NewInline(direct.Settings{Runner: runner, Instances: active.backends()[:1]}), nil
	}
	var targets []spread.Placed
	for _, g := range active.byPlace() {
		target := spread.Placed{At: g[0].executesAt()}
		settings := direct.Settings{Runner: runner, Instances: g.backends(), Limiters: g.limiters(), Shared: v.shared(), Workers: r.workers}
		if batches {
			settings.Hold = r.s.DelayScheduler
			target.To = dynamic.New(settings, *rules)
		} else {
			target.To = direct.New(settings)
		}
		targets = append(targets, target)
	}
	return spread.New(targets), nil
}

// shared reports whether one instance of the model serves any number of goroutines.
func (v *version) shared() bool {
	_, ok := v.model.(backends.ConcurrentModel)
	return ok
}

// inline reports whether one instance executes on the callers' goroutines, without a queue. batches is set if
// requests must be batched.
func (r *Repository) inline(v *version, batches bool) bool {
	c, ok := v.model.(backends.ConcurrentModel)
	return ok && c.Inline() && !batches && !v.sig.Decoupled && v.cfg.GetSequenceBatching() == nil && len(v.instances.active()) > 0 && !r.limited(v.specs)
}
