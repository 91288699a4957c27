// Package dynamic schedules models with dynamic_batching: requests form a batch by the rules of config.pbtxt.
//
// Without padding, tasks with equal shapes join. With padding (parameters pad.INPUT), tasks of near lengths join: a
// larger batch saves the fixed cost of an execution and costs padding. Both costs are learned from executions, and so
// is the size beyond which a batch no longer pays, unless the configuration sets preferred sizes or a delay. For
// example, lengths 10, 11 and 200 usually make a batch of two and one of one.
package dynamic

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// Settings are those of the queue. New sets the policy, the levels, the order and the window by the rules.
type Settings = queue.Settings

// New returns a scheduler that batches by the rules.
func New(s Settings, rules Rules) scheduler.Scheduler {
	s.Policy, s.Levels, s.Ordered, s.Window = rules.Policy(), rules.Levels, rules.Ordered, rules.Window()
	return queue.New(s)
}

// Rules are the batching rules of one model.
type Rules struct {
	// MaxBatch is the largest number of rows; at least 1.
	MaxBatch int32
	// Preferred are the batch sizes that execute at once when reached, ascending.
	Preferred []int32
	// Delay is how long the oldest task may wait for a fuller batch.
	Delay time.Duration
	// Padded allows tasks of different lengths to join.
	Padded bool
	// MaxElements bounds rows times the longest length of a padded batch; a single task may exceed it.
	MaxElements int64
	// Levels are the priority levels and what may wait in each.
	Levels queue.Levels
	// Ordered has responses leave in the order in which the requests arrived.
	Ordered bool
}

// Free reports whether there are no limits, no levels and no order of responses.
func (r *Rules) Free() bool { return r.Levels.Free() && !r.Ordered }

// largestPreferred returns the size from which on a batch does not wait for more.
func (r *Rules) largestPreferred() int32 {
	if n := len(r.Preferred); n > 0 {
		return r.Preferred[n-1]
	}
	return r.MaxBatch
}

// learns reports whether costs decide the size of batches: the configuration sets neither preferred sizes nor a delay.
func (r *Rules) learns() bool {
	return r.Delay == 0 && (len(r.Preferred) == 0 || len(r.Preferred) == 1 && r.Preferred[0] == r.MaxBatch)
}

const (
	// fewest and mostLooked bound how many tasks are searched for near lengths, in quadratic time.
	fewest     = 128
	mostLooked = 512
)

// Window returns how many tasks of one shape the policy sees.
func (r *Rules) Window() int {
	if r.Padded {
		return min(max(int(r.MaxBatch), fewest), mostLooked)
	}
	return int(r.MaxBatch)
}

// maxElementsKey is the parameter that bounds a padded batch.
const maxElementsKey = "max_batch_elements"

// RulesOf reads the rules of a completed configuration.
func RulesOf(cfg *modelconfig.ModelConfig, padded bool) (Rules, error) {
	d := cfg.GetDynamicBatching()
	r := Rules{
		MaxBatch:    max(cfg.GetMaxBatchSize(), 1),
		Delay:       micros(d.GetMaxQueueDelayMicroseconds()),
		Padded:      padded,
		MaxElements: math.MaxInt64,
		Levels:      levelsOf(d),
		Ordered:     d.GetPreserveOrdering(),
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

// levelsOf reads the priority levels; a level without a policy has the default one.
func levelsOf(d *modelconfig.ModelDynamicBatching) queue.Levels {
	l := queue.Levels{Count: d.GetPriorityLevels(), Policy: policyOf(d.GetDefaultQueuePolicy())}
	if l.Count == 0 {
		return l
	}
	l.Default = d.GetDefaultPriorityLevel()
	for number, p := range d.GetPriorityQueuePolicy() {
		if l.Policies == nil {
			l.Policies = map[uint64]queue.Policy{}
		}
		l.Policies[number] = policyOf(p)
	}
	return l
}

func policyOf(p *modelconfig.ModelQueuePolicy) queue.Policy {
	return queue.Policy{
		MaxSize:  int(p.GetMaxQueueSize()),
		Timeout:  micros(p.GetDefaultTimeoutMicroseconds()),
		Override: p.GetAllowTimeoutOverride(),
		Delay:    p.GetTimeoutAction() == modelconfig.ModelQueuePolicy_DELAY,
	}
}

// micros converts microseconds, at most to the longest duration.
func micros(n uint64) time.Duration {
	return time.Duration(min(n, uint64(math.MaxInt64/time.Microsecond))) * time.Microsecond
}

// Policy returns a policy with the rules.
func (r Rules) Policy() scheduler.Policy {
	if r.Padded {
		return &near{rules: r}
	}
	return &equal{rules: r}
}
