package schedtest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/scheduler"
)

// removable is an instance that must not execute after it was removed.
type removable struct {
	tb      testing.TB
	run     Model
	running atomic.Int32
	done    atomic.Int32 // executions
	gone    atomic.Bool
}

// Execute implements backends.Instance.
func (w *removable) Execute(_ context.Context, b *backends.Batch) error {
	if w.running.Add(1) > 1 || w.gone.Load() {
		w.tb.Error("an instance executes twice at a time, or after it was removed")
	}
	err := w.run(b)
	w.done.Add(1)
	w.running.Add(-1)
	return err
}

// Close implements backends.Instance.
func (*removable) Close() error { return nil }

// leave is the callback of Remove.
func (w *removable) leave() {
	if w.running.Load() > 0 || w.gone.Swap(true) {
		w.tb.Error("an instance is gone while it executes, or twice")
	}
}

// worns returns n instances of a model.
func removables(tb testing.TB, n int, run Model) (list []backends.Instance, own []*removable) {
	tb.Helper()
	for range n {
		w := &removable{tb: tb, run: run}
		list, own = append(list, w), append(own, w)
	}
	return list, own
}

// resizable returns the scheduler under test, or skips the test if it is not Resizable.
func resizable(t *testing.T, s scheduler.Scheduler) scheduler.Resizable {
	t.Helper()
	r, ok := s.(scheduler.Resizable)
	if !ok {
		t.Skip("its instances do not change")
	}
	return r
}

// removed checks the removal of a free instance and of one that executes.
func removed(t *testing.T, makeScheduler Make) {
	t.Helper()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	list, own := removables(t, 3, func(b *backends.Batch) error {
		if first(b, 0) < 0 {
			entered <- struct{}{}
			<-leave
		}
		return Copy(b)
	})
	b := NewBench(t, Signature(maxBatch), nil)
	s := resizable(t, makeScheduler(b, list))
	held := b.single(-1)
	var wg sync.WaitGroup
	wg.Go(func() { b.Submit(s, held) })
	<-entered
	busy, idle := own[0], own[1]
	for _, w := range own {
		if w.running.Load() > 0 {
			busy = w
		} else {
			idle = w
		}
	}
	s.Remove(idle, idle.leave)
	s.Remove(busy, busy.leave)
	if !idle.gone.Load() || busy.gone.Load() {
		t.Errorf("the free instance is gone: %t, the busy one %t", idle.gone.Load(), busy.gone.Load())
	}
	var jobs []*Job
	for i := range 20 {
		jobs = append(jobs, b.single(float32(i)))
	}
	b.Submit(s, jobs...)
	close(leave)
	wg.Wait()
	Wait(append(jobs, held)...)
	held.expect(t, -1)
	for i, j := range jobs {
		j.expect(t, float32(i))
	}
	b.settled(t, s, 21, 0, 0)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := busy.done.Load(); n != 1 || !busy.gone.Load() || idle.done.Load() > 0 {
		t.Errorf("the busy instance executed %d batches and is gone: %t", n, busy.gone.Load())
	}
}

// added checks that instances that are added take requests of a busy scheduler.
func added(t *testing.T, makeScheduler Make) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	old, _ := removables(t, 1, func(b *backends.Batch) error {
		once.Do(func() { close(entered) })
		<-leave
		return Copy(b)
	})
	helped := make(chan struct{}, 100)
	more, _ := removables(t, 2, func(b *backends.Batch) error {
		helped <- struct{}{}
		return Copy(b)
	})
	b := NewBench(t, Signature(maxBatch), nil)
	s := resizable(t, makeScheduler(b, old))
	var jobs []*Job
	for i := range 4 * maxBatch {
		jobs = append(jobs, b.single(float32(i)))
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.Submit(s, jobs[0]) })
	<-entered
	wg.Go(func() { b.Submit(s, jobs[1:]...) })
	for s.InFlight() < int64(len(jobs)) {
		runtime.Gosched() // until all are queued
	}
	s.Add(more, nil)
	<-helped
	close(leave)
	wg.Wait()
	Wait(jobs...)
	for i, j := range jobs {
		j.expect(t, float32(i))
	}
	b.settled(t, s, uint64(len(jobs)), 0, 0)
}

// resized checks that every request is served while instances are added and removed.
func resized(t *testing.T, makeScheduler Make) {
	t.Helper()
	const clients, changes = 4, 60
	b := NewBench(t, Signature(maxBatch), nil)
	list, own := removables(t, 2, Copy)
	s := resizable(t, makeScheduler(b, list))
	var over atomic.Bool
	var sent atomic.Uint64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for k := 0; !over.Load(); k++ {
				v := float32(c*100000 + k)
				j, other := b.single(v), b.single(-v)
				b.Submit(s, j, other)
				Wait(j, other)
				j.expect(t, v)
				other.expect(t, -v)
				sent.Add(2)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var out []*removable
	for range changes {
		if len(own) < 2 || rng.IntN(2) == 0 && len(own) < 6 {
			more, its := removables(t, 1+rng.IntN(2), Copy)
			s.Add(more, nil)
			own = append(own, its...)
			continue
		}
		i := rng.IntN(len(own))
		w := own[i]
		own = append(own[:i], own[i+1:]...)
		s.Remove(w, w.leave)
		out = append(out, w)
		for now := sent.Load(); sent.Load() == now; { // a request is served meanwhile
			runtime.Gosched()
		}
	}
	over.Store(true)
	wg.Wait()
	b.settled(t, s, sent.Load(), 0, 0)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, w := range out {
		if !w.gone.Load() {
			t.Error("a removed instance is not gone at the end")
		}
	}
}
