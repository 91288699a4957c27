package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// apart is a decoupled model that detaches its batch, which continues until end is closed.
type apart struct{ entered, leave, detached, end chan struct{} }

func newApart() *apart {
	return &apart{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

// Execute implements backends.Instance.
func (a *apart) Execute(b *backends.Batch) error {
	a.entered <- struct{}{}
	<-a.leave
	b.Detach()
	a.detached <- struct{}{}
	<-a.end
	return nil
}

// TestRemoveDetached checks that an instance whose batches were detached, before or after its removal, is released
// when the last one has ended.
func TestRemoveDetached(t *testing.T) {
	t.Parallel()
	sig := schedtest.Mirror(0, schedtest.Port("INPUT0", tensor.FP32, 1))
	sig.Decoupled = true
	b := schedtest.NewBench(t, sig, nil)
	m := newApart()
	model := schedtest.Model(m.Execute)
	s := queue.New(queue.Settings{Runner: b.Runner, Policy: single{}, Instances: []backends.Instance{model}, Workers: b.Workers})
	var wg sync.WaitGroup
	submit := func() *schedtest.Job {
		j := b.Job(1, b.Floats([]int64{1}, 1))
		wg.Go(func() { b.Submit(s, j) })
		<-m.entered
		return j
	}
	first := submit()
	m.leave <- struct{}{}
	<-m.detached
	second := submit()
	gone := make(chan struct{})
	s.Add([]backends.Instance{schedtest.Model(schedtest.Share)}, nil)
	s.Remove(model, func() { close(gone) })
	m.leave <- struct{}{}
	<-m.detached
	m.end <- struct{}{}
	select {
	case <-gone:
		t.Error("the instance is gone while a batch of its goes on")
	default:
	}
	m.end <- struct{}{}
	<-gone
	schedtest.Wait(first, second)
	wg.Wait()
	last := b.Job(1, b.Floats([]int64{1}, 1))
	b.Submit(s, last)
	schedtest.Wait(last)
	tensor.ReleaseAll(last.Out)
}

// TestRemoveLimited checks the removal of an instance that waits for its limiter, and of one that executes: other
// instances receive the resources that they held or waited for.
func TestRemoveLimited(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	a := device.New(device.Settings{RateLimit: true, Limits: []device.Limit{{Name: "R", Count: 1, Device: device.EveryDevice}}})
	var now, most atomic.Int64
	instance := func() *limited { return &limited{now: &now, most: &most} }
	x, y, z := instance(), instance(), instance()
	x.wait = make(chan struct{})
	y.wait = x.wait
	behind := limiters(t, a, 3, 1)
	s := queue.New(queue.Settings{
		Runner: b.Runner, Policy: oldest{}, Instances: []backends.Instance{x, y}, Limiters: behind[:2], Workers: b.Workers,
	})
	var jobs []*schedtest.Job
	var wg sync.WaitGroup
	for range 4 {
		j := b.Job(1, b.Floats([]int64{1, 1}, 1))
		jobs = append(jobs, j)
		wg.Go(func() { b.Submit(s, j) })
	}
	for x.runs.Load()+y.runs.Load() == 0 || a.Waiting() == 0 {
		continue // one executes, the other waits for what it has
	}
	s.Add([]backends.Instance{z}, behind[2:])
	gone := make(chan struct{}, 2)
	for i, inst := range []backends.Instance{x, y} {
		s.Remove(inst, func() {
			go func() {
				behind[i].(*device.Limiter).Close() //nolint:forcetypeassert // an arbiter's
				gone <- struct{}{}
			}()
		})
	}
	<-gone
	close(x.wait)
	<-gone
	schedtest.Wait(jobs...)
	wg.Wait()
	for _, j := range jobs {
		schedtest.Numbers[float32](t, j, 0, []int64{1, 1}, 1)
		j.Release()
	}
	if n := x.runs.Load() + y.runs.Load(); n != 1 || z.runs.Load() != 3 || most.Load() > 1 || a.Waiting() > 0 {
		t.Errorf("the removed instances executed %d batches, the new one %d; %d at a time, %d in line", n, z.runs.Load(), most.Load(), a.Waiting())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
