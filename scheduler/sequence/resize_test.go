package sequence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// bound is an instance that fails the test when a sequence comes from another instance.
type bound struct {
	*adder
	t       *testing.T
	limiter *device.Limiter
	where   *sync.Map // the instance of each sequence, by its id
	gone    atomic.Bool
}

// Execute implements backends.Instance.
func (x *bound) Execute(_ context.Context, b *backends.Batch) error {
	if x.gone.Load() {
		x.t.Error("an instance executes after it was removed")
	}
	ready, start, ids := b.In[0].Bytes(), tensor.Slice[int32](&b.In[3]), tensor.Slice[uint64](&b.In[5])
	for row := range ready {
		if ready[row] == 0 {
			continue
		}
		if start[row] == 1 {
			x.where.Store(ids[row], x)
		}
		if at, _ := x.where.Load(ids[row]); at != x {
			x.t.Errorf("sequence %d is at another instance than before", ids[row])
		}
	}
	return x.model(b)
}

// Close implements backends.Instance.
func (*bound) Close() error { return nil }

// TestResize checks that each sequence stays at one instance from its start to its end, with its states, while
// instances are added and removed, and that every removed instance is released once its sequences have ended.
func TestResize(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]string{"direct": "direct {}", "oldest": "oldest { max_candidate_sequences: 2 }"} {
		for _, limited := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", limiters"}[limited], func(t *testing.T) {
				t.Parallel()
				resizeStorm(t, strategy, limited)
			})
		}
	}
}

func resizeStorm(t *testing.T, strategy string, limited bool) {
	t.Helper()
	cfg := text(strategy+" max_sequence_idle_microseconds: 3600000000", "")
	full, public := ports(t, 2, cfg)
	b := schedtest.NewBench(t, public, nil)
	arbiter := device.New(device.Settings{RateLimit: limited})
	a, where := &adder{order: map[uint64][]int32{}}, &sync.Map{}
	fresh := func() *bound {
		g, err := arbiter.Register([]device.Demand{{Resources: []device.Resource{{Name: "R", Count: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		return &bound{adder: a, t: t, limiter: g.Limiters[0], where: where}
	}
	now := []*bound{fresh()}
	s, err := buildLimited(b, cfg, full, public, b.Alloc, []backends.Instance{now[0]}, limitersOf(now[0]))
	if err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var ended atomic.Int64
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() {
			for k := 0; !over.Load(); k++ {
				ask(t, b, s, uint64(c+1))
				ended.Add(1)
			}
		})
	}
	rng, removed := rand.New(rand.NewPCG(3, 4)), 0
	var gone sync.WaitGroup
	for range 80 {
		if len(now) == 1 || len(now) < 5 && rng.IntN(2) == 0 {
			x := fresh()
			s.Add([]backends.Instance{x}, limitersOf(x))
			now = append(now, x)
			continue
		}
		i := rng.IntN(len(now))
		x := now[i]
		now = append(now[:i], now[i+1:]...)
		gone.Add(1)
		removed++
		s.Remove(x, func() {
			x.gone.Store(true)
			go func() {
				x.limiter.Close()
				gone.Done()
			}()
		})
		for before := ended.Load(); ended.Load() == before; { // sequences end meanwhile
			runtime.Gosched()
		}
	}
	over.Store(true)
	clients.Wait()
	gone.Wait()
	if err := errors.Join(s.Drain(t.Context()), s.Close()); err != nil || removed == 0 || arbiter.Waiting() > 0 {
		t.Errorf("%v; %d were removed, %d are in line", err, removed, arbiter.Waiting())
	}
	if n := b.Stats.Pending(); n != 0 || len(a.wrong) > 0 {
		t.Errorf("pending gauge is %d, faults %v", n, a.wrong)
	}
}

// TestCloseRemoved checks that Close releases a removed instance that still has a sequence, and leaves closing it
// to its owner.
func TestCloseRemoved(t *testing.T) {
	t.Parallel()
	cfg := text("direct {} max_sequence_idle_microseconds: 3600000000", "")
	full, public := ports(t, 1, cfg)
	b := schedtest.NewBench(t, public, nil)
	a := &adder{order: map[uint64][]int32{}}
	x := &bound{adder: a, t: t, where: &sync.Map{}}
	s, err := build(b, cfg, full, public, b.Alloc, []backends.Instance{x, schedtest.Model(a.model)})
	if err != nil {
		t.Fatal(err)
	}
	j := number(t, b, infer.Sequence{ID: 1, Start: true}, 5)
	b.Submit(s, j)
	schedtest.Wait(j)
	sum(t, j, 5)
	s.Remove(x, func() { x.gone.Store(true) })
	if x.gone.Load() {
		t.Error("an instance with a sequence is gone")
	}
	if err := s.Close(); err != nil || !x.gone.Load() {
		t.Errorf("%v; the instance is gone: %t", err, x.gone.Load())
	}
}

// limitersOf returns the limiter of an instance, none when nothing limits it.
func limitersOf(x *bound) []scheduler.Limiter {
	if x.limiter == nil {
		return nil
	}
	return []scheduler.Limiter{x.limiter}
}

// ask sends a sequence, request by request.
func ask(t *testing.T, b *schedtest.Bench, s scheduler.Scheduler, id uint64) {
	t.Helper()
	total := int32(0)
	for i := range 4 {
		j := number(t, b, infer.Sequence{ID: id, Start: i == 0, End: i == 3}, int32(i+1))
		b.Submit(s, j)
		schedtest.Wait(j)
		total += int32(i + 1)
		sum(t, j, total)
	}
}
