package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// limited is a model that records how many of its batches execute at a time.
type limited struct {
	now, most *atomic.Int64
	runs      atomic.Int64
	wait      chan struct{} // unless nil, an execution receives from it
}

func (m *limited) Execute(_ context.Context, b *backends.Batch) error {
	n := m.now.Add(1)
	for old := m.most.Load(); n > old && !m.most.CompareAndSwap(old, n); old = m.most.Load() {
		continue
	}
	m.runs.Add(1)
	if m.wait != nil {
		<-m.wait
	}
	m.now.Add(-1)
	return schedtest.Share(b)
}

func (*limited) Close() error { return nil }

// limiters registers n instances that each need one R of the arbiter.
func limiters(t *testing.T, a *device.Arbiter, n int, priority uint32) []scheduler.Limiter {
	t.Helper()
	demands := make([]device.Demand, n)
	for i := range demands {
		demands[i] = device.Demand{Priority: priority, Resources: []device.Resource{{Name: "R", Count: 1}}}
	}
	g, err := a.Register(demands)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]scheduler.Limiter, n)
	for i, x := range g.Limiters {
		list[i] = x
	}
	return list
}

// TestLimiters checks that queues which share two of a resource execute at most two batches at a time, and that
// every task completes.
func TestLimiters(t *testing.T) {
	t.Parallel()
	const works = 200
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	a := device.New(device.Settings{RateLimit: true, Limits: []device.Limit{{Name: "R", Count: 2, Device: device.EveryDevice}}})
	var now, most atomic.Int64
	var all []scheduler.Scheduler
	for i := range 4 {
		m := &limited{now: &now, most: &most}
		all = append(all, queue.New(queue.Settings{
			Runner: b.Runner, Policy: oldest{}, Instances: []backends.Instance{m, m, m}, Limiters: limiters(t, a, 3, uint32(i)), Workers: b.Workers,
		}))
	}
	var wg sync.WaitGroup
	for _, s := range all {
		for range 3 {
			wg.Go(func() {
				for range works {
					j := b.Job(1, b.Floats([]int64{1, 1}, 1))
					b.Submit(s, j)
					schedtest.Wait(j)
					schedtest.Numbers[float32](t, j, 0, []int64{1, 1}, 1)
					j.Release()
				}
			})
		}
	}
	wg.Wait()
	if n := most.Load(); n > 2 {
		t.Errorf("%d executed at a time", n)
	}
	for _, s := range all {
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseReleased checks that an instance which is admitted after its tasks were cancelled releases its lease.
func TestLeaseReleased(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	a := device.New(device.Settings{RateLimit: true})
	var now, most atomic.Int64
	busy := &limited{now: &now, most: &most, wait: make(chan struct{})}
	make1 := func(m backends.Instance) scheduler.Scheduler {
		return queue.New(queue.Settings{
			Runner: b.Runner, Policy: oldest{}, Instances: []backends.Instance{m}, Limiters: limiters(t, a, 1, 1), Workers: b.Workers,
		})
	}
	first, second := make1(busy), make1(&limited{now: &now, most: &most})
	job := func() *schedtest.Job { return b.Job(1, b.Floats([]int64{1, 1}, 1)) }
	long := job()
	go b.Submit(first, long)
	for busy.runs.Load() == 0 {
		continue
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := job().For(ctx)
	b.Submit(second, gone)
	if n := a.Waiting(); n != 1 {
		t.Errorf("%d wait for the resource, want 1", n)
	}
	cancel()
	close(busy.wait)
	schedtest.Wait(long, gone)
	next := job()
	b.Submit(first, next) // would block forever
	schedtest.Wait(next)
	for _, j := range []*schedtest.Job{long, next} {
		schedtest.Numbers[float32](t, j, 0, []int64{1, 1}, 1)
		j.Release()
	}
	if gone.Err == nil {
		t.Error("a cancelled work was executed")
	}
}

// TestRanks checks that of the free instances of a model the one executes that has executed least, weighted by
// priority.
func TestRanks(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	a := device.New(device.Settings{RateLimit: true})
	g, err := a.Register([]device.Demand{{Priority: 1}, {Priority: 3}})
	if err != nil {
		t.Fatal(err)
	}
	var now, most atomic.Int64
	m, n := &limited{now: &now, most: &most}, &limited{now: &now, most: &most}
	s := queue.New(queue.Settings{
		Runner: b.Runner, Policy: oldest{}, Instances: []backends.Instance{m, n},
		Limiters: []scheduler.Limiter{g.Limiters[0], g.Limiters[1]}, Workers: b.Workers,
	})
	for range 400 {
		j := b.Job(1, b.Floats([]int64{1, 1}, 1))
		b.Submit(s, j)
		schedtest.Wait(j)
		tensor.ReleaseAll(j.Out)
	}
	if m.runs.Load() != 300 || n.runs.Load() != 100 {
		t.Errorf("executions are %d and %d, want 300 and 100", m.runs.Load(), n.runs.Load())
	}
}
