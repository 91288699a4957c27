package cached

import (
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// sweepEvery is how long followers whose clients have gone may go unnoticed.
const sweepEvery = 100 * time.Millisecond

// sweepLater has a worker look for followers whose clients have gone.
func (c *Scheduler) sweepLater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.swept || c.closed:
		return
	case c.broom == nil:
		c.broom = time.AfterFunc(sweepEvery, func() { c.workers.Go(sweep{c}) })
	default:
		c.broom.Reset(sweepEvery)
	}
	c.swept = true
}

// sweep is what the workers help while works follow others.
type sweep struct{ *Scheduler }

// Help gives up the followers whose clients have gone.
func (s sweep) Help(t *scheduler.RunLoop) bool {
	s.mu.Lock()
	s.swept = false
	s.mu.Unlock()
	gone, left := s.flights.Take(nil, func(w *scheduler.Task) bool { return w.Ctx.Err() != nil })
	if left {
		s.sweepLater()
	}
	var done scheduler.TaskList
	now := telemetry.Now()
	for _, w := range gone {
		s.stats.Queued(-1)
		s.cancel(w, now)
		done.Push(w)
	}
	s.finish(done, scheduler.TaskList{}, t)
	return len(gone) > 0
}
