package schedtest

import (
	"errors"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// lost checks the loss of all instances: the batch in flight ends, queued tasks and later ones fail with the reason, each instance comes
// back once, and instances that are added serve again.
func lost(t *testing.T, makeScheduler Make) {
	t.Helper()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	list, own := removables(t, 1, func(b *backends.Batch) error {
		entered <- struct{}{}
		<-leave
		return Copy(b)
	})
	b := NewBench(t, Signature(maxBatch), nil)
	s, ok := makeScheduler(b, list).(scheduler.Losing)
	if !ok {
		t.Skip("its instances are never at a device")
	}
	held := b.single(-1)
	var wg sync.WaitGroup
	wg.Go(func() { b.Submit(s, held) })
	<-entered
	var jobs []*Job
	for i := range 5 {
		jobs = append(jobs, b.single(float32(i)))
	}
	b.Submit(s, jobs...)
	why := status.Errorf(status.Unavailable, "the device is lost")
	gone := make(chan backends.Instance, 2)
	s.Lose(tensor.Place{Kind: tensor.Device}, why, func(backends.Instance) { t.Error("an instance elsewhere is lost") })
	s.Lose(tensor.Place{}, why, func(inst backends.Instance) { gone <- inst })
	for range 2 {
		late := b.single(7)
		b.Submit(s, late)
		Wait(late)
		jobs = append(jobs, late)
	}
	if len(gone) > 0 {
		t.Error("the instance is gone while it executes")
	}
	close(leave)
	wg.Wait()
	Wait(append(jobs, held)...) // where responses leave in order, after the batch in flight
	for _, j := range jobs {
		if j.refused(t, status.Unavailable); !errors.Is(j.Err, why) {
			t.Errorf("a task failed with %v", j.Err)
		}
	}
	held.expect(t, -1)
	own[0].leave()
	if inst := <-gone; inst != list[0] {
		t.Errorf("another instance is gone: %v", inst)
	}
	if r, ok := s.(scheduler.Resizable); ok {
		more, _ := removables(t, 1, Copy)
		r.Add(more, nil)
		again := b.single(3)
		b.Submit(s, again)
		Wait(again)
		again.expect(t, 3)
	}
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d tasks are in flight", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
