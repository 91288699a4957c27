package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/tensor"
)

// Measured is a batch that a device executes. Its requests are counted once the device has, with the device's durations: Times.Start plus
// those. If the device cannot tell them, the host's times count.
//
// Lifecycle:
//
//  1. Model.Measure returns it. Member and Share add what to count.
//  2. Publish. From then on only its Pending may be used.
//  3. Pending.Finish, of the response, Model.SettleOldest, of a later batch, or Model.Settle, of a reader, counts it, and it is used again.
type Measured struct {
	mu      sync.Mutex
	age     uint64 // how often it was used before
	model   *Model
	span    tensor.Span
	times   Times // of the host until it is counted
	rows    int
	alone   bool
	counted bool
	held    bool // a trace needs the span
	members []measuredMember
	shares  []measuredShare
	told    Told
	learner Learner
	cost    Cost
}

// Cost is what a batch had to compute; see scheduler.Executed.
type Cost struct{ Rows, Elements, Unpadded, Padding int64 }

// Learner is told how long the model took for a batch, in ns: by the device, or by the host if the device cannot tell. It is called by
// readers of the counters, too, and must not block.
type Learner interface{ Learn(c Cost, ns int64) }

// Told is told how long a device took for a batch. It must not block.
type Told interface{ Took(ns int64) }

type measuredMember struct {
	rows     int
	enqueued int64
}

type measuredShare struct {
	step     *Step
	enqueued int64
	sums     *RunSums
}

// RunSums are the phases of the steps of a request so far, in ns. They are safe for concurrent use.
type RunSums struct{ Input, Infer, Output atomic.Int64 }

// Add counts the phases of one step. A batch of one spends no time in most of them.
//
// hot: atomic adds.
func (s *RunSums) Add(t *Times) {
	for _, p := range [...]struct {
		sum *atomic.Int64
		ns  int64
	}{{&s.Input, t.InputEnd - t.Start}, {&s.Infer, t.InferEnd - t.InputEnd}, {&s.Output, t.End - t.InferEnd}} {
		if p.ns != 0 {
			p.sum.Add(p.ns)
		}
	}
}

// Reset sets the sums to zero, with a write for those that are not.
func (s *RunSums) Reset() {
	for _, sum := range [...]*atomic.Int64{&s.Input, &s.Infer, &s.Output} {
		if sum.Load() != 0 {
			sum.Store(0)
		}
	}
}

// Pending is a Measured that may have been counted since. The zero Pending is none.
type Pending struct {
	m   *Measured
	age uint64
}

// measuring are the batches of a model that are not counted yet.
type measuring struct {
	n     atomic.Int32
	mu    sync.Mutex
	list  []*Measured // in the order of their start, guarded by mu
	spare []*Measured // guarded by mu
}

// Measure returns a batch that is counted later. span, which moves to it, has its marks; t are the host's times. alone marks the batch
// of one request. held keeps the span until Pending.Place. told may be nil.
//
// hot: no allocation in the steady state.
func (m *Model) Measure(span tensor.Span, rows int, t *Times, alone, held bool, told Told) *Measured {
	q := &m.measuring
	q.mu.Lock()
	var x *Measured
	if n := len(q.spare); n > 0 {
		x, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		x = &Measured{}
	}
	q.mu.Unlock()
	x.model, x.span, x.times, x.rows, x.alone, x.counted, x.held, x.told = m, span, *t, rows, alone, false, held, told
	return x
}

// Member adds a request that succeeded.
func (x *Measured) Member(rows int, enqueued int64) {
	x.members = append(x.members, measuredMember{rows, enqueued})
}

// Share adds a request of an ensemble: the counters of its step, nil for none, and of its phases.
func (x *Measured) Share(step *Step, enqueued int64, sums *RunSums) {
	x.shares = append(x.shares, measuredShare{step, enqueued, sums})
}

// Teach has l learn what the batch took. It is called before Publish.
func (x *Measured) Teach(l Learner, c Cost) { x.learner, x.cost = l, c }

// Publish lets the batch be counted.
func (x *Measured) Publish() Pending {
	q, p := &x.model.measuring, Pending{x, x.age}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, x)
	q.n.Add(1)
	return p
}

