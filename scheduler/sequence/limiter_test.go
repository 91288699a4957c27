package sequence_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/device"
	"github.com/tutti-server/tutti/scheduler/schedtest"
	"github.com/tutti-server/tutti/scheduler/sequence"
)

// limited is a model that records how many of its batches execute at a time.
type limited struct {
	now, most, runs atomic.Int64
	wait            chan struct{} // unless nil, an execution receives from it
}

func (m *limited) model(b *backends.Batch) error {
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

// limiters registers n instances that each need one R of the arbiter.
func limiters(t *testing.T, a *device.Arbiter, n int) []scheduler.Limiter {
	t.Helper()
	demands := make([]device.Demand, n)
	for i := range demands {
		demands[i] = device.Demand{Priority: 1, Resources: []device.Resource{{Name: "R", Count: 1}}}
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

// behind returns a scheduler of iterative sequences whose instances, all m, have limiters.
func behind(t *testing.T, b *schedtest.Bench, strategy string, m *limited, limiters ...scheduler.Limiter) *sequence.Scheduler {
	t.Helper()
	list := make([]backends.Instance, len(limiters))
	for i := range list {
		list[i] = schedtest.Model(m.model)
	}
	s, err := buildLimited(b, `sequence_batching { `+strategy+` iterative_sequence: true }`, b.Sig, b.Sig, b.Alloc, list, limiters)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLimiters checks that schedulers which share two of a resource execute at most two batches at a time, and that
// every request has a response.
func TestLimiters(t *testing.T) {
	t.Parallel()
	const each = 200
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	a := device.New(device.Settings{RateLimit: true, Limits: []device.Limit{{Name: "R", Count: 2, Device: device.EveryDevice}}})
	var m limited
	all := []*sequence.Scheduler{
		behind(t, b, "direct {}", &m, limiters(t, a, 3)...), behind(t, b, "oldest {}", &m, limiters(t, a, 2)...),
		behind(t, b, "direct { minimum_slot_utilization: 1 max_queue_delay_microseconds: 100 }", &m, limiters(t, a, 2)...),
	}
	var wg sync.WaitGroup
	for _, s := range all {
		for range 3 {
			wg.Go(func() {
				for i := range each {
					j := b.Job(1, b.Floats([]int64{1, 1}, float32(i)))
					b.Submit(s, j)
					schedtest.Wait(j)
					if j.Err != nil || tensor.Slice[float32](&j.Out[0])[0] != float32(i) {
						t.Errorf("request %d: %v", i, j.Err)
					}
					j.Release()
				}
			})
		}
	}
	wg.Wait()
	if n := m.most.Load(); n > 2 {
		t.Errorf("%d executed at a time", n)
	}
	for _, s := range all {
		if err := errors.Join(s.Drain(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseReleased checks that an instance which is admitted after its requests were cancelled releases its lease.
func TestLeaseReleased(t *testing.T) {
	t.Parallel()
	b := schedtest.NewBench(t, schedtest.Signature(8), nil)
	a := device.New(device.Settings{RateLimit: true})
	busy, other := &limited{wait: make(chan struct{})}, new(limited)
	first, second := behind(t, b, "direct {}", busy, limiters(t, a, 1)...), behind(t, b, "direct {}", other, limiters(t, a, 1)...)
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
	if gone.Err == nil || other.runs.Load() != 0 {
		t.Error("a cancelled request was executed")
	}
	for _, j := range []*schedtest.Job{long, next} {
		j.Release()
	}
	for _, s := range []*sequence.Scheduler{first, second} {
		if err := errors.Join(s.Drain(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestLimiterKeepsOrder checks that the requests of a sequence keep their order when the limiter admits one of two
// instances.
func TestLimiterKeepsOrder(t *testing.T) {
	t.Parallel()
	a := device.New(device.Settings{RateLimit: true})
	b, s, seen := benchLimited(t, text("direct {}", ""), 2, limiters(t, a, 2))
	var jobs []*schedtest.Job
	for k := range 50 {
		for id := range uint64(4) {
			jobs = append(jobs, number(t, b, infer.Sequence{ID: id + 1, Start: k == 0, End: k == 49}, int32(k)))
		}
	}
	b.Submit(s, jobs...)
	schedtest.Wait(jobs...)
	for i, j := range jobs {
		k := int32(i / 4)
		sum(t, j, k*(k+1)/2)
	}
	for id, sent := range seen.order {
		for k, v := range sent {
			if int(v) != k {
				t.Fatalf("sequence %d ran as %v", id, sent)
			}
		}
	}
	if n := a.Waiting(); n != 0 {
		t.Errorf("%d still wait for the resource", n)
	}
}
