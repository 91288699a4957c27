package queue

import (
	"runtime"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// coalescer decides whether to delay a partial batch for requests that are likely to come: clients
// whose responses left together tend to send their next requests together. Goroutines that are
// ready to run but have no processor cannot have sent yet, so a goroutine that would execute less
// than a full batch yields to them first. The instance stays free meanwhile. Without the delay,
// callers that share too few processors would execute their requests one by one.
//
// For example, eight clients in a loop on two processors: after one batch of eight, the first of
// them is back while seven wait for a processor. It yields, and the next batch has eight again.
type coalescer struct {
	// credit is how many batches of one may follow before no companion is likely; below zero it
	// counts those that did.
	credit int
	// yielding reports that a goroutine yields and then forms a batch.
	yielding bool
}

const (
	// creditOfMany is the credit after a batch of several tasks.
	creditOfMany = 16
	// retryAfterAlone is after how many batches of one it tries again: that costs a single
	// client a few nanoseconds a request.
	retryAfterAlone = 64
	// maxYield bounds how long a goroutine yields while each time more tasks come.
	maxYield = 50 * time.Microsecond
	// minCost is what a task must take of an instance, in ns: a model that does next to nothing
	// is faster without a batch.
	minCost = 250
)

// saw notes a batch of n tasks.
func (c *coalescer) saw(n int) {
	switch {
	case n > 1:
		c.credit = creditOfMany
	case c.credit > -retryAfterAlone:
		c.credit--
	default:
		c.credit = 1
	}
}

// likely reports whether more tasks are likely to come that are worth a delay. Called with the
// lock held.
func (q *Queue) likely() bool { return q.coalescer.credit > 0 && q.perTask > minCost }

// full reports whether the queue has rows for a full batch.
func (q *Queue) full() bool { return q.backlog.rows >= int32(q.runner.Signature().MaxBatch) }

// yields reports whether to yield before a batch is formed. Called with the lock held.
func (q *Queue) yields() bool {
	return q.likely() && !q.coalescer.yielding && q.hold == 0 && len(q.free) > 0 && q.backlog.n > 0 && !q.full()
}

// yield lets other goroutines run as long as that brings more tasks. Called with the lock held,
// which it releases meanwhile.
func (q *Queue) yield(t *scheduler.RunLoop) {
	q.coalescer.yielding = true
	until := t.Now() + int64(maxYield)
	for rows := int32(0); rows < q.backlog.rows && !q.full() && t.Now() < until; {
		rows = q.backlog.rows
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		t.Tick(telemetry.Now())
	}
	q.coalescer.yielding = false
}