// Settle counts the batches that their device has executed. Readers of a model's counters call it first.
//
// hot: one load when there are none.
func (m *Model) Settle() {
	q := &m.measuring
	if q.n.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.list[:0]
	for _, x := range q.list {
		if !x.free(true) {
			kept = append(kept, x)
			continue
		}
		q.n.Add(-1)
		q.spare = append(q.spare, x)
	}
	clear(q.list[len(kept):])
	q.list = kept
}

const (
	// few is how many batches of a model are not looked at when another one starts, since devices are behind.
	few = 2
	// many is from how many on their device is asked, which costs a call. Before that it mostly is known: batches wait for others.
	many = 32
)

// SettleOldest counts the oldest batches that their device has executed, when there are more than few.
//
// hot: one load when there are few.
func (m *Model) SettleOldest() {
	q := &m.measuring
	if q.n.Load() <= few {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for len(q.list)-n > few && q.list[n].free(len(q.list)-n > many) {
		n++
	}
	if n == 0 {
		return
	}
	q.spare = append(q.spare, q.list[:n]...)
	q.list = slices.Delete(q.list, 0, n)
	q.n.Add(int32(-n)) //nolint:gosec // as many as were added
}

// free counts the batch if its device has executed it, and reports whether it can be used again.
func (x *Measured) free(ask bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.settle(ask) || x.held {
		return false
	}
	x.age++
	x.span.Release()
	x.span, x.told, x.learner = nil, nil, nil
	return true
}

// settle counts the batch if its device has executed it, and reports whether it is counted. The lock is held. See tensor.Span for ask.
func (x *Measured) settle(ask bool) bool {
	if x.counted {
		return true
	}
	ns, ok, err := x.span.Laps(ask)
	if !ok && err == nil {
		return false
	}
	if t := &x.times; ok {
		t.InputEnd = t.Start + ns[0]
		t.InferEnd = t.InputEnd + ns[1]
		t.End = t.InferEnd + ns[2]
		if x.told != nil {
			x.told.Took(t.End - t.Start)
		}
	}
	if x.learner != nil {
		x.learner.Learn(x.cost, x.times.InferEnd-x.times.InputEnd)
	}
	x.count()
	return true
}

func (x *Measured) count() {
	x.counted = true
	m, t := x.model, &x.times
	if x.alone && len(x.members) == 1 {
		m.Alone(x.rows, x.members[0].enqueued, t)
	} else {
		m.Executed(x.rows, t)
		for _, w := range x.members {
			m.Succeeded(w.rows, w.enqueued, t)
		}
	}
	for _, s := range x.shares {
		if s.step != nil {
			s.step.Done(s.enqueued, t)
		}
		if s.sums != nil {
			s.sums.Add(t)
		}
	}
	clear(x.shares)
	x.members, x.shares = x.members[:0], x.shares[:0]
}

// Any reports whether there is a batch, counted or not.
func (p Pending) Any() bool { return p.m != nil }

// Finish counts the batch for a request that ends, whose phases are sums. A device that has not executed it cannot matter to the
// response: of such a batch the host's times count for the request, and its model counts it later.
func (p Pending) Finish(sums *RunSums) {
	x := p.m
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.age != p.age || x.settle(true) {
		return
	}
	for i := range x.shares {
		if s := &x.shares[i]; s.sums == sums {
			s.sums.Add(&x.times)
			s.sums = nil
		}
	}
}

// Place waits until the device has executed the batch, which must be held, and returns its times at the device on the clock of Now. They
// are within the time from when the host began with the batch to when it knew that the device had ended. ok is false when the device cannot tell. It is called once.
func (p Pending) Place() (t Times, ok bool) {
	x := p.m
	x.mu.Lock()
	model, span, begun := x.model, x.span, x.times.Start
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		x.held = false
		x.mu.Unlock() // from here on x may measure another batch
		model.Settle()
	}()
	if span.Wait() != nil {
		return t, false
	}
	known := Now()
	ns, ok, err := span.Laps(true)
	if !ok || err != nil {
		return t, false
	}
	at, _, err := span.Start()
	if err != nil {
		return t, false
	}
	start := max(min(At(at), known-ns[0]-ns[1]-ns[2]), begun)
	return Times{Start: start, InputEnd: start + ns[0], InferEnd: start + ns[0] + ns[1], End: start + ns[0] + ns[1] + ns[2]}, true
}
