package sequence

import (
	"math"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// errGone is the end of a request whose client has gone.
var errGone = status.ErrCancelled

func reasonOf(err error) telemetry.Reason {
	if status.CodeOf(err) == status.Cancelled {
		return telemetry.Canceled
	}
	return telemetry.Rejected
}

// refusalOf says why a request that never executes failed.
func refusalOf(err error) telemetry.Refusal {
	switch {
	case err == status.ErrDeadline: //nolint:errorlint // never wrapped
		return telemetry.DeadlinePassed
	case status.CodeOf(err) == status.Cancelled:
		return telemetry.ClientGone
	}
	return telemetry.NoSequence
}

const (
	// short is the longest wait for which a worker is kept; beyond it a runtime timer's
	// lateness matters little.
	short = 2 * time.Millisecond
	// sweepEvery is how long the requests of clients that have gone may stay queued.
	sweepEvery = 100 * time.Millisecond
	// soon keeps many near moments from firing the timer for each.
	soon = time.Millisecond
)

// arm has a worker look again when a batch's delay has passed; called with the lock held.
func (s *Scheduler) arm(d time.Duration) {
	if s.armed || s.closed {
		return
	}
	if d > short {
		s.wakeBy(telemetry.Now() + int64(d))
		return
	}
	s.armed = true
	s.workers.GoAfter(alarm{s}, d)
}

// alarm is what the workers help after a delay.
type alarm struct{ *Scheduler }

// Help lets the scheduler be armed again, and helps it.
func (a alarm) Help(t *scheduler.RunLoop) bool {
	a.mu.Lock()
	a.armed = false
	a.mu.Unlock()
	return a.Scheduler.Help(t)
}

// schedule sets the timer to what is due next; called with the lock held.
func (s *Scheduler) schedule(now int64) {
	at := s.book.due(now)
	if s.book.queued > 0 {
		at = min(at, now+int64(sweepEvery))
	}
	if at != math.MaxInt64 {
		s.wakeBy(max(at, now+int64(soon)))
	}
}

// wakeBy sets the timer unless it fires before; called with the lock held.
func (s *Scheduler) wakeBy(at int64) {
	if at >= s.wakes || s.closed {
		return
	}
	s.wakes = at
	d := time.Duration(max(at-telemetry.Now(), 0))
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() { s.workers.Go(tick{s}) })
		return
	}
	s.timer.Reset(d)
}

// tick is what the workers help when the timer fires.
type tick struct{ *Scheduler }

// Help ends what is over, and helps with what that made ready.
func (k tick) Help(t *scheduler.RunLoop) bool {
	s, now := k.Scheduler, telemetry.Now()
	t.Tick(now)
	var dropped scheduler.TaskList
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.wakes = math.MaxInt64
	s.book.reap(now, &dropped)
	s.book.sweep(now, &dropped)
	ready := s.book.startable()
	s.schedule(now)
	s.mu.Unlock()
	if ready {
		t.Ready(s)
	}
	return s.drop(dropped, t) || ready
}

// entrance is what the workers help when an instance is let in that had to wait.
type entrance struct {
	*Scheduler
	l *lane
}

// Help executes a batch with the instance, or has it leave.
func (e entrance) Help(t *scheduler.RunLoop) bool {
	e.mu.Lock()
	e.l.door.Admitted()
	e.mu.Unlock()
	return e.Scheduler.Help(t)
}

// answerer takes the answers of a decoupled model.
type answerer struct{ s *Scheduler }

var _ scheduler.Responder = answerer{}

// Complete is never called: an executed batch comes back from the runner.
func (answerer) Complete(scheduler.TaskList, *scheduler.RunLoop) {}

// Respond passes one answer on to the slot's request, without the states in it.
func (a answerer) Respond(w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	defer tensor.ReleaseAll(out)
	sl, ok := w.Run.(*slot)
	if !ok {
		return nil // nobody's row
	}
	if err := a.s.keep(sl, out); err != nil {
		return err
	}
	to, ok := sl.outer.To.(scheduler.Responder)
	if !ok {
		return status.Errorf(status.Unsupported, "model '%s' is decoupled, which is not supported here", a.s.sig.Model)
	}
	for i, port := range a.s.ports.out {
		sl.answer[i] = out[port].Move()
	}
	return to.Respond(sl.outer, sl.answer, params, final)
}
