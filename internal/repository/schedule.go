package repository

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/exec"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/cached"
	"github.com/tutti-server/tutti/scheduler/direct"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/sequence"
	"github.com/tutti-server/tutti/scheduler/spread"
	"github.com/tutti-server/tutti/steps"
)

// newScheduler makes the instances and the scheduler that a configuration asks for, with a response cache in front
// if it asks for one.
func (r *Repository) newScheduler(ctx context.Context, f *folder, v *version) (scheduler.Scheduler, error) {
	if f.reload { // the rest is that of the version that is loaded again
		return r.newQueue(ctx, f, v)
	}
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
	if v.residency = r.newResidency(f, v, queue); v.residency != nil {
		queue = v.residency.gate
	}
	if v.inner = queue; !keeps {
		return queue, nil
	}
	return cached.New(cached.Settings{
		Inner: queue, Cache: r.s.Responses, Identity: v.identity, Stats: v.stats, Workers: r.workers, Mover: r.mover, Signature: v.sig,
	}), nil
}

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
	if v.watch, err = r.watchOf(v, params); err != nil {
		return nil, err
	}
	runner := batch.NewRunner(batch.Settings{
		Watch: v.watch, Signature: v.sig, Stats: v.stats, Alloc: r.s.Alloc, Padding: padding, Log: r.s.Log, Mover: r.mover, Native: native(v),
		Precision: v.precision, Serial: serial(v),
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
	if v.instances, err = r.newInstances(ctx, v.model, v.instances, nil); err != nil {
		return nil, err
	}
	v.padding = padding
	for _, u := range v.instances {
		if err := v.watch.Fits(u.inst); err != nil {
			return nil, errors.Join(err, v.instances.close())
		}
	}
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
		return direct.NewClosed(runner, status.Reasonf(status.NotEnabled, "model '%s' has only passive instances, which take no requests", f.name)), nil
	case v.cfg.GetSequenceBatching() != nil:
		s := r.sequenceSettings(f, v, v.stats, active)
		s.Rules.Queued, s.Rules.Backlog = r.s.DelayScheduler, r.s.BacklogDelayScheduler
		return sequence.New(s)
	}
	var targets []spread.Placed
	for _, g := range active.byPlace() {
		target := spread.Placed{At: g[0].executesAt()}
		host := target.At.Kind != tensor.Device
		if at := target.At; !host {
			target.Lost = func() error { return r.places.Lost(at) }
		}
		settings := direct.Settings{Runner: runner, Instances: g.backends(), Limiters: g.limiters(), Shared: v.shared() && host, Workers: r.workers}
		switch {
		case inline && host:
			target.To = direct.NewInline(direct.Settings{Runner: runner, Instances: g.backends()[:1], Workers: r.workers})
		case batches:
			settings.Hold = r.s.DelayScheduler
			target.To = dynamic.New(settings, *rules)
		default:
			target.To = direct.New(settings)
		}
		targets = append(targets, target)
	}
	return spread.New(targets), nil
}

// serial returns batch.Settings.Serial of a version.
func serial(v *version) func() int {
	s, ok := v.model.(backends.SerialModel)
	if !ok || v.sig.Decoupled || v.cfg.GetDynamicBatching() != nil {
		return nil
	}
	return s.Serial
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
	return ok && c.Inline() && !batches && !v.sig.Decoupled && v.cfg.GetSequenceBatching() == nil && len(v.instances.active()) > 0 && !r.limited(v.instances)
}

// stateFolder is a model's folder with the data of initial states.
const stateFolder = "initial_state"

// sequenceSettings returns the settings of a sequence scheduler. stats counts its requests.
func (r *Repository) sequenceSettings(f *folder, v *version, stats *telemetry.Model, active instances) sequence.Settings {
	rules, watch := sequence.RulesOf(v.cfg), v.watch
	if stats != v.stats {
		watch = nil // a dry run is part of the load
	}
	return sequence.Settings{
		Config: v.cfg, Signature: v.full, Public: v.sig, Rules: rules, Policy: oldestPolicy(v.cfg),
		Runner: batch.NewRunner(batch.Settings{
			Watch: watch, Signature: v.full, Stats: stats, Alloc: r.s.Alloc, Log: r.s.Log, Mover: r.mover, NoRetry: true, Iterative: rules.Iterative,
			InPlace: sequence.InPlace(v.cfg, v.full), Native: native(v), Precision: v.precision,
		}),
		Stats: stats, Alloc: r.s.Alloc, Instances: active.backends(), Limiters: active.limiters(), Workers: r.workers, Log: r.s.Log,
		ReadFile: func(name string) ([]byte, error) { return readBelow(f.dir, filepath.Join(stateFolder, name)) },
	}
}

