// Package dynamic schedules models with dynamic_batching: works of different
// requests form a batch by the rules of config.pbtxt.
//
// Without padding, works join whose shapes agree. With padding (parameters
// pad.INPUT), works of near lengths join: a longer batch saves the fixed cost of an
// execution and pays for the padding, and what either is worth is learned from the
// executions themselves.
package dynamic

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"tutti/backends"
	"tutti/proto/modelconfig"
	"tutti/scheduler"
)

// Settings are what New is given.
type Settings struct {
	Runner    *scheduler.Runner
	Rules     Rules
	Instances []backends.Instance
	Gates     []scheduler.Gate // of the instances, nil for none
	Workers   *scheduler.Workers

	_ struct{}
}

// New returns a scheduler that batches by s.Rules.
func New(s Settings) scheduler.Scheduler {
	return scheduler.NewStation(scheduler.StationSettings{
		Runner: s.Runner, Policy: s.Rules.Policy(), Instances: s.Instances, Gates: s.Gates, Workers: s.Workers,
	})
}

// Rules are the batching rules of one model.
type Rules struct {
	// MaxBatch is the largest number of rows; at least 1.
	MaxBatch int32
	// Preferred are the batch sizes to run at once when reached, ascending.
	Preferred []int32
	// Delay is how long the oldest work may wait for a better batch.
	Delay time.Duration
	// Padded tells that works of different lengths may join.
	Padded bool
	// MaxElements bounds rows times the longest length of a padded batch; a single
	// work may exceed it.
	MaxElements int64
}

// maxElementsKey is the parameter that bounds a padded batch.
const maxElementsKey = "max_batch_elements"

// RulesOf reads the rules of a completed configuration.
func RulesOf(cfg *modelconfig.ModelConfig, padded bool) (Rules, error) {
	d := cfg.GetDynamicBatching()
	r := Rules{
		MaxBatch:    max(cfg.GetMaxBatchSize(), 1),
		Delay:       time.Duration(min(d.GetMaxQueueDelayMicroseconds(), uint64(math.MaxInt64/time.Microsecond))) * time.Microsecond,
		Padded:      padded,
		MaxElements: math.MaxInt64,
	}
	for _, p := range d.GetPreferredBatchSize() {
		if p > 0 && p <= r.MaxBatch {
			r.Preferred = append(r.Preferred, p)
		}
	}
	slices.Sort(r.Preferred)
	if v, ok := cfg.GetParameters()[maxElementsKey]; ok {
		n, err := strconv.ParseInt(v.GetStringValue(), 10, 64)
		if err != nil || n < 1 {
			return r, fmt.Errorf("parameter '%s' of model '%s' is '%s', expected a positive integer", maxElementsKey, cfg.GetName(), v.GetStringValue())
		}
		r.MaxElements = n
	}
	return r, nil
}

// Policy returns the policy the rules describe.
func (r Rules) Policy() scheduler.Policy {
	if r.Padded {
		return &near{rules: r}
	}
	return &equal{rules: r}
}
