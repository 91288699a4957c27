package scheduler

import (
	"runtime"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// crowd tells when requests are likely to come that can share a batch with the ones
// that wait: clients that were answered together ask again together. Those who are
// ready to run but have no processor cannot have asked yet, so whoever is about to
// execute less than a full batch lets them run first. It gives up its turn and nothing
// else: the instance stays free for a batch that becomes full meanwhile. Without it
// callers that share too few processors would execute their requests one by one.
type crowd struct {
	// credit is how many batches of one may follow before nobody else is expected, and
	// below zero how many did; after some more it is tried again.
	credit int
	// looking says that somebody lets others run and then looks at the queue.
	looking bool
}

const (
	// company is the credit that a batch of several gives.
	company = 16
	// lonely is how many batches of one execute at once before it is tried again
	// whether others are there: that costs an only caller a few nanoseconds a request.
	lonely = 64
	// letting bounds how long others are let run, where each time more of them come.
	letting = 50 * time.Microsecond
	// worth is what a work must take of an instance, in ns: a model that does next to
	// nothing is better executed at once than given a batch.
	worth = 250
)

// saw notes a batch of so many works.
func (c *crowd) saw(works int) {
	switch {
	case works > 1:
		c.credit = company
	case c.credit > -lonely:
		c.credit--
	default:
		c.credit = 1
	}
}

// expects reports whether others are likely to come that are worth waiting for. Called
// with the lock held.
func (s *Queue) expects() bool { return s.crowd.credit > 0 && s.perWork > worth }

// fills reports whether the queue has rows for a full batch.
func (s *Queue) fills() bool { return s.queue.rows >= int32(s.runner.sig.MaxBatch) }

// lets reports whether others should run before a batch is formed. Called with the
// lock held.
func (s *Queue) lets() bool {
	return s.expects() && !s.crowd.looking && s.hold == 0 && len(s.free) > 0 && s.queue.n > 0 && !s.fills()
}

// let lets others run, as long as that brings more works. Called with the lock held,
// which it gives up meanwhile.
func (s *Queue) let(t *RunLoop) {
	s.crowd.looking = true
	until := t.Now() + int64(letting)
	for rows := int32(0); rows < s.queue.rows && !s.fills() && t.Now() < until; {
		rows = s.queue.rows
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		t.Tick(telemetry.Now())
	}
	s.crowd.looking = false
}
