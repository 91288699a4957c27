package repository

import (
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

// stateFolder is a model's folder with the data of initial states.
const stateFolder = "initial_state"

// newSequences returns the scheduler of a sequence model.
func (r *Repository) newSequences(f *folder, v *version, active instances) (*sequence.Scheduler, error) {
	s := r.sequenceSettings(f, v, v.stats, active)
	s.Rules.Queued, s.Rules.Backlog = r.s.DelayScheduler, r.s.BacklogDelayScheduler
	return sequence.New(s)
}

// sequenceSettings returns the settings of a sequence scheduler. stats counts its requests.
func (r *Repository) sequenceSettings(f *folder, v *version, stats *telemetry.Model, active instances) sequence.Settings {
	rules := sequence.RulesOf(v.cfg)
	return sequence.Settings{
		Config: v.cfg, Signature: v.full, Public: v.sig, Rules: rules, Policy: oldestPolicy(v.cfg),
		Runner: batch.NewRunner(batch.Settings{
			Signature: v.full, Stats: stats, Alloc: r.s.Alloc, Log: r.s.Log, Mover: r.mover, Once: true, Iterative: rules.Iterative,
			InPlace: sequence.InPlace(v.cfg, v.full), Native: native(v),
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
