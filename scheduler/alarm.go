package scheduler

import (
	"math"
	"time"
)

// alarms are what makes a station look at its queue while nobody comes.
type alarms struct {
	timer  *time.Timer // for the policy
	broom  *time.Timer // for works that are over
	next   int64       // when the policy is asked again, 0 when nobody will
	sweep  int64       // when the queue is looked at, 0 when nobody will
	full   int64       // when all of it is, 0 when nobody knows
	closed bool
}

func (a *alarms) close() {
	a.closed = true
	for _, t := range []*time.Timer{a.timer, a.broom} {
		if t != nil {
			t.Stop()
		}
	}
}

const (
	// short is the longest wait for which a worker is kept; beyond it a runtime timer's
	// lateness matters little.
	short   = 2 * time.Millisecond
	longest = time.Duration(math.MaxInt64)
)

// arm has a worker ask the policy again after d; called with the lock held. A short
// wait is a worker's, for which asking again is what it does when it wakes.
func (s *Queue) arm(now int64, d time.Duration) {
	a := &s.alarms
	d = min(d, time.Hour)
	at := now + int64(d)
	if a.closed || a.next != 0 && a.next <= at {
		return
	}
	a.next = max(at, 1)
	switch {
	case d <= short:
		s.workers.KickAfter(alarm{s}, d)
	case a.timer == nil:
		a.timer = time.AfterFunc(d, func() { s.workers.Kick(alarm{s}) })
	default:
		a.timer.Reset(d)
	}
}

// alarm is what a station has the workers help after a wait.
type alarm struct{ *Queue }

// Help lets the station be armed again, and helps it.
func (a alarm) Help(t *RunLoop) bool {
	a.mu.Lock()
	a.alarms.next = 0
	a.mu.Unlock()
	return a.Queue.Help(t)
}

const (
	// sweepEvery is how long the works of clients that have gone may stay queued while
	// nothing else looks at the queue. A long queue is swept less often, down to
	// sweepLeast, so that sweeping costs a request the same however long the queue is.
	sweepEvery   = 100 * time.Millisecond
	sweepLeast   = 500 * time.Millisecond
	sweepPerWork = 40 * time.Microsecond
)

// sweepLater has a worker look at the queue when the next work is due, or for clients
// that have gone; called with the lock held.
func (s *Queue) sweepLater(now int64) {
	a := &s.alarms
	if a.full == 0 {
		a.full = now + int64(min(sweepEvery+time.Duration(s.queue.n)*sweepPerWork, sweepLeast))
	}
	at := a.full
	if h := s.queue.wheel; h != nil {
		if due, ok := h.next(); ok {
			at = min(at, due)
		}
	}
	if a.closed || a.sweep != 0 && a.sweep <= at {
		return
	}
	a.sweep = at
	if d := time.Duration(max(at-now, 1)); a.broom == nil {
		a.broom = time.AfterFunc(d, func() { s.workers.Kick(sweep{s}) })
	} else {
		a.broom.Reset(d)
	}
}

// sweep is what a station has the workers help while works wait in its queue.
type sweep struct{ *Queue }

// Help drops the works that are over, or puts them behind the others. What is left may
// be another batch than what waited.
func (s sweep) Help(t *RunLoop) bool {
	var dropped TaskList
	s.mu.Lock()
	a, now := &s.alarms, t.Now()
	a.sweep = 0
	if now >= a.full {
		a.full = 0
		s.queue.sweep(now, &dropped)
	} else {
		s.queue.expire(now, &dropped)
	}
	if s.queue.n > 0 {
		s.sweepLater(now)
		if len(s.free) > 0 {
			t.Ready(s.Queue)
		}
	}
	s.mu.Unlock()
	if dropped.n > 0 {
		s.drop(dropped, t)
	}
	return dropped.n > 0
}
