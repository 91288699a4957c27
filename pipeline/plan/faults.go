package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/config"
)

// A step whose failure does not fail its request has two row sets, of which one has all rows that the step runs for and the other none:
// those for which it succeeded, and those for which it failed. Its outputs belong to the first; its fallback runs for the second. A join
// puts what both write together, or has the value of the configuration.
//
// For example, of detailed with the fallback quick, whose output label a step "spell" reads:
//
//	detailed          writes label of detailed, in the set "'detailed' succeeded"
//	detailed.fallback the model quick, runs for the set "'detailed' failed"
//	fallback label    joins both: label has all rows, and so spell runs for all

// Fault says what happens when a node fails.
type Fault struct {
	// Timeout bounds each attempt, 0 for none; Retries is how often a failed attempt is repeated; Breaker may be nil.
	Timeout time.Duration
	Retries int
	Breaker *config.Breaker
	// Absorbed reports that the request goes on without the outputs of the node. The row set Succeeded then has the node's rows when it
	// succeeds, else none, and Failed the reverse; Failed is 0 without a fallback.
	Absorbed          bool
	Succeeded, Failed int32
	// Waits is the slot by which the fallback waits for the node, None without a fallback. It never has a tensor.
	Waits Slot
	// Fallback is the model that runs instead, "" for none. Of is the step of the configuration: of a fallback the one that it stands for.
	Fallback, Of string
	// Optional reports that the step has an optional result.
	Optional bool
}

// Guarded reports whether attempts are bounded, repeated or refused.
func (f *Fault) Guarded() bool {
	return f != nil && (f.Timeout > 0 || f.Retries > 0 || f.Breaker != nil)
}

// Text describes the rules of a node, for example "timeout 50ms, 2 retries".
func (f *Fault) Text() string {
	var list []string
	if f.Timeout > 0 {
		list = append(list, "timeout "+f.Timeout.String())
	}
	switch {
	case f.Retries == 1:
		list = append(list, "1 retry")
	case f.Retries > 1:
		list = append(list, fmt.Sprintf("%d retries", f.Retries))
	}
	if f.Breaker != nil {
		list = append(list, "breaker "+f.Breaker.String())
	}
	if f.Fallback != "" {
		list = append(list, "fallback "+f.Fallback)
	}
	if f.Optional {
		list = append(list, "optional result")
	}
	return strings.Join(list, ", ")
}

// WaitLabel is the text at the line from a choice, or from a step that may fail, to the steps that wait for it.
func (p *Plan) WaitLabel(slot Slot) string {
	if p.RowSets[p.SlotRows[slot]].Fault {
		return "on failure"
	}
	return "rows"
}

// checkFaults checks the rules of a step about failures, when its model is known.
func (s *step) checkFaults(m *Model) error {
	f := s.faults
	if f == nil {
		return nil
	}
	refuse := func(field, format string, args ...any) error {
		return s.level.errorf(config.NotHonoured, field, "parameter '%s' is of step '%s', %s", strings.TrimPrefix(field, "parameters."), s.name, fmt.Sprintf(format, args...))
	}
	switch {
	case m.Ensemble != nil && s.of != "":
		return refuse(f.Field, "whose fallback '%s' is an ensemble: give the steps of '%s' optional results", s.model, s.model)
	case m.Ensemble != nil:
		return refuse(f.Field, "which is the ensemble '%s': set it for the steps of '%s'", s.model, s.model)
	case m.Signature.Decoupled:
		return refuse(f.Field, "whose model '%s' is decoupled: it may fail after its first responses were used", s.model)
	case f.Retries > 0 && !m.Idempotent:
		return config.WithFix(refuse(f.RetriesField, "whose model '%s' is not marked as idempotent: it may be executed twice for a request", s.model),
			`if that does no harm, add parameters { key: "`+config.IdempotentParam+`" value { string_value: "true" } } to the configuration of '`+s.model+`'`)
	}
	return nil
}

// absorbs reports whether a failure of the step does not fail its request.
func (s *step) absorbs() bool { return s.faults != nil && s.faults.Absorbed }

