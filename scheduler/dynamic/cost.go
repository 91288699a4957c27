package dynamic

import "time"

// cost learns a model's execution time as fixed + perElement*elements, by least
// squares over recent executions, older ones counting less and less.
type cost struct {
	n, x, y, xx, xy float64 // weighted sums
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
	// mostWorth bounds what is learned: noise must not make padding look free.
	mostWorth = 64
)

// observe counts one execution.
func (c *cost) observe(elements float64, took time.Duration) {
	y := float64(took)
	c.n = c.n*forget + 1
	c.x = c.x*forget + elements
	c.y = c.y*forget + y
	c.xx = c.xx*forget + elements*elements
	c.xy = c.xy*forget + elements*y
}

// pays reports whether saving one execution outweighs padding by so many elements.
func (c *cost) pays(padding int64) bool { return float64(padding) <= c.worth() }

// worth returns the fixed cost in units of the cost of an element.
func (c *cost) worth() float64 {
	spread := c.n*c.xx - c.x*c.x
	if c.n < enough || spread <= 1e-6*c.n*c.xx {
		return defaultWorth
	}
	perElement := (c.n*c.xy - c.x*c.y) / spread
	fixed := (c.y - perElement*c.x) / c.n
	if perElement <= 0 {
		return mostWorth
	}
	return min(max(fixed/perElement, 0), mostWorth)
}
