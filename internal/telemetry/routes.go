package telemetry

import (
	"math"
	"strings"
	"sync/atomic"
)

// Route counts the requests that one alternative of an ensemble's step executed. It is safe for concurrent use.
type Route struct {
	name string // step, kind and alternative

	Succeeded, Failed atomic.Uint64
	Ns                atomic.Uint64 // of those that succeeded
	share             atomic.Uint64
}

// SetShare sets the share of requests that the alternative gets, from 0 to 1.
func (r *Route) SetShare(share float64) { r.share.Store(math.Float64bits(share)) }

// Share returns what SetShare has set.
func (r *Route) Share() float64 { return math.Float64frombits(r.share.Load()) }

// ShadowResult is how the copy of a request ended.
type ShadowResult uint8

// The results of shadow requests.
const (
	ShadowEqual     ShadowResult = iota // every tensor was the same within the tolerance
	ShadowDifferent                     // a tensor differed
	ShadowFailed                        // the model failed
	ShadowDropped                       // too many were in flight
	numShadowResults
)

var shadowResults = [numShadowResults]string{"equal", "different", "failed", "dropped"}

// Shadow counts the copies of a step's requests, by result. It is safe for concurrent use.
type Shadow struct {
	name    string // step and model
	Results [numShadowResults]atomic.Uint64
}

// nameSeparator joins the parts of a name. No step and no model has it in its name.
const nameSeparator = "\x00"

// RouteOf returns the counters of an alternative of a step, new ones the first time.
func (m *Model) RouteOf(step, kind, alternative string) *Route {
	return grow(&m.routes, []string{step + nameSeparator + kind + nameSeparator + alternative}, func(r *Route) *string { return &r.name }, func(*Route) {})[0]
}

// ShadowOf returns the counters of a step's shadow, new ones the first time.
func (m *Model) ShadowOf(step, model string) *Shadow {
	return grow(&m.shadows, []string{step + nameSeparator + model}, func(s *Shadow) *string { return &s.name }, func(*Shadow) {})[0]
}

func routeRequestsOf(c *scrape, s *series, m *Model) {
	for _, r := range all(&m.routes) {
		part := strings.SplitN(r.name, nameSeparator, 3)
		c.number(float64(r.Succeeded.Load()), s.with("step", valid(part[0]), "alternative", valid(part[2]), "result", "success"))
		c.number(float64(r.Failed.Load()), s.with("step", valid(part[0]), "alternative", valid(part[2]), "result", "failure"))
	}
}

// perRoute exports a value of each alternative.
func perRoute(value func(*Route) float64) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) {
		for _, r := range all(&m.routes) {
			part := strings.SplitN(r.name, nameSeparator, 3)
			c.number(value(r), s.with("step", valid(part[0]), "kind", part[1], "alternative", valid(part[2])))
		}
	})
}

func shadowsOf(c *scrape, s *series, m *Model) {
	for _, x := range all(&m.shadows) {
		step, model, _ := strings.Cut(x.name, nameSeparator)
		for i, result := range shadowResults {
			c.number(float64(x.Results[i].Load()), s.with("step", valid(step), "alternative", valid(model), "result", result))
		}
	}
}
