package sequence

import (
	"math"
	"slices"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

const (
	// short is the longest wait for which a worker sleeps; beyond it a runtime timer's lateness matters little.
	short = 2 * time.Millisecond
	// sweepEvery is how long requests of disconnected clients may stay queued.
	sweepEvery = 100 * time.Millisecond
	// soon is the shortest time until the timer fires, so that several close deadlines fire it once.
	soon = time.Millisecond
)

// arm schedules another attempt when a batch's delay has ended. Called with the lock held.
func (s *Scheduler) arm(d time.Duration) {
	if s.armed || s.closed {
		return
	}
	if d > short {
		s.wakeBy(telemetry.Now() + int64(d))
		return
	}
	s.armed = true
	s.workers.GoAfter(delayedBatch{s}, d)
}

// delayedBatch runs on a worker when a batch's delay has ended.
type delayedBatch struct{ *Scheduler }

// Help clears armed and helps the scheduler.
func (a delayedBatch) Help(t *scheduler.RunLoop) bool {
	a.mu.Lock()
	a.armed = false
	a.mu.Unlock()
	return a.Scheduler.Help(t)
}

// schedule sets the timer to the next deadline. Called with the lock held.
func (s *Scheduler) schedule(now int64) {
	at := s.batcher.due(now)
	if s.batcher.queued > 0 {
		at = min(at, now+int64(sweepEvery))
	}
	if at != math.MaxInt64 {
		s.wakeBy(max(at, now+int64(soon)))
	}
}

// wakeBy sets the timer unless it fires earlier. Called with the lock held.
func (s *Scheduler) wakeBy(at int64) {
	if at >= s.wakes || s.closed {
		return
	}
	s.wakes = at
	d := time.Duration(max(at-telemetry.Now(), 0))
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() { s.workers.Go(timerFired{s}) })
		return
	}
	s.timer.Reset(d)
}

// timerFired runs on a worker when the timer has fired.
type timerFired struct{ *Scheduler }

// Help ends expired sequences and requests, and executes batches that became possible.
func (k timerFired) Help(t *scheduler.RunLoop) bool {
	s, now := k.Scheduler, telemetry.Now()
	t.Tick(now)
	var dropped scheduler.TaskList
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.wakes = math.MaxInt64
	s.batcher.reap(now, &dropped)
	s.batcher.sweep(now, &dropped)
	ready := s.batcher.startable()
	s.schedule(now)
	s.mu.Unlock()
	if ready {
		t.Ready(s)
	}
	return s.drop(dropped, t) || ready
}

// responder receives the responses of a decoupled model.
type responder struct{ s *Scheduler }

// Complete is never called: the runner returns an executed batch.
func (responder) Complete(scheduler.TaskList, *scheduler.RunLoop) {}

// Respond passes a response to the slot's request, without the states in it.
func (a responder) Respond(w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	defer tensor.ReleaseAll(out)
	sl, ok := w.Run.(*slot)
	if !ok {
		return nil // a placeholder row
	}
	if err := a.s.keepStates(sl, out); err != nil {
		return err
	}
	to, ok := sl.outer.To.(scheduler.Responder)
	if !ok {
		return status.Errorf(status.Unsupported, "model '%s' is decoupled, which is not supported here", a.s.sig.Model)
	}
	for i, port := range a.s.ports.out {
		sl.outputs[i] = out[port].Move()
	}
	return to.Respond(sl.outer, sl.outputs, params, final)
}

// Account implements scheduler.Accounts: that of the slot's request.
func (responder) Account(run any, _ int32) (*telemetry.Step, *telemetry.RunSums) {
	if sl, ok := run.(*slot); ok {
		if to, ok := sl.outer.To.(scheduler.Accounts); ok {
			return to.Account(sl.outer.Run, sl.outer.Node)
		}
	}
	return nil, nil
}

// Add adds instances. They take sequences of the backlog at once.
func (s *Scheduler) Add(instances []backends.Instance, limiters []scheduler.Limiter) {
	s.mu.Lock()
	s.join(instances, limiters)
	s.batcher.lost = nil
	s.batcher.spread()
	ready := s.batcher.startable()
	s.schedule(telemetry.Now())
	s.mu.Unlock()
	if ready {
		s.workers.Go(s)
	}
}

// Remove removes an instance when the sequences in its slots have ended; their further requests still execute where
// their states are. If inst stands for several instances, the one with the fewest sequences is removed.
func (s *Scheduler) Remove(inst backends.Instance, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l *instance
	for _, x := range s.batcher.instances {
		if batch.Same(x.inst, inst) && x.leaving == nil && (l == nil || x.taken() < l.taken()) {
			l = x
		}
	}
	s.batcher.remove(l, gone)
}

// join adds instances. Called with the lock held, or before the scheduler is used.
func (s *Scheduler) join(instances []backends.Instance, limiters []scheduler.Limiter) {
	s.workers.Reserve(len(instances))
	for i, inst := range instances {
		l := s.batcher.add()
		l.inst, l.executor, l.at = inst, inst, batch.PlaceOf(inst)
		if i < len(limiters) && limiters[i] != nil {
			l.lease.Open(limiters[i], s, &s.mu, s.workers)
			l.executor = &limited{inst, &l.lease}
		}
	}
}

// leave releases an instance without sequences and calls its owner's callback. Called with the lock held.
func (s *Scheduler) leave(l *instance) {
	for _, sl := range l.slots {
		sl.forget()
	}
	tensor.ReleaseAll(l.zeros)
	s.workers.Reserve(-1)
	s.runner.Forget(l.executor)
	l.leaving()
}

// add adds an instance.
func (b *batcher) add() *instance {
	l := &instance{number: b.counted}
	b.counted++
	b.instances = append(b.instances, l)
	b.room += b.rules.Slots
	return l
}

// spread moves sequences of the backlog to free slots.
func (b *batcher) spread() {
	for len(b.backlog.list) > 0 {
		sl := b.vacant()
		if sl == nil {
			return
		}
		b.inherit(sl)
	}
}

// remove removes an instance, now or when the sequences in its slots have ended.
func (b *batcher) remove(l *instance, gone func()) {
	l.leaving = gone
	b.room -= b.rules.Slots - len(l.slots)
	for _, sl := range l.slots {
		if sl.seq == nil {
			b.free.remove(sl)
		}
	}
	b.dismiss(l)
}

// dismiss removes an instance that is leaving, once no sequence is left in it.
func (b *batcher) dismiss(l *instance) {
	if l.leaving == nil || l.busy || l.taken() > 0 {
		return
	}
	l.lease.Release(false)
	b.instances = slices.DeleteFunc(slices.Clone(b.instances), func(x *instance) bool { return x == l }) // a copy, because a caller may iterate over it
	b.removed(l)
}

// taken returns the number of slots with a sequence.
func (l *instance) taken() (n int) {
	for _, sl := range l.slots {
		if sl.seq != nil {
			n++
		}
	}
	return n
}
