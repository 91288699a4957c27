package plan

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// adapt inserts adapters in front of the inputs of steps, and behind the steps that write outputs of the ensemble, where the configuration
// allows them and one fits. Where none does, the pass types reports the difference.
func (c *compiler) adapt(l *level) {
	for _, s := range slices.Clone(l.steps) {
		if at := slices.Index(l.steps, s); s.op == nil && at < len(l.flow.Steps) && l.flow.Adapts(at) {
			c.adaptInputs(l, s)
		}
	}
	if l.flow.Adapt {
		for i := range l.sig.Outputs {
			c.adaptOutput(l, &l.sig.Outputs[i])
		}
	}
}

// adaptInputs inserts the adapters of one step.
func (c *compiler) adaptInputs(l *level, s *step) {
	for i := range s.sig.Inputs {
		p := &s.sig.Inputs[i]
		t, mapped := s.cfg.GetInputMap()[p.Name]
		from := l.writes(t)
		if !mapped || from == nil {
			continue
		}
		a, _ := adapterOf(*from, sideOf(s.sig.MaxBatch, p, s.formats))
		if a == nil {
			continue
		}
		s.cfg = proto.CloneOf(s.cfg)
		s.cfg.InputMap[p.Name] = c.insert(l, t, from, p, a)
	}
}

// insert adds an adapter, unless l has the same one already, and returns the tensor that it writes.
func (c *compiler) insert(l *level, t string, from *side, to *config.Port, a *Adapter) string {
	out := fmt.Sprintf("%s, %s", t, a)
	if !slices.ContainsFunc(l.steps, func(s *step) bool { return s.op != nil && s.op.Out == out }) {
		c.adapter(l, t, out, from, to, a)
	}
	return out
}

// adapter adds the step that adapts t and writes out.
func (c *compiler) adapter(l *level, t, out string, from *side, to *config.Port, a *Adapter) {
	s := &step{
		level: l, name: l.prefix() + out, rows: None, failed: None,
		op:  &operation{Operation: config.Operation{Name: out, Field: "ensemble_scheduling", In: []string{t}, Out: out}, adapter: a},
		cfg: &modelconfig.ModelEnsembling_Step{ModelName: out, InputMap: map[string]string{t: t}, OutputMap: map[string]string{out: out}},
		sig: &config.Signature{Model: out, MaxBatch: from.batch},
	}
	s.sig.Inputs = []config.Port{{Name: t, DType: from.dtype, Dims: from.dims}}
	dims := to.Dims
	if a.Layout == SameLayout && !a.Drop && !a.Add {
		dims = from.dims // the batch dimension may be only one side's
	}
	s.sig.Outputs = []config.Port{{Name: out, DType: to.DType, Dims: dims}}
	l.steps, c.leaves = append(l.steps, s), append(c.leaves, s)
}

// adaptOutput inserts the adapter of an output of the ensemble. The step that writes it then writes another tensor.
func (c *compiler) adaptOutput(l *level, out *config.Port) {
	w, port := l.writer(out.Name)
	if w == nil || out.DType == 0 || out.Dims.Rank() == 0 {
		return
	}
	from := sideOf(w.sig.MaxBatch, &w.sig.Outputs[port], nil)
	a, _ := adapterOf(from, sideOf(l.sig.MaxBatch, out, nil))
	if a == nil || w.op != nil {
		return
	}
	raw := out.Name + " of " + w.model
	w.cfg = proto.CloneOf(w.cfg)
	w.cfg.OutputMap[w.sig.Outputs[port].Name] = raw
	for _, s := range l.steps {
		for name, t := range s.cfg.GetInputMap() {
			if t == out.Name && s.op == nil {
				s.cfg = proto.CloneOf(s.cfg)
				s.cfg.InputMap[name] = raw
			}
		}
	}
	c.adapter(l, raw, out.Name, &from, out, a)
}

// writer returns the step that writes a tensor of l, and its port; nil for none.
func (l *level) writer(t string) (*step, int) {
	for _, s := range l.steps {
		for i := range s.sig.Outputs {
			if name, mapped := s.cfg.GetOutputMap()[s.sig.Outputs[i].Name]; mapped && name == t {
				return s, i
			}
		}
	}
	return nil, 0
}

// writes returns what the writer of a tensor of l declares; nil when that is not known.
func (l *level) writes(t string) *side {
	if w, port := l.writer(t); w != nil {
		s := sideOf(w.sig.MaxBatch, &w.sig.Outputs[port], nil)
		return &s
	}
	if i := l.sig.Input(t); i >= 0 && l.sig.Inputs[i].DType != 0 && l.sig.Inputs[i].Dims.Rank() > 0 {
		s := sideOf(l.sig.MaxBatch, &l.sig.AtModel().Inputs[i], config.Formats(l.cfg))
		return &s
	}
	return nil
}

// reference is how parameters name a step: by its model, or by its position where several steps have that.
func (l *level) reference(s *step) string {
	n := 0
	for _, other := range l.steps {
		if other.op == nil && other.model == s.model {
			n++
		}
	}
	if n > 1 {
		return strconv.Itoa(slices.Index(l.steps, s))
	}
	return s.model
}

// adapterHint names the adapter that would make a step read a tensor; "" when none does.
func (l *level) adapterHint(t string) string {
	from := l.writes(t)
	if from == nil {
		return ""
	}
	for _, s := range l.steps {
		for i := range s.sig.Inputs {
			p := &s.sig.Inputs[i]
			if name, mapped := s.cfg.GetInputMap()[p.Name]; !mapped || name != t || s.op != nil {
				continue
			}
			if a, ok := adapterOf(*from, sideOf(s.sig.MaxBatch, p, s.formats)); ok && a != nil {
				return fmt.Sprintf(". The adapter '%s' of input %s in model %s would fit: set step.%s.adapt to true", a, p.Name, s.model, l.reference(s))
			}
		}
	}
	if i := l.sig.Output(t); i >= 0 {
		if a, ok := adapterOf(*from, sideOf(l.sig.MaxBatch, &l.sig.Outputs[i], nil)); ok && a != nil {
			return fmt.Sprintf(". The adapter '%s' of output %s would fit: set ensemble.adapt to true", a, t)
		}
	}
	return ""
}
