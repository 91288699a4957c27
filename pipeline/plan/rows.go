package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// A row set is a part of the rows of a request: those for which a condition holds, out of another set. Set 0 has all rows.
// A step runs for the smallest of the sets that its inputs and its conditions belong to; one must contain the other. Its outputs have
// the rows of that set. A join puts the rows of several tensors together again.
//
// For example, of score -> detailed (when score[0] < 0.8) -> spell, both detailed and spell run for set 1.

// RowSet is a set of rows that a condition chooses, or the items of a fan-out.
type RowSet struct {
	Parent int32  // the set that it is a part of, or that has the items
	Text   string // the condition; of a fan-out, for example, "item of crops"
	FanOut bool
	// Fault marks a set that the failure of a step decides: it has all rows of its parent, or none.
	Fault bool
	// Route is set for the rows of an alternative: all rows of its parent, or none.
	Route       *config.Route
	Alternative int
}

// rowsText returns the rows of a set, outermost first: for example "when a[0] > 1 and b[0] < 2, for each item of crops"; "" for all rows.
func (p *Plan) rowsText(set int32) string {
	if set == 0 {
		return ""
	}
	s := &p.RowSets[set]
	switch outer := p.rowsText(s.Parent); {
	case outer == "":
		return s.text()
	case s.FanOut || p.RowSets[s.Parent].FanOut:
		return outer + ", " + s.text()
	default:
		return outer + " and " + s.Text
	}
}

// chosenBy returns the slots of the choices that a step runs after: its own, and those of the ensembles around it.
func (c *compiler) chosenBy(s *step) (list []Slot) {
	if s.rows != None {
		list = append(list, c.slot(s.rows))
	}
	for l := s.level; l.within != nil; l = l.parent {
		if l.within.rows != None {
			list = append(list, c.slot(l.within.rows))
		}
	}
	return list
}

// before returns the slots that a step reads or waits for. A choice looks only at rows that its step would run for, so it comes after the
// choices of the step's inputs.
func (c *compiler) before(s *step) []Slot {
	switch {
	case c.sets != nil:
		return slices.Concat(s.in, s.waits)
	case s.op != nil && s.op.owner != nil:
		return slices.Concat(s.in, c.chosenBy(s), s.op.owner.in)
	case s.rows != None || s.level.within != nil:
		return slices.Concat(s.in, c.chosenBy(s))
	default:
		return s.in
	}
}

// conditional reports whether a step has a condition.
func (c *compiler) conditional() bool {
	return slices.ContainsFunc(c.leaves, func(s *step) bool { return s.op != nil && s.op.adapter == nil && !s.op.onStreams() || s.absorbs() })
}

// rows finds the row set of every step and tensor.
func (c *compiler) rows() error {
	if !c.conditional() {
		return nil
	}
	c.sets, c.choices, c.setOf = []RowSet{{}}, []Slot{None}, make([]int32, len(c.names))
	seen := make([]bool, len(c.leaves))
	for i, s := range c.leaves {
		if s.sig.Decoupled {
			return config.Coded(config.NotHonoured, s.field(), s.level.fail(fmt.Errorf(
				"ensemble '%s' has %s and the decoupled step '%s': %[2]s are supported where every step sends one response", c.root.GetName(), c.rowFeature(), s.name)))
		}
		if err := c.rowsOf(int32(i), seen); err != nil {
			return err
		}
	}
	root := c.levels[0]
	for i, slot := range c.outputs {
		if slot != None && !c.mayLack(c.setOf[slot]) {
			return root.errorf(config.MixedRows, fmt.Sprintf("output[%d]", i), "output '%s' is not there for every row: it is written when %s",
				root.sig.Outputs[i].Name, c.sets[c.setOf[slot]].Text)
		}
	}
	return c.fanOuts()
}

