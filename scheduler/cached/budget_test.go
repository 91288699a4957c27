//go:build !race

package cached_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// sink completes tasks by releasing them.
type sink struct{}

func (sink) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	for w := list.Pop(); w != nil; w = list.Pop() {
		tensor.ReleaseAll(w.Out)
	}
}

// round returns a function that sends one task with the same input through a scheduler.
func round(tb testing.TB, c func(b *schedtest.Bench) cache.Cache) (once, done func()) {
	tb.Helper()
	b := schedtest.NewBench(tb, schedtest.Signature(8), nil)
	store := c(b)
	s := before(b, store, []backends.Instance{schedtest.Model(schedtest.Share)})
	in := b.Floats([]int64{1, 1}, 1)
	j := b.Job(1)
	w := &j.Task
	w.In, w.To = make([]tensor.Tensor, 1), sink{}
	t := scheduler.NewRunLoop(b.Workers)
	never := func() bool { return false }
	once = func() {
		w.In[0] = in.Retain()
		t.Tick(0)
		t.Stage(s, w)
		t.Dispatch()
		t.RunUntil(never)
	}
	return once, func() {
		in.Release()
		_ = s.Close()
		_ = store.Close()
	}
}

func kept(b *schedtest.Bench) cache.Cache {
	return local.New(local.Settings{Size: 1 << 20, Alloc: b.Alloc})
}

func lost(*schedtest.Bench) cache.Cache { return forgetful{} }

// TestAllocBudget checks that neither a hit nor a miss allocates. It is not parallel: other tests' allocations
// would count.
func TestAllocBudget(t *testing.T) {
	for name, c := range map[string]func(*schedtest.Bench) cache.Cache{"hit": kept, "miss": lost} {
		once, done := round(t, c)
		once()
		if n := testing.AllocsPerRun(200, once); n != 0 {
			t.Errorf("a %s makes %v allocations, want none", name, n)
		}
		done()
	}
}

func BenchmarkCached(b *testing.B) {
	for name, c := range map[string]func(*schedtest.Bench) cache.Cache{"hit": kept, "miss": lost} {
		b.Run(name, func(b *testing.B) {
			once, done := round(b, c)
			defer done()
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
		})
	}
}
