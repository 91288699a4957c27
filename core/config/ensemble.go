package config

import (
	"fmt"
	"maps"
	"slices"

	"tutti/proto/modelconfig"
)

// ensemble checks the steps of an ensemble as far as its own configuration tells.
// Data that only goes round in a circle counts as connected here: the plan names
// the cycle.
func (l *problems) ensemble() {
	name := l.cfg.GetName()
	if len(l.cfg.GetInstanceGroup()) > 0 {
		l.add(EnsembleField, "instance_group", "instance group should not be specified for ensemble '%s'", name)
	}
	if l.cfg.GetOptimization() != nil {
		l.add(EnsembleField, "optimization", "optimization should not be specified for ensemble '%s'", name)
	}
	if len(l.cfg.GetModelWarmup()) > 0 {
		l.add(EnsembleField, "model_warmup", "model_warmup can not be specified for ensemble '%s'", name)
	}
	steps := l.cfg.GetEnsembleScheduling().GetStep()
	if len(steps) == 0 {
		l.add(EnsembleStep, "ensemble_scheduling", "must specify 'step' for ensemble '%s'", name)
		return
	}
	before := len(l.list)
	for i, s := range steps {
		l.step(i, s)
	}
	if len(l.list) == before {
		l.dataFlow()
	}
}

func (l *problems) step(i int, s *modelconfig.ModelEnsembling_Step) {
	for _, f := range []struct {
		field   string
		missing bool
	}{
		{"model_name", s.GetModelName() == ""},
		{"input_map", len(s.GetInputMap()) == 0},
		{"output_map", len(s.GetOutputMap()) == 0},
	} {
		if f.missing {
			l.add(EnsembleStep, stepField(i), "must specify '%s' in step %d of ensemble '%s'", f.field, i, l.cfg.GetName())
		}
	}
}

// flow is an ensemble's data flow by tensor name.
type flow struct {
	steps   []*modelconfig.ModelEnsembling_Step
	inputs  map[string]bool   // the ensemble's inputs
	writer  map[string]int    // the step that writes a tensor
	readers map[string][]int  // the steps that read it
	where   map[string]string // the map that names it first
}

func (l *problems) dataFlow() {
	f := newFlow(l.cfg)
	for i, s := range f.steps {
		l.link(f, i, s)
	}
	for i, in := range l.cfg.GetInput() {
		if _, written := f.writer[in.GetName()]; !written && len(f.readers[in.GetName()]) == 0 {
			l.add(InputUnused, fmt.Sprintf("input[%d]", i), "ensemble input '%s' for ensemble %s' is not used", in.GetName(), l.cfg.GetName())
		}
	}
	loose := f.unconnected()
	outputs := map[string]bool{}
	for i, out := range l.cfg.GetOutput() {
		outputs[out.GetName()] = true
		l.written(f, loose, fmt.Sprintf("output[%d]", i), out.GetName())
	}
	for _, t := range f.tensors() {
		if !outputs[t] && (loose[t] || len(f.readers[t]) == 0) {
			l.add(TensorUnused, f.where[t], "ensemble tensor '%s' is unused in ensemble '%s'", t, l.cfg.GetName())
		}
	}
}

func newFlow(cfg *modelconfig.ModelConfig) *flow {
	f := &flow{
		steps: cfg.GetEnsembleScheduling().GetStep(), inputs: map[string]bool{},
		writer: map[string]int{}, readers: map[string][]int{}, where: map[string]string{},
	}
	for _, in := range cfg.GetInput() {
		f.inputs[in.GetName()] = true
	}
	return f
}

// place keeps the first field that names tensor t.
func (f *flow) place(t, field string) {
	if f.where[t] == "" {
		f.where[t] = field
	}
}

func stepField(i int) string { return fmt.Sprintf("ensemble_scheduling.step[%d]", i) }

// link enters step i into the flow.
func (l *problems) link(f *flow, i int, s *modelconfig.ModelEnsembling_Step) {
	for _, port := range slices.Sorted(maps.Keys(s.GetOutputMap())) {
		t := s.GetOutputMap()[port]
		if _, twice := f.writer[t]; twice {
			l.add(TensorTwice, stepField(i)+".output_map", "ensemble tensor '%s' can appear in an output map only once for ensemble '%s' step %d", t, l.cfg.GetName(), i)
		}
		if f.inputs[t] {
			l.add(InputWritten, stepField(i)+".output_map", "ensemble tensor '%s' is an input of ensemble '%s', but step %d writes it", t, l.cfg.GetName(), i)
		}
		f.writer[t] = i
		f.place(t, stepField(i)+".output_map")
	}
	for _, port := range slices.Sorted(maps.Keys(s.GetInputMap())) {
		t := s.GetInputMap()[port]
		f.readers[t] = append(f.readers[t], i)
		f.place(t, stepField(i)+".input_map")
	}
}

// unconnected returns the tensors that nothing writes and all that depend on them.
func (f *flow) unconnected() map[string]bool {
	loose := map[string]bool{}
	var queue []string
	for _, t := range f.tensors() {
		if _, written := f.writer[t]; !written && !f.inputs[t] {
			loose[t] = true
			queue = append(queue, t)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, i := range f.readers[queue[0]] {
			for _, t := range f.steps[i].GetOutputMap() {
				if !loose[t] {
					loose[t] = true
					queue = append(queue, t)
				}
			}
		}
	}
	return loose
}

// tensors returns every tensor the steps name, sorted.
func (f *flow) tensors() []string {
	all := make(map[string]bool, len(f.writer)+len(f.readers))
	for t := range f.writer {
		all[t] = true
	}
	for t := range f.readers {
		all[t] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// written complains about an output that gets no data.
func (l *problems) written(f *flow, loose map[string]bool, field, out string) {
	i, written := f.writer[out]
	if !written && len(f.readers[out]) == 0 {
		l.add(OutputUnused, field, "ensemble output '%s' for ensemble %s' is not used", out, l.cfg.GetName())
		return
	}
	if !loose[out] {
		return
	}
	if written {
		ins := f.steps[i].GetInputMap()
		for _, port := range slices.Sorted(maps.Keys(ins)) {
			if t := ins[port]; loose[t] {
				l.add(NotWritten, field, "output '%s' for ensemble '%s' is not written: at least one of its depending tensors, '%s', is not connected",
					out, l.cfg.GetName(), t)
				return
			}
		}
	}
	l.add(NotWritten, field, "output '%s' for ensemble '%s' is not written", out, l.cfg.GetName())
}