// rowsOf finds the row set of leaf i after those of the steps that it comes after.
func (c *compiler) rowsOf(i int32, seen []bool) error {
	if seen[i] {
		return nil
	}
	seen[i] = true
	s := c.leaves[i]
	reads, choices := s.in, c.chosenBy(s)
	if s.op != nil && s.op.owner != nil {
		reads = slices.Concat(s.in, s.op.owner.in)
	}
	for _, slot := range slices.Concat(choices, reads) {
		if slot = c.slot(slot); slot != None && c.writer[slot] >= 0 {
			if err := c.rowsOf(c.writer[slot], seen); err != nil {
				return err
			}
		}
	}
	at := None // the slot that the set is of
	for _, slot := range choices {
		if err := c.narrow(s, &at, c.slot(slot)); err != nil {
			return err
		}
	}
	if s.op != nil && s.op.gather != nil {
		return c.closeFanOut(s)
	}
	if s.op != nil && s.op.when == nil && s.op.demux == nil && s.op.Route == nil && s.op.Shadow == nil {
		if err := c.joinRows(s); err != nil {
			return err
		}
	} else {
		for port, slot := range reads {
			if slot = c.slot(slot); slot == None {
				continue
			}
			if err := c.narrowTo(s, &at, slot, c.setFor(s, port, slot)); err != nil {
				return err
			}
		}
	}
	if s.set != 0 && !slices.ContainsFunc(s.in, func(slot Slot) bool { return slot != None && c.inside(c.setOf[slot], s.set) }) {
		s.waits = []Slot{c.choices[s.set]}
	}
	switch {
	case s.op == nil:
	case s.op.when != nil:
		c.choose(s)
		return nil
	case s.op.Route != nil:
		c.takes(s)
		return nil
	}
	if s.op != nil && s.op.demux != nil {
		c.openFanOut(s)
		return nil
	}
	for _, slot := range s.out {
		if slot != None {
			c.setOf[slot] = s.set
		}
	}
	if s.op != nil && s.op.chooses != 0 {
		c.setOf[s.out[0]] = s.op.chooses
	}
	c.outcomes(s)
	return nil
}

// choose gives a choice a row set, or, where an earlier one chooses the same rows, makes that one choose for its step.
func (c *compiler) choose(s *step) {
	slot := s.out[0]
	for _, other := range c.leaves {
		if other != s && other.op != nil && other.op.when != nil && other.op.chooses != 0 && other.set == s.set && other.op.when.Text() == s.op.when.Text() && slices.Equal(other.in, s.in) &&
			slices.Equal(other.allParams(), s.allParams()) {
			c.alias[slot] = other.out[0]
			return
		}
	}
	s.op.chooses = c.newSet(RowSet{Parent: s.set, Text: s.op.when.Text()}, slot)
	c.setOf[slot] = s.op.chooses
}

// narrow makes a step's row set the smaller of it and that of a tensor.
func (c *compiler) narrow(s *step, at *Slot, slot Slot) error {
	if slot == None {
		return nil
	}
	return c.narrowTo(s, at, slot, c.setOf[slot])
}

// narrowTo is narrow for a tensor of which the step needs the rows of the set of.
func (c *compiler) narrowTo(s *step, at *Slot, slot Slot, of int32) error {
	switch {
	case c.inside(of, s.set):
		s.set, *at = of, slot
		return nil
	case c.inside(s.set, of):
		return nil
	default:
		name := s.name
		if s.op != nil && s.op.owner != nil {
			name = s.op.owner.name
		}
		err := s.level.errorf(config.MixedRows, s.field(), "step '%s' needs tensor '%s', which is there %s, and tensor '%s', which is there %s",
			name, c.names[*at], c.sets[s.set].text(), c.names[slot], c.sets[of].text())
		if c.fanOutOf(s.set) != c.fanOutOf(of) {
			return config.WithFix(err, "gather the items of one of them first, by ensemble.gather")
		}
		return err
	}
}

// inside reports whether set a is b or a part of it.
func (c *compiler) inside(a, b int32) bool {
	for a != b && a != 0 {
		a = c.sets[a].Parent
	}
	return a == b
}

// joinRows finds the row set of a join: the smallest one that all its inputs are parts of, or, with a value for other rows, the one that
// the input is a part of. It does not leave the fan-out of its innermost input: a tensor from around it has a value for each item.
func (c *compiler) joinRows(s *step) error {
	if s.op.adapter != nil {
		s.set = c.setOf[s.in[0]]
		return nil
	}
	if s.op.Faults {
		c.joinOutcomes(s)
		return nil
	}
	at := None
	inner := *s
	inner.set = 0
	for _, slot := range s.in {
		f := c.fanOutOf(c.setOf[slot])
		if err := c.narrowTo(&inner, &at, slot, f); err != nil {
			return err
		}
	}
	f := inner.set
	set := int32(-1)
	for _, slot := range s.in {
		of := c.setOf[slot]
		if c.fanOutOf(of) != f {
			if err := c.narrow(&inner, &at, slot); err != nil {
				return err
			}
			of = f
		}
		if set < 0 {
			set = of
		}
		for !c.inside(of, set) {
			set = c.sets[set].Parent
		}
	}
	if s.op.Otherwise != nil {
		own := c.ownOutcome(s.in[0])
		if own {
			set = c.sets[set].Parent
		}
		if !own && (set == s.set || c.sets[set].FanOut) {
			return s.level.errorf(config.FlowParam, s.op.Field, "parameter '%s' has no effect: the tensor '%s' is there for every row",
				strings.TrimPrefix(s.op.Field, "parameters."), s.op.Out)
		}
		if set != s.set {
			set = c.sets[set].Parent
		}
	}
	if c.inside(set, s.set) {
		s.set = set
	}
	return nil
}
