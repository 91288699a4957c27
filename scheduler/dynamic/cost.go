package dynamic

import (
	"math"
	"time"
)

// cost learns a model's execution time as
//
//	fixed + perElement*elements + perPadding*padding
//
// by least squares over recent executions, older ones counting less and less. What
// matters to the policy is how much padding one execution saved is worth: some models
// compute padding like anything else, others skip most of it.
//
// Whatever else runs on the machine makes executions slower, never faster, so an
// execution that took longer than expected counts less than one that did not
// (asymmetric least squares, Newey and Powell 1987): what is learned is the cost of
// the model rather than that of its neighbours.
type cost struct {
	seen  float64
	times int           // observations
	m     [3][3]float64 // weighted sums of products of (1, elements, padding)
	v     [3]float64    // weighted sums of products with the time
	fit   [3]float64    // what is learned: fixed, per element, per padding; ns
}

const (
	// forget is the weight an observation keeps when the next one comes: some two
	// hundred count.
	forget = 0.995
	// enough is the weight of observations before what was learned is used.
	enough = 16
	// defaultWorth is the padding, in elements, that saving an execution is taken to
	// be worth until enough is known: what a small transformer showed on one core.
	defaultWorth = 4
	// mostWorth bounds what is learned.
	mostWorth = 1 << 20
	// late is the weight of an execution that took longer than expected.
	late = 0.1
	// distinct is how far, relative to their size, observations must differ in a
	// variable before anything about it can be learned.
	distinct = 1e-3
)

// observe counts one execution of so many elements, and padding besides.
func (c *cost) observe(elements, padding float64, took time.Duration) {
	x, t, weight := [3]float64{1, elements, padding}, float64(took), 1.0
	if c.known() && t > c.fit[0]+c.fit[1]*elements+c.fit[2]*padding {
		weight = late
	}
	c.times++
	c.seen = c.seen*forget + 1
	for i := range x {
		for j := range x {
			c.m[i][j] = c.m[i][j]*forget + weight*x[i]*x[j]
		}
		c.v[i] = c.v[i]*forget + weight*x[i]*t
	}
	c.learn()
}

// known reports whether something has been learned.
func (c *cost) known() bool { return c.fit[1] != 0 }

// learn solves for the three costs, as far as the executions seen tell them apart.
func (c *cost) learn() {
	n := c.m[0][0]
	ee, pp, ep := c.moment(1, 1), c.moment(2, 2), c.moment(1, 2)
	et, pt := c.withTime(1), c.withTime(2)
	if c.seen < enough || ee <= distinct*c.m[1][1]/n {
		return
	}
	perElement, perPadding := et/ee, et/ee
	if det := ee*pp - ep*ep; pp > distinct && det > distinct*ee*pp {
		perElement = (et*pp - pt*ep) / det
		perPadding = (pt*ee - et*ep) / det
	}
	c.fit = [3]float64{(c.v[0] - perElement*c.m[0][1] - perPadding*c.m[0][2]) / n, perElement, perPadding}
}

// pays reports whether saving one execution outweighs so many elements of padding.
func (c *cost) pays(padding int64) bool { return float64(padding) <= c.worth() }

// worth returns how many elements of padding cost as much as an execution's fixed part.
func (c *cost) worth() float64 {
	fixed, perPadding := c.fit[0], c.fit[2]
	switch {
	case !c.known():
		return defaultWorth
	case fixed <= 0:
		return 0
	case perPadding*mostWorth <= fixed:
		return mostWorth
	default:
		return fixed / perPadding
	}
}

const (
	// overhead is what an execution costs besides the model's own time: forming the
	// batch, gathering and scattering; ns.
	overhead = 2000
	// little is the part of its throughput for which a batch need not grow.
	little = 0.02
	// explore is how often, in observations, a batch may grow beyond what pays, or what
	// was learned once could never be unlearned.
	explore = 64
)

// fixed returns what an execution costs whatever its size, ns.
func (c *cost) fixed() float64 { return max(c.fit[0], 0) + overhead }

// useful returns the elements from which on a batch no longer pays to grow: all that
// is left to gain then is the fixed part of its cost, which is little of the whole.
func (c *cost) useful() float64 {
	if !c.known() || c.fit[1] <= 0 {
		return math.MaxFloat64
	}
	return c.fixed() / (little * c.fit[1])
}

// exploring reports whether the next batch may be larger than what pays.
func (c *cost) exploring() bool { return c.times%explore == 0 }

// splits reports whether to leave so many elements to other instances: computing them
// here takes longer than what another execution costs.
func (c *cost) splits(elements float64) bool {
	return c.known() && c.fit[1]*elements > c.fixed()
}

// moment returns the covariance of variables i and j.
func (c *cost) moment(i, j int) float64 {
	n := c.m[0][0]
	return c.m[i][j]/n - c.m[0][i]*c.m[0][j]/(n*n)
}

// withTime returns the covariance of variable i and the time.
func (c *cost) withTime(i int) float64 {
	n := c.m[0][0]
	return c.v[i]/n - c.m[0][i]*c.v[0]/(n*n)
}
