package telemetry

import (
	"strings"
	"sync/atomic"
)

// Condition counts the rows of a step's condition. It is safe for concurrent use.
type Condition struct {
	step string

	Held, Failed atomic.Uint64 // rows for which the condition was true and false
}

// FanOut counts what a fan-out divided. It is safe for concurrent use.
type FanOut struct {
	name string

	// Divided counts the requests that were divided; in a fan-out of another fan-out, the groups of items that were.
	Divided atomic.Uint64
	Items   atomic.Uint64
	Groups  atomic.Uint64 // of items of equal shape
}

// Replacement counts how often a fallback or an optional result took the place of a failed step. It is safe for concurrent use.
type Replacement struct {
	name string // the step, and the model of the fallback or OptionalResult

	Used atomic.Uint64
}

// OptionalResult is the label of a replacement that is no fallback.
const OptionalResult = "optional result"

// flows are the counters of an ensemble's conditions, fan-outs and replacements. Each list is nil for an ensemble without any.
type flows struct {
	conditions   atomic.Pointer[[]*Condition]
	fanOuts      atomic.Pointer[[]*FanOut]
	replacements atomic.Pointer[[]*Replacement]
}

// ConditionOf returns the counters of a step's condition, new ones the first time.
func (m *Model) ConditionOf(step string) *Condition {
	return grow(&m.flows.conditions, []string{step}, func(c *Condition) *string { return &c.step }, func(*Condition) {})[0]
}

// FanOutOf returns the counters of a fan-out, by the name of the node that divides, new ones the first time.
func (m *Model) FanOutOf(name string) *FanOut {
	return grow(&m.flows.fanOuts, []string{name}, func(f *FanOut) *string { return &f.name }, func(*FanOut) {})[0]
}

// ReplacementOf returns the counter of what takes the place of a step, new ones the first time. An empty fallback is the optional result.
func (m *Model) ReplacementOf(step, fallback string) *Replacement {
	by := fallback
	if by == "" {
		by = OptionalResult
	}
	return grow(&m.flows.replacements, []string{step + nameSeparator + by}, func(r *Replacement) *string { return &r.name }, func(*Replacement) {})[0]
}

func conditionsOf(c *scrape, s *series, m *Model) {
	for _, x := range all(&m.flows.conditions) {
		c.number(float64(x.Held.Load()), s.with("step", valid(x.step), "result", "true"))
		c.number(float64(x.Failed.Load()), s.with("step", valid(x.step), "result", "false"))
	}
}

// perFanOut exports a value of each fan-out.
func perFanOut(value func(*FanOut) *atomic.Uint64) func(*scrape) {
	return each(func(c *scrape, s *series, m *Model) {
		for _, f := range all(&m.flows.fanOuts) {
			c.number(float64(value(f).Load()), s.with("step", valid(f.name)))
		}
	})
}

func replacementsOf(c *scrape, s *series, m *Model) {
	for _, r := range all(&m.flows.replacements) {
		step, by, _ := strings.Cut(r.name, nameSeparator)
		c.number(float64(r.Used.Load()), s.with("step", valid(step), "alternative", valid(by)))
	}
}
