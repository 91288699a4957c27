package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// bind gives every tensor a slot, and every port of every step the slot it is mapped to. An
// input or output of a nested ensemble has the slot of the outer tensor.
func (c *compiler) bind() error {
	for _, l := range c.levels {
		if err := c.enter(l); err != nil {
			return err
		}
		for _, s := range l.steps {
			if err := c.bindInputs(s); err != nil {
				return err
			}
			if err := c.bindOutputs(s); err != nil {
				return err
			}
		}
	}
	for _, out := range c.levels[0].sig.Outputs {
		c.outputs = append(c.outputs, c.slot(c.levels[0].slots[out.Name]))
	}
	for _, s := range c.leaves {
		for i, slot := range s.in {
			s.in[i] = c.slot(slot)
		}
	}
	return nil
}

// enter binds the inputs and outputs of l itself.
func (c *compiler) enter(l *level) error {
	l.slots = map[string]Slot{}
	if l.parent == nil {
		for i := range l.sig.Inputs {
			c.tensor(l, l.sig.Inputs[i].Name)
		}
		return nil
	}
	for i := range l.sig.Inputs {
		l.slots[l.sig.Inputs[i].Name] = at(l.within.in, l.within.sig.Input(l.sig.Inputs[i].Name))
	}
	for i := range l.sig.Outputs {
		name := l.sig.Outputs[i].Name
		outer := at(l.within.out, l.within.sig.Output(name))
		inner, passed := l.slots[name]
		switch {
		case outer == None: // not mapped outside
		case !passed:
			l.slots[name] = outer
		case c.slot(inner) == outer:
			return l.parent.errorf(config.TensorTwice, l.within.field(), "ensemble tensor %s is written by model %s from itself", c.names[outer], l.name())
		case inner == None:
			return l.parent.errorf(config.InputUnmapped, l.within.field(), "ensemble tensor %s is passed on by model %s from its input %s, which is not mapped",
				c.names[outer], l.name(), name)
		default:
			c.alias[outer] = c.slot(inner) // the nested ensemble passes its input through
		}
	}
	return nil
}

// at returns slots[i], or None when there is no such port.
func at(slots []Slot, i int) Slot {
	if i < 0 {
		return None
	}
	return slots[i]
}

// tensor returns the slot of a tensor of l, a new one the first time.
func (c *compiler) tensor(l *level, name string) Slot {
	s, ok := l.slots[name]
	if !ok {
		s = Slot(len(c.names))
		l.slots[name] = s
		c.names = append(c.names, l.prefix()+name)
		c.alias = append(c.alias, s)
	}
	return s
}

func (c *compiler) bindInputs(s *step) error {
	m := s.cfg.GetInputMap()
	s.in = unmapped(len(s.sig.Inputs))
	for _, port := range slices.Sorted(maps.Keys(m)) {
		i := s.sig.Input(port)
		if i < 0 {
			return s.noPort(".input_map."+port, fmt.Sprintf("ensemble tensor %s is mapping to non-existing input %s in model %s", m[port], port, s.model), port, "input", s.sig.Inputs)
		}
		s.in[i] = c.tensor(s.level, m[port])
	}
	for i := range s.sig.Inputs {
		p := &s.sig.Inputs[i]
		if _, mapped := m[p.Name]; !mapped && !p.Optional {
			return config.WithFix(s.level.errorf(config.InputUnmapped, s.field()+".input_map", "input %s in model %s is not mapped to any ensemble tensors", p.Name, s.model),
				`add input_map { key: "`+p.Name+`" value: "TENSOR" } to the step`)
		}
	}
	return nil
}

func (c *compiler) bindOutputs(s *step) error {
	m := s.cfg.GetOutputMap()
	s.out = unmapped(len(s.sig.Outputs))
	for _, port := range slices.Sorted(maps.Keys(m)) {
		i := s.sig.Output(port)
		if i < 0 {
			return s.noPort(".output_map."+port, fmt.Sprintf("ensemble tensor %s is mapped from non-existing output %s in model %s", m[port], port, s.model), port, "output", s.sig.Outputs)
		}
		s.out[i] = c.tensor(s.level, m[port])
	}
	return nil
}

// noPort returns the error of a map that names no port of the step's model: Triton's text and
// the nearest name.
func (s *step) noPort(field, text, port, kind string, ports []config.Port) error {
	names := make([]string, len(ports))
	for i := range ports {
		names[i] = ports[i].Name
	}
	if near := config.DidYouMean(port, names); near != "" {
		text += "." + near
	}
	return config.WithFix(s.level.errorf(config.NoSuchPort, s.field()+field, "%s", text),
		fmt.Sprintf("use a name from the model's own configuration: its %ss are %s", kind, strings.Join(names, ", ")))
}

func unmapped(n int) []Slot {
	slots := make([]Slot, n)
	for i := range slots {
		slots[i] = None
	}
	return slots
}
