package dynamic_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// TestDecisions checks every decision on random queues: a batch has the oldest task, only tasks like it, in order
// and within the limits; a policy that takes nothing returns how long to wait, at most the delay; and a decision
// does not change the next one.
func TestDecisions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // a test wants the same numbers again
		s := newSetup(rng)
		v := scheduler.View{Instances: int32(s.instances), Executing: int32(rng.IntN(9))}
		now := int64(time.Millisecond)
		for i := range 1 + rng.IntN(30) {
			v.Items = append(v.Items, scheduler.Item{
				Shape: uint64(rng.IntN(2)), Length: int32(rng.IntN(9)), Rows: int32(1 + rng.IntN(int(s.rules.MaxBatch))),
				Enqueued: now - int64(max(0, 100-10*i))*1000,
			})
		}
		for _, it := range v.Items {
			v.Queued += it.Rows
		}
		p := s.rules.Policy()
		d := p.Decide(now, v, nil)
		again := p.Decide(now, v, make([]int32, 0, 4))
		if diff := cmp.Diff(d, again); diff != "" {
			t.Errorf("seed %d: decided otherwise the second time:\n%s", seed, diff)
		}
		if len(d.Take) == 0 {
			if left := s.rules.Delay - 100*time.Microsecond; d.Wait <= 0 || d.Wait > left {
				t.Errorf("seed %d: waits %v, %v are left", seed, d.Wait, left)
			}
			continue
		}
		checkBatch(t, seed, &s.rules, v.Items, d.Take)
	}
}

func checkBatch(t *testing.T, seed uint64, r *dynamic.Rules, items []scheduler.Item, take []int32) {
	t.Helper()
	if take[0] != 0 || !slices.IsSorted(take) || len(slices.Compact(slices.Clone(take))) != len(take) {
		t.Errorf("seed %d: takes %v", seed, take)
	}
	rows, longest := int32(0), int32(0)
	for _, i := range take {
		rows += items[i].Rows
		longest = max(longest, items[i].Length)
		if items[i].Shape != items[0].Shape {
			t.Errorf("seed %d: takes %v of two shapes", seed, take)
		}
	}
	if rows > r.MaxBatch {
		t.Errorf("seed %d: takes %d rows, at most %d are allowed", seed, rows, r.MaxBatch)
	}
	if len(take) > 1 && r.Padded && int64(rows)*int64(longest) > r.MaxElements {
		t.Errorf("seed %d: takes %d rows of %d, at most %d elements are allowed", seed, rows, longest, r.MaxElements)
	}
}

func TestRulesOf(t *testing.T) {
	t.Parallel()
	bounded := map[string]*modelconfig.ModelParameter{"max_batch_elements": {StringValue: "64"}}
	for _, tc := range []struct {
		name   string
		cfg    *modelconfig.ModelConfig
		padded bool
		want   dynamic.Rules
	}{
		{"nothing", &modelconfig.ModelConfig{}, false, dynamic.Rules{MaxBatch: 1, MaxElements: 1<<63 - 1}},
		{
			"preferred", &modelconfig.ModelConfig{MaxBatchSize: 8, SchedulingChoice: batching(50, 8, 2, 4, 9, 0)}, false,
			dynamic.Rules{MaxBatch: 8, Preferred: []int32{2, 4, 8}, Delay: 50 * time.Microsecond, MaxElements: 1<<63 - 1},
		},
		{
			"padded", &modelconfig.ModelConfig{MaxBatchSize: 8, SchedulingChoice: batching(0), Parameters: bounded}, true,
			dynamic.Rules{MaxBatch: 8, Padded: true, MaxElements: 64},
		},
		{
			"forever", &modelconfig.ModelConfig{MaxBatchSize: 8, SchedulingChoice: batching(1<<64 - 1)}, false,
			dynamic.Rules{MaxBatch: 8, Delay: (1<<63 - 1) / 1000 * 1000, MaxElements: 1<<63 - 1},
		},
		{
			"limits of a model that does not batch", &modelconfig.ModelConfig{SchedulingChoice: queueing(&modelconfig.ModelDynamicBatching{
				PreserveOrdering: true, DefaultQueuePolicy: &modelconfig.ModelQueuePolicy{MaxQueueSize: 4},
			})}, false,
			dynamic.Rules{
				MaxBatch: 1, MaxElements: 1<<63 - 1, Ordered: true,
				Levels: queue.Levels{Policy: queue.Policy{MaxSize: 4}},
			},
		},
		{
			"levels", &modelconfig.ModelConfig{MaxBatchSize: 2, SchedulingChoice: queueing(&modelconfig.ModelDynamicBatching{
				PriorityLevels: 3, DefaultPriorityLevel: 2,
				DefaultQueuePolicy: &modelconfig.ModelQueuePolicy{DefaultTimeoutMicroseconds: 7, AllowTimeoutOverride: true},
				PriorityQueuePolicy: map[uint64]*modelconfig.ModelQueuePolicy{
					1: {}, 3: {TimeoutAction: modelconfig.ModelQueuePolicy_DELAY, DefaultTimeoutMicroseconds: 1<<64 - 1},
				},
			})}, false,
			dynamic.Rules{MaxBatch: 2, MaxElements: 1<<63 - 1, Levels: queue.Levels{
				Count: 3, Default: 2, Policy: queue.Policy{Timeout: 7 * time.Microsecond, Override: true},
				Policies: map[uint64]queue.Policy{1: {}, 3: {Timeout: (1<<63 - 1) / 1000 * 1000, Delay: true}},
			}},
		},
	} {
		got, err := dynamic.RulesOf(tc.cfg, tc.padded)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", tc.name, err, diff)
		}
	}
	for _, value := range []string{"", "0", "-1", "x", "9223372036854775808"} {
		cfg := &modelconfig.ModelConfig{Name: "m", Parameters: map[string]*modelconfig.ModelParameter{"max_batch_elements": {StringValue: value}}}
		if _, err := dynamic.RulesOf(cfg, true); err == nil || err.Error() != "parameter 'max_batch_elements' of model 'm' is '"+value+"', expected a positive integer" {
			t.Errorf("bound %q: %v", value, err)
		}
	}
}

func batching(delay uint64, preferred ...int32) *modelconfig.ModelConfig_DynamicBatching {
	return &modelconfig.ModelConfig_DynamicBatching{
		DynamicBatching: &modelconfig.ModelDynamicBatching{MaxQueueDelayMicroseconds: delay, PreferredBatchSize: preferred},
	}
}

func queueing(d *modelconfig.ModelDynamicBatching) *modelconfig.ModelConfig_DynamicBatching {
	return &modelconfig.ModelConfig_DynamicBatching{DynamicBatching: d}
}
