package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// bind gives every tensor a slot, and every port its tensor's. Nested ensembles use the slots of outer tensors.
func (c *compiler) bind() error {
	for _, l := range c.levels {
		if err := c.enter(l); err != nil {
			return err
		}
		for _, s := range l.steps {
			if s.rowsName != "" {
				s.rows = c.tensor(l, s.rowsName)
			}
			if s.faults != nil && s.faults.Failed != "" {
				s.failed = c.tensor(l, s.faults.Failed)
			}
			var err error
			if s.in, err = c.bindPorts(s, s.cfg.GetInputMap(), s.sig.Inputs, "input", "ensemble tensor %s is mapping to non-existing input %s in model %s"); err != nil {
				return err
			}
			if s.out, err = c.bindPorts(s, s.cfg.GetOutputMap(), s.sig.Outputs, "output", "ensemble tensor %s is mapped from non-existing output %s in model %s"); err != nil {
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
		name := l.sig.Inputs[i].Name
		l.slots[name] = None
		if at := l.within.sig.Input(name); at >= 0 {
			l.slots[name] = l.within.in[at]
		}
	}
	for i := range l.sig.Outputs {
		name := l.sig.Outputs[i].Name
		outer := None
		if at := l.within.sig.Output(name); at >= 0 {
			outer = l.within.out[at]
		}
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

// bindPorts returns the slots of one side of a step by the map m. text is Triton's about a port that does not exist.
func (c *compiler) bindPorts(s *step, m map[string]string, ports []config.Port, kind, text string) ([]Slot, error) {
	slots := unmapped(len(ports))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		i := slices.IndexFunc(ports, func(p config.Port) bool { return p.Name == name })
		if i < 0 {
			var names []string
			for _, p := range ports {
				names = append(names, p.Name)
			}
			why := fmt.Sprintf(text, m[name], name, s.model)
			if near := config.DidYouMean(name, names); near != "" {
				why += "." + near
			}
			return nil, config.WithFix(s.level.errorf(config.NoSuchPort, s.field()+"."+kind+"_map."+name, "%s", why),
				fmt.Sprintf("use a name from the model's own configuration: its %ss are %s", kind, strings.Join(names, ", ")))
		}
		slots[i] = c.tensor(s.level, m[name])
	}
	for i := range ports {
		p := &ports[i]
		if _, mapped := m[p.Name]; !mapped && !p.Optional && kind == "input" && !s.given(i) {
			return nil, config.WithFix(s.level.errorf(config.InputUnmapped, s.field()+".input_map", "input %s in model %s is not mapped to any ensemble tensors", p.Name, s.model),
				`add input_map { key: "`+p.Name+`" value: "TENSOR" } to the step`)
		}
	}
	return slots, nil
}

func unmapped(n int) []Slot { return slices.Repeat([]Slot{None}, n) }

// declaration is the type and shape that one port declares for a tensor.
type declaration struct {
	model      string
	dtype      tensor.DType
	dims, full tensor.Shape
}

func declarationOf(model string, maxBatch int, p *config.Port) *declaration {
	return &declaration{model: model, dtype: p.DType, dims: p.Dims, full: p.FullDims(maxBatch)}
}

// types checks that all ports mapped to a tensor agree on its data type and shape.
func (c *compiler) types() error {
	for _, l := range c.levels {
		first := map[string]*declaration{}
		sig := l.sig.AtModel() // tensors have their reshaped dims inside of an ensemble
		for i := range sig.Inputs {
			first[sig.Inputs[i].Name] = declarationOf(l.name(), sig.MaxBatch, &sig.Inputs[i])
		}
		for i := range sig.Outputs {
			p := &sig.Outputs[i]
			if err := l.agree(first, fmt.Sprintf("output[%d]", i), p.Name, declarationOf(l.name(), sig.MaxBatch, p)); err != nil {
				return err
			}
		}
		for _, s := range l.steps {
			if err := s.types(first, ".input_map", s.cfg.GetInputMap(), s.sig.Inputs); err != nil {
				return err
			}
			if err := s.types(first, ".output_map", s.cfg.GetOutputMap(), s.sig.Outputs); err != nil {
				return err
			}
		}
	}
	return nil
}

// types checks the ports of one side of a step, by its map from ports to tensors.
func (s *step) types(first map[string]*declaration, field string, m map[string]string, ports []config.Port) error {
	for i := range ports {
		if t, mapped := m[ports[i].Name]; mapped {
			if err := s.level.agree(first, s.field()+field, t, declarationOf(cmp.Or(s.model, s.name), s.sig.MaxBatch, &ports[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// agree compares a port with the tensor's first declaration. Shapes may differ by a batch dimension of one side.
func (l *level) agree(first map[string]*declaration, field, name string, b *declaration) error {
	a, known := first[name]
	if !known {
		first[name] = b
		return nil
	}
	if a.dtype != b.dtype {
		return l.errorf(config.TypesDiffer, field, "ensemble tensor %s: inconsistent data type: %s is inferred from model %s while %s is inferred from model %s%s",
			name, a.dtype.ConfigName(), a.model, b.dtype.ConfigName(), b.model, l.adapterHint(name))
	}
	_, same := config.Narrow(a.dims, b.dims)
	_, sameFull := config.Narrow(a.full, b.full)
	if !same && !sameFull {
		return l.errorf(config.ShapesDiffer, field, "ensemble tensor %s: inconsistent shape: %s is inferred from model %s while %s is inferred from model %s%s",
			name, a.full, a.model, b.full, b.model, l.adapterHint(name))
	}
	return nil
}

// batchDims decides per input of a step what happens to the batch dimension of the tensor that comes in.
func (c *compiler) batchDims() error {
	for _, l := range c.levels {
		for _, s := range l.steps {
			if s.sig.MaxBatch > 0 && s.sig.MaxBatch < l.sig.MaxBatch && !s.perItem() {
				return config.WithFix(l.fail(config.Errorf(config.BatchTooSmall, "max_batch_size",
					"ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum batch size to be %d",
					l.name(), l.sig.MaxBatch, s.model, s.sig.MaxBatch)), fmt.Sprintf(
					"write max_batch_size: %d into the configuration of '%s' (a model that says nothing and can batch gets 4), or max_batch_size: %d here",
					l.sig.MaxBatch, s.model, s.sig.MaxBatch))
			}
		}
	}
	root := c.levels[0]
	written := c.written()
	for _, s := range c.leaves {
		s.rules = make([]BatchRule, len(s.in))
		for i, slot := range s.in {
			if slot == None || written[slot].rank < 0 {
				continue
			}
			from := &written[slot]
			f, ok := fit(from.rank, rank(s.sig, &s.sig.Inputs[i]))
			if !ok {
				return root.errorf(config.ShapesDiffer, "ensemble_scheduling", "ensemble tensor %s has %d dimensions, which no batch dimension makes fit input %s in model %s with %d",
					c.names[slot], from.rank, s.sig.Inputs[i].Name, s.model, rank(s.sig, &s.sig.Inputs[i]))
			}
			s.rules[i] = f
			s.runtime = from.to(s.runtime, i, len(s.in), s.sig)
		}
	}
	sig := root.sig.AtModel()
	for i, slot := range c.outputs {
		out, from := &sig.Outputs[i], &written[slot]
		f, ok := AsIs, true
		if from.rank >= 0 {
			f, ok = fit(from.rank, rank(sig, out))
		}
		if !ok {
			return root.errorf(config.ShapesDiffer, "ensemble_scheduling", "ensemble tensor %s has %d dimensions, which no batch dimension makes fit output %s with %d",
				c.names[slot], from.rank, out.Name, rank(sig, out))
		}
		c.outputRules = append(c.outputRules, f)
		c.outputRuntime = from.to(c.outputRuntime, i, len(c.outputs), root.sig)
	}
	return nil
}

// producer describes the output that writes a tensor.
type producer struct {
	rank    int  // in full, -1 without a writer
	free    bool // the writer's output is Unchecked
	batches bool // the writer batches
	shape   tensor.Shape
}

// to notes in list how port i of n reads the tensor; the list is made with the first Unchecked one.
func (w *producer) to(list []RuntimeRule, i, n int, reader *config.Signature) []RuntimeRule {
	if !w.free {
		return list
	}
	if list == nil {
		list = make([]RuntimeRule, n)
	}
	switch batches := reader.MaxBatch > 0; {
	case batches == w.batches:
		list[i] = RuntimeAsIs
	case batches:
		list[i] = RuntimePrepend
	default:
		list[i] = RuntimeStrip
	}
	return list
}

// written returns how every slot is written.
func (c *compiler) written() []producer {
	list := make([]producer, len(c.names))
	for i := range list {
		list[i].rank = -1
	}
	root := c.levels[0]
	sig := root.sig.AtModel()
	for i := range sig.Inputs {
		list[root.slots[sig.Inputs[i].Name]] = producer{rank: rank(sig, &sig.Inputs[i]), batches: sig.MaxBatch > 0, shape: sig.Inputs[i].FullDims(sig.MaxBatch)}
	}
	for _, s := range c.leaves {
		for i, slot := range s.out {
			if slot != None {
				out := &s.sig.Outputs[i]
				list[slot] = producer{rank: rank(s.sig, out), free: out.Unchecked, batches: s.batchesOut(), shape: out.FullDims(s.sig.MaxBatch)}
			}
		}
	}
	return list
}

func rank(sig *config.Signature, p *config.Port) int {
	full := p.FullDims(sig.MaxBatch)
	return full.Rank()
}

func fit(from, to int) (BatchRule, bool) {
	switch from - to {
	case 0:
		return AsIs, true
	case 1:
		return Strip, true
	case -1:
		return Prepend, true
	}
	return AsIs, false
}
