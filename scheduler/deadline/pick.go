package deadline

import "sync"

// Candidate is a queue with a free instance and a batch to execute at a shared device. Times are in ns.
type Candidate struct {
	// Batch is how long the batch takes, Rows its rows, and Full the time of a row in a full batch.
	Batch int64
	Rows  int
	Full  float64
	// Closes is when the batch must start at the latest for its first request to be in time; NoDeadline without one.
	Closes int64
	// Depth is the longest distance of the step from the beginning of its graph.
	Depth int
}

// NoDeadline is the Closes of a batch without a deadline.
const NoDeadline = int64(1<<63 - 1)

// Pick returns the position of the candidate that a device executes next at a time: the one whose batch loses least time per row against
// a full one, so that partial batches grow while others execute; of equal ones the deepest, which ends what has begun. One that is as deep or deeper
// goes first whose window would close meanwhile. It returns -1 without candidates.
func Pick(now int64, c []Candidate) int {
	best, urgent := -1, -1
	for i := range c {
		if urgent < 0 || c[i].Closes < c[urgent].Closes || c[i].Closes == c[urgent].Closes && c[i].Depth >= c[urgent].Depth {
			urgent = i
		}
		if best < 0 {
			best = i
			continue
		}
		a, b := c[i].loss(), c[best].loss()
		if a < b || a == b && c[i].Depth >= c[best].Depth {
			best = i
		}
	}
	if best >= 0 && c[urgent].Depth >= c[best].Depth && c[urgent].Closes < now+c[best].Batch {
		return urgent
	}
	return best
}

// loss is the time of a row against that in a full batch.
func (c *Candidate) loss() float64 { return float64(c.Batch) / (float64(max(c.Rows, 1)) * c.Full) }

// Bid is the Candidate of a queue that shares a device with others, as the queue publishes it. It is safe for concurrent use.
type Bid struct {
	mu     sync.Mutex
	next   Candidate // guarded by mu
	queued int64     // guarded by mu
}

// Set publishes the batch that the queue would execute next, of 0 rows for none, and how long everything takes that is queued.
func (b *Bid) Set(next Candidate, queued int64) {
	b.mu.Lock()
	b.next, b.queued = next, queued
	b.mu.Unlock()
}

// Next returns the batch of Set.
func (b *Bid) Next() Candidate {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

// Queued returns how long everything takes that is queued, in ns: in one of the two, by whether Next has a deadline.
func (b *Bid) Queued() (dated, undated int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next.Closes == NoDeadline {
		return 0, b.queued
	}
	return b.queued, 0
}

// Take says that Next executes: until the next Set, the queue offers nothing.
func (b *Bid) Take() {
	b.mu.Lock()
	b.queued = max(b.queued-b.next.Batch, 0)
	b.next.Rows = 0
	b.mu.Unlock()
}

// Load is what a device has to do that queues share. Times are in ns.
type Load struct {
	// Slots is how many batches it executes at a time.
	Slots int
	// Busy is how long it takes until it starts another batch.
	Busy int64
	// Queued is how long the batches of all queues take whose next one has a deadline, one after the other, and Undated those of the others.
	Queued, Undated int64
}

// others returns how long a request waits for what is queued elsewhere. Of the queues' work it brings dated and undated itself, and what is
// executed for it takes a time. Batches without a deadline have no more of the device than those with one.
func (l *Load) others(dated, undated, takes int64) int64 {
	return (max(l.Queued-dated, 0) + min(max(l.Undated-undated, 0), takes)) / int64(max(l.Slots, 1))
}

// Device is a device that queues share.
type Device interface {
	// Load returns what it has to do now, as far as queues publish it.
	Load() Load
	// Watch has queues publish what they have to do, from now on: a request with a deadline has come.
	Watch()
	// Watched reports whether Watch was called.
	Watched() bool
}
