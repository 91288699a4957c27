package sequence

import (
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// Lose implements scheduler.Losing. The sequences of the instances end, and a later request of one fails with why, unless it starts a
// new one.
func (s *Scheduler) Lose(at tensor.Place, why error, gone func(inst backends.Instance)) {
	s.mu.Lock()
	b := s.batcher
	for _, l := range slices.Clone(b.instances) {
		if l.at == at {
			b.lose(l, why, func() { gone(l.inst) }, &s.refused)
		}
	}
	if !slices.ContainsFunc(b.instances, func(l *instance) bool { return l.leaving == nil }) {
		b.lost = why
		for len(b.backlog.list) > 0 {
			x := b.backlog.pop()
			b.failQueued(x, why, &s.refused)
			b.recycle(x)
		}
	}
	ready := s.refused.Len() > 0 || b.startable()
	s.schedule(telemetry.Now())
	s.mu.Unlock()
	if ready {
		s.workers.Go(s)
	}
}

// lose removes an instance that cannot execute any more, now or when its batch has ended, and ends the sequences in its slots.
func (b *batcher) lose(l *instance, why error, gone func(), dropped *scheduler.TaskList) {
	if l.leaving == nil {
		b.remove(l, gone)
	}
	for _, sl := range l.slots {
		if s := sl.seq; s != nil {
			b.breakOff(s, why, dropped)
		}
	}
}

// breakOff ends a sequence in a slot whose states are lost. One that executes ends with its batch.
func (b *batcher) breakOff(s *sequence, why error, dropped *scheduler.TaskList) {
	why = status.With(status.SequenceEnded, status.Prefixf(why, "sequence %s for model '%s' has ended: ", s.id, b.model))
	if b.live[s.id] == s {
		b.broken[s.id] = why
	}
	s.ended = true
	b.forget(s)
	b.failQueued(s, why, dropped)
	sl := s.at
	switch s.state {
	case ready:
		sl.instance.ready.remove(s)
		if w := sl.outer; w != nil { // to be executed once more
			w.Err = why
			b.queued--
			dropped.Push(w)
		}
		b.release(s)
	case idle:
		b.idle.remove(s)
		b.release(s)
	case running, backlogged:
	}
}

// failQueued drops the requests of a sequence that wait.
func (b *batcher) failQueued(s *sequence, why error, dropped *scheduler.TaskList) {
	for w := s.queue.Pop(); w != nil; w = s.queue.Pop() {
		w.Err = why
		b.queued--
		dropped.Push(w)
	}
}

// refusal returns why a request cannot join or start a sequence: its sequence was broken off, or no instance is left.
func (b *batcher) refusal(key id, start, end bool) error {
	why := b.broken[key]
	if start || end {
		delete(b.broken, key)
	}
	if why != nil && !start {
		return why
	}
	return b.lost
}
