package tune

import "math"

// cores are the processor cores that all executions share: processor sharing, in which each runnable thread gets an
// equal part. An execution that can use several cores (width) gets a part for each.
type cores struct {
	count float64
	now   float64 // virtual time, ns
	jobs  []*computation
	used  float64 // core nanoseconds
}

// computation is one execution on the cores.
type computation struct {
	left         float64 // ns of the wall time that is left on an idle machine
	width        float64 // cores in use on an idle machine
	interference float64 // of Cost
	done         func()
}

// begin starts a computation, whose done is called by advance.
func (c *cores) begin(wall, width, interference float64, done func()) {
	c.jobs = append(c.jobs, &computation{left: wall, width: width, interference: interference, done: done})
}

// demand returns the cores that the computations would use if there were enough.
func (c *cores) demand() (sum float64) {
	for _, j := range c.jobs {
		sum += j.width
	}
	return sum
}

// rate returns the speed of a computation relative to an idle machine.
func (c *cores) rate(j *computation, demand float64) float64 {
	share := min(1, c.count/demand)
	if c.count <= 1 || j.interference == 0 {
		return share
	}
	others := max(0, min(demand, c.count)-j.width*share)
	return share / (1 + j.interference*min(1, others/(c.count-1)))
}

// next returns when the first computation ends, infinity without any.
func (c *cores) next() float64 {
	demand, at := c.demand(), math.Inf(1)
	for _, j := range c.jobs {
		at = min(at, c.now+j.left/c.rate(j, demand))
	}
	return at
}

// advance lets time pass up to a time that is not after next, and ends the computations that are complete then.
func (c *cores) advance(to float64) {
	demand, passed := c.demand(), to-c.now
	c.used += passed * min(demand, c.count)
	c.now = to
	var ended []*computation
	kept := c.jobs[:0]
	for _, j := range c.jobs {
		if j.left -= passed * c.rate(j, demand); j.left <= epsilon {
			ended = append(ended, j)
		} else {
			kept = append(kept, j)
		}
	}
	clear(c.jobs[len(kept):])
	c.jobs = kept
	for _, j := range ended {
		j.done()
	}
}

// epsilon is more than the rounding error of virtual time, ns: a float64 counts eleven days in eighths.
const epsilon = 1
