package scheduler

import "github.com/tutti-server/tutti/backends"

// Yields reports whether Pause gives up everything that other works could wait for:
// the instance is one that any number of goroutines share, and no answers of others
// wait for those of w to leave first.
func (w *Task) Yields() bool {
	return w.queued.host != nil && w.queued.host.lends() && w.queued.host.order == nil
}

// Pause tells the scheduler that w, which is executing, is about to wait for something
// outside of it, as a client that reads slowly. Until Resume another work may have the
// place of a shared instance, so that those who wait cost no one theirs. An instance
// behind a gate leaves it, and goes on without asking again: what w waits for may need
// what the gate holds.
func (w *Task) Pause() {
	if w.queued.host != nil {
		w.queued.host.pause(w)
	}
}

// Resume ends what Pause began.
func (w *Task) Resume() {
	if w.queued.host != nil {
		w.queued.host.resume()
	}
}

// attend notes who executes the works of a decoupled model.
func (s *Queue) attend(inst backends.Instance, batch *TaskList) {
	if !s.runner.sig.Decoupled {
		return
	}
	for w := batch.Head; w != nil; w = w.next {
		w.queued.host, w.queued.inst, w.queued.detached = s, inst, false
	}
}

// detach frees the instance of a batch that goes on without it: the batch keeps its worker, and another may take the
// instance.
func (s *Queue) detach(batch []*Task) {
	s.mu.Lock()
	if s.shared || s.alarms.closed || batch[0].queued.detached {
		s.mu.Unlock()
		return
	}
	for _, w := range batch {
		w.queued.detached = true
		s.rows -= w.Rows
	}
	more := s.queue.n > 0
	s.part(batch[0].queued.inst)
	s.vacate(batch[0].queued.inst, more)
	s.mu.Unlock()
	s.workers.Reserve(1)
	if more {
		s.workers.Kick(s)
	}
}

// rejoin ends a detached batch, whose worker is free again. It reports whether batch is one. Called with the lock held.
func (s *Queue) rejoin(batch *TaskList) bool {
	if w := batch.Head; w == nil || w.queued.host != s || !w.queued.detached {
		return false
	}
	s.workers.Reserve(-1)
	s.rejoined(batch.Head.queued.inst)
	return true
}

// lends reports whether places of paused works are lent. The gates of a shared instance never change.
func (s *Queue) lends() bool { return s.shared && len(s.gates) == 0 }

// pause lends a shared instance's place to another work.
func (s *Queue) pause(w *Task) {
	s.mu.Lock()
	if g, ok := w.queued.inst.(*gated); ok && g.pass == inside && !w.queued.detached {
		g.pass = outside
		g.gate.Release()
	}
	if !s.lends() || s.alarms.closed {
		s.mu.Unlock()
		return
	}
	s.free = append(s.free, w.queued.inst)
	more := s.queue.n > 0
	s.mu.Unlock()
	s.workers.Reserve(1)
	if more {
		s.workers.Kick(s)
	}
}

// resume takes a place back; when all are taken, the next one that becomes free is it.
func (s *Queue) resume() {
	s.mu.Lock()
	if !s.lends() || s.alarms.closed {
		s.mu.Unlock()
		return
	}
	if n := len(s.free); n > 0 {
		s.free = s.free[:n-1]
	} else {
		s.owed++
	}
	s.mu.Unlock()
	s.workers.Reserve(-1)
}
