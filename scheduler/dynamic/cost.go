package dynamic

import (
	"math"
	"time"
)

// cost estimates a model's execution time as
//
//	fixed + perElement*elements + perPadding*padding
//
// by least squares over recent executions, with weights that decrease with age. The policy needs it to decide how much
// padding one saved execution is worth: some models compute padding like other elements, others skip most of it. For
// example, with a fixed cost of 40 µs and 2 µs per padded element, saving an execution is worth 20 elements of padding.
//
// Other load on the machine makes executions slower, never faster. An execution that was slower than expected
// therefore has less weight than one that was not (asymmetric least squares, Newey and Powell 1987), so that the
// estimate describes the model rather than its neighbours.
type cost struct {
	seen  float64
	times int           // observations
	m     [3][3]float64 // weighted sums of products of (1, elements, padding)
	v     [3]float64    // weighted sums of products with the time
	fit   [3]float64    // the estimate: fixed, per element, per padding; ns
}

const (
	// forget is the factor by which the weight of an observation decreases with each later one: about 200 count.
	forget = 0.995
	// enough is the total weight of observations from which on the estimate is used.
	enough = 16
	// defaultWorth is the padding, in elements, that a saved execution is worth until the estimate is used (measured).
	defaultWorth = 4
	// mostWorth bounds the estimated worth.
	mostWorth = 1 << 20
	// late is the weight of an execution that was slower than expected.
	late = 0.1
	// distinct is how much observations must vary in a variable, relative to their size, before its cost is estimated.
	distinct = 1e-3
)

// observe adds one execution with so many elements and so much padding.
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

// known reports whether there is an estimate.
func (c *cost) known() bool { return c.fit[1] != 0 }

// learn solves for the three costs, as far as the observations distinguish them.
func (c *cost) learn() {
	n := c.m[0][0]
	covariance := func(sum float64, i int, of float64) float64 { return sum/n - c.m[0][i]*of/(n*n) }
	ee, pp, ep := covariance(c.m[1][1], 1, c.m[0][1]), covariance(c.m[2][2], 2, c.m[0][2]), covariance(c.m[1][2], 1, c.m[0][2])
	et, pt := covariance(c.v[1], 1, c.v[0]), covariance(c.v[2], 2, c.v[0])
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

// of returns the time of an execution, ns.
func (c *cost) of(elements, padding float64) float64 {
	return max(c.fit[0], 0) + c.fit[1]*elements + c.fit[2]*padding
}

// worth returns the elements of padding that cost as much as the fixed part of an execution.
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
	// overhead is the cost of an execution outside the model: forming the batch, gathering and scattering; ns.
	overhead = 2000
	// little is the share of throughput below which a larger batch is not worth waiting for.
	little = 0.02
	// some is the share of throughput below which a larger batch is not worth that tasks overtake older ones.
	some = 0.05
	// explore is how often, in observations, a batch may exceed the useful size, so that the estimate is corrected.
	explore = 64
)

// fixed returns the cost of an execution of any size, ns.
func (c *cost) fixed() float64 { return max(c.fit[0], 0) + overhead }

// useful returns the elements from which on a larger batch gains little: the fixed cost is then a small part.
func (c *cost) useful() float64 { return c.gains(little) }

// mostlyUseful returns the elements from which on a larger batch gains less than overtaking costs other tasks.
func (c *cost) mostlyUseful() float64 { return c.gains(some) }

// gains returns the elements from which on the fixed cost is less than a share of the rest.
func (c *cost) gains(share float64) float64 {
	if !c.known() || c.fit[1] <= 0 {
		return math.MaxFloat64
	}
	return c.fixed() / (share * c.fit[1])
}

// splits reports whether so many elements take longer here than the fixed cost of another execution.
func (c *cost) splits(elements float64) bool {
	return c.known() && c.fit[1]*elements > c.fixed()
}