// outcomes gives a step whose failure is absorbed its two row sets.
func (c *compiler) outcomes(s *step) {
	if !s.absorbs() {
		return
	}
	s.succeeded = c.newSet(RowSet{Parent: s.set, Text: "'" + s.name + "' succeeded", Fault: true}, None)
	for _, slot := range s.out {
		if slot != None {
			c.setOf[slot], c.choices[s.succeeded] = s.succeeded, slot
		}
	}
	if s.failed != None {
		s.fails = c.newSet(RowSet{Parent: s.set, Text: "'" + s.name + "' failed", Fault: true}, s.failed)
		c.setOf[s.failed] = s.fails
	}
}

// newSet adds a row set, which is known when slot is.
func (c *compiler) newSet(set RowSet, slot Slot) int32 {
	c.sets, c.choices = append(c.sets, set), append(c.choices, slot)
	return int32(len(c.sets) - 1) //nolint:gosec // as many as steps
}

// joinOutcomes finds the row set of a join of what a step and its fallback write: that of the step. Where the tensor may be absent, it is
// a part of that set.
func (c *compiler) joinOutcomes(s *step) {
	s.set = c.sets[c.setOf[s.in[0]]].Parent
	if s.op.Absent {
		s.op.chooses = c.newSet(RowSet{Parent: s.set, Text: "'" + strings.TrimPrefix(s.op.In[0], s.op.Out+" of ") + "' or its fallback succeeded", Fault: true}, s.out[0])
	}
}

// ownOutcome reports whether a tensor may be absent because the step that writes it, or its fallback, failed: not because of a step before.
func (c *compiler) ownOutcome(slot Slot) bool {
	if c.writer[slot] < 0 {
		return false
	}
	w := c.leaves[c.writer[slot]]
	set := c.setOf[slot]
	return set != 0 && (set == w.succeeded || w.op != nil && w.op.Absent && set == w.op.chooses)
}

// setFor returns the row set that a port needs of a tensor. An optional input takes part also where the step that writes it failed.
func (c *compiler) setFor(s *step, port int, slot Slot) int32 {
	set := c.setOf[slot]
	if s.op == nil && port < len(s.sig.Inputs) && s.sig.Inputs[port].Optional {
		for c.sets[set].Fault {
			set = c.sets[set].Parent
		}
	}
	return set
}

// mayLack reports whether only failures keep rows out of a set: an output of the ensemble may then be absent.
func (c *compiler) mayLack(set int32) bool {
	for set != 0 && c.sets[set].Fault {
		set = c.sets[set].Parent
	}
	return set == 0
}

// fault returns the rules of a step as the plan has them; nil without any.
func (a *assembly) fault(s *step) *Fault {
	f := s.faults
	if f == nil {
		return nil
	}
	of := s.name
	if s.of != "" {
		of = s.level.prefix() + s.of
	}
	return &Fault{
		Timeout: f.Timeout, Retries: f.Retries, Breaker: f.Breaker, Absorbed: f.Absorbed, Succeeded: s.succeeded, Failed: s.fails,
		Waits: a.slot(s.failed), Fallback: f.Fallback, Of: of, Optional: f.Optional,
	}
}

// fallbackOf returns the step that a step runs instead of, by itself or as a part of an ensemble; "" for an ordinary one.
func (s *step) fallbackOf() string {
	for ; s != nil; s = s.level.within {
		if s.of != "" {
			return s.level.prefix() + s.of
		}
	}
	return ""
}

// rowFeature names what row sets are used for, in errors.
func (c *compiler) rowFeature() string {
	feature := "fallbacks or optional results"
	for _, s := range c.leaves {
		switch {
		case s.op == nil || s.op.Faults:
		case s.op.Demux != nil:
			return "fan-outs"
		case s.op.Route != nil || s.op.Joins != nil || s.op.Shadow != nil:
			return "splits, canaries or shadows"
		default:
			feature = "conditions"
		}
	}
	return feature
}
