package deadline

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
