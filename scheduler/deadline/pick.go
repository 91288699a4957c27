package deadline

import "sync"

// Candidate is a queue with a free instance and a batch to execute at a shared device. Times are in ns.
type Candidate struct {
	// Batch is how long the batch takes, Rows its rows, Most the most rows that a batch has, and Full the time of a row in such a batch.
	// Batch and Full are 0 while they are not known.
	Batch      int64
	Rows, Most int
	Full       float64
	// Closes is when the batch must start at the latest for its first request to be in time; NoDeadline without one.
	Closes int64
	// Graph is the number of the step's graph, and Depth its longest distance from the beginning of that. Both are 0 for a model that is no
	// step.
	Graph int64
	Depth int
}

// NoDeadline is the Closes of a batch without a deadline.
const NoDeadline = int64(1<<63 - 1)

// Pick returns the position of the candidate that a device executes next at a time; -1 without candidates.
//
// Within a graph the deepest goes first, which ends what has begun: requests then wait before their first step, where one that will be late has
// cost nothing, and a batch passes all steps as one. Of equal depth it is the one that loses least time per row against a full batch. A batch
// waits for one of an earlier step that loses less and fits into it as a whole: their rows then need one execution less.
// Before the batch that results goes one that is as deep or deeper, and whose window would close meanwhile.
//
// Of the batches that several graphs would have executed it is the one that loses least, and before it one whose window would close meanwhile.
//
// For example, 6 of 16 rows at the last step wait for 8 at the first step, but not for 4, which may still become more, nor for 12, which
// do not fit.
func Pick(now int64, c []Candidate) int {
	best := -1
	for i := range c {
		if of := pickOf(now, c, c[i].Graph); best < 0 || c[of].loss() < c[best].loss() {
			best = of
		}
	}
	urgent := best
	for i := range c {
		if of := pickOf(now, c, c[i].Graph); c[of].Closes < c[urgent].Closes {
			urgent = of
		}
	}
	if urgent >= 0 && c[urgent].Closes < now+c[best].Batch {
		return urgent
	}
	return best
}

// pickOf is Pick among the candidates of one graph, of which there is one.
func pickOf(now int64, c []Candidate, graph int64) int {
	best := -1
	for i := range c {
		if c[i].Graph == graph && (best < 0 || c[i].before(&c[best])) {
			best = i
		}
	}
	for first := best; first >= 0; {
		best, first = first, -1
		for i := range c {
			if c[i].Graph == graph && c[i].joins(&c[best]) && (first < 0 || c[i].before(&c[first])) {
				first = i
			}
		}
	}
	urgent := best
	for i := range c {
		if c[i].Graph == graph && c[i].Depth >= c[best].Depth && c[i].Closes < c[urgent].Closes {
			urgent = i
		}
	}
	if c[urgent].Closes < now+c[best].Batch {
		return urgent
	}
	return best
}

// before reports whether a candidate goes before another one of its graph that came before it, windows apart.
func (c *Candidate) before(d *Candidate) bool {
	return c.Depth > d.Depth || c.Depth == d.Depth && c.loss() <= d.loss()
}

// joins reports whether a batch of an earlier step is worth waiting for, for that of another candidate of its graph. It is not while it is not known
// how long one of them takes.
func (c *Candidate) joins(d *Candidate) bool {
	return c.Full > 0 && d.Full > 0 && c.Depth < d.Depth && c.Rows+d.Rows <= d.Most && c.loss() < d.loss()
}

// loss is the time of a row against that in a full batch; 0 while it is not known.
func (c *Candidate) loss() float64 {
	if c.Full <= 0 {
		return 0
	}
	return float64(c.Batch) / (float64(max(c.Rows, 1)) * c.Full)
}

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
