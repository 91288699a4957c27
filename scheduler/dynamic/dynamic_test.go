package dynamic_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func maker(r dynamic.Rules) schedtest.Make {
	return func(b *schedtest.Bench, instances []backends.Instance) scheduler.Scheduler {
		return dynamic.New(dynamic.Settings{Runner: b.Runner, Instances: instances, Workers: b.Workers}, r)
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]dynamic.Rules{
		"plain":      {MaxBatch: 8},
		"preferred":  {MaxBatch: 8, Preferred: []int32{2, 4}},
		"delay":      {MaxBatch: 8, Delay: 100 * time.Microsecond},
		"long delay": {MaxBatch: 8, Delay: 3 * time.Millisecond},
		"ordered":    {MaxBatch: 8, Ordered: true},
		"levels":     {MaxBatch: 8, Levels: queue.Levels{Count: 3, Default: 2}},
		"timeouts":   {MaxBatch: 8, Levels: queue.Levels{Policy: queue.Policy{Timeout: time.Hour, MaxSize: 1000}}},
		"padded":     {MaxBatch: 8, Padded: true, MaxElements: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schedtest.Run(t, maker(r))
		})
	}
}

// TestPaddingIsMeasured checks that padding is counted separately from the elements of requests.
func TestPaddingIsMeasured(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Signature(8), map[string]string{"pad.INPUT0": "0"})
	s := maker(dynamic.Rules{MaxBatch: 8, Padded: true, MaxElements: 1 << 20})(b, []backends.Instance{schedtest.Model(schedtest.Copy)})
	jobs := []*schedtest.Job{b.Job(1, b.Floats([]int64{1, 3}, 1, 2, 3)), b.Job(2, b.Floats([]int64{2, 1}, 4, 5))}
	b.Submit(s, jobs...)
	schedtest.Wait(jobs...)
	for _, j := range jobs {
		if j.Err != nil {
			t.Error(j.Err)
		}
		j.Release()
	}
	if given, added := b.Stats.Padding(); given != 5 || added != 4 {
		t.Errorf("%d elements and %d of padding, want 5 and 4", given, added)
	}
}