// oldestPolicy returns the policy of the "oldest" strategy. Nil for "direct".
func oldestPolicy(cfg *modelconfig.ModelConfig) scheduler.Policy {
	o := cfg.GetSequenceBatching().GetOldest()
	if o == nil {
		return nil
	}
	rules := dynamic.Rules{
		MaxBatch: max(cfg.GetMaxBatchSize(), 1), MaxElements: math.MaxInt64, Preferred: slices.Clone(o.GetPreferredBatchSize()),
		Delay: time.Duration(min(o.GetMaxQueueDelayMicroseconds(), uint64(math.MaxInt64/time.Microsecond))) * time.Microsecond,
	}
	slices.Sort(rules.Preferred)
	return rules.Policy()
}

// cachesResponses reports whether the responses of a version are cached. The configuration alone was validated
// before; this checks the model and the steps.
func (r *Repository) cachesResponses(v *version) (bool, error) {
	const text = "Response Cache does not currently support model %s with %s. Please disable the response cache."
	if !v.cfg.GetResponseCache().GetEnable() {
		return false, nil
	}
	if v.sig.Decoupled {
		return false, status.Errorf(status.InvalidArg, text, v.sig.Model, "'decoupled' transaction policy")
	}
	for _, used := range v.uses {
		if used.cfg.GetSequenceBatching() != nil {
			return false, status.Errorf(status.InvalidArg, text, v.sig.Model, "sequence batching scheduler")
		}
	}
	if r.s.Responses == nil {
		r.s.Log.Warn("response cache is enabled for a model, but there is none: see --cache-config", slog.String("model", v.sig.Model))
		return false, nil
	}
	return true, nil
}

// addResponseCache puts the response cache in front of an ensemble whose configuration enables it.
func (r *Repository) addResponseCache(f *folder, v *version) error {
	v.identity = r.identity(f, v)
	keeps, err := r.cachesResponses(v)
	v.stats.Configure(metricsOf(v, keeps))
	if err != nil || !keeps {
		return err
	}
	v.responseCache = exec.NewResponseCache(v.exec, r.s.Responses, v.identity)
	return nil
}

func metricsOf(v *version, keeps bool) *telemetry.Setup {
	s := &telemetry.Setup{Tags: v.cfg.GetMetricTags(), Decoupled: v.sig.Decoupled, Cached: keeps}
	for _, c := range v.cfg.GetModelMetrics().GetMetricControl() {
		if c.GetMetricIdentifier().GetFamily() == telemetry.FirstResponse {
			s.FirstResponse = c.GetHistogramOptions().GetBuckets()
		}
	}
	return s
}

// identity returns a hash that distinguishes a loaded version from every other one in the cache. In a cache of this
// process it includes the number of the load, so that entries of earlier loads never match. A cache that outlives
// the process identifies a version by its name, its configuration and the names, sizes and times of its files, so
// that servers with the same files share entries. For an ensemble it includes the identities of its steps.
func (r *Repository) identity(f *folder, v *version) cache.Key {
	h := sha256.New()
	w := &walk{out: h}
	w.name(f.key)
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v.sig.Version))) // a hash takes everything
	switch {
	case r.s.Responses == nil:
	case r.s.Responses.Remote():
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.cfg)
		if err != nil { // then no other version has the same identity
			text = binary.LittleEndian.AppendUint64(nil, r.loads.Add(1))
		}
		_, _ = h.Write(text)
		w.folder(f.dir, 0)
		for _, used := range v.uses {
			_, _ = h.Write(used.identity[:])
		}
	default:
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, r.loads.Add(1)))
	}
	return cache.Key(h.Sum(nil))
}
