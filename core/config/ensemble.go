package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// ensemble checks the steps of an ensemble as far as its own configuration allows. Tensors that only feed each
// other in a cycle count as connected: the plan compiler reports the cycle.
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
	steps    []*modelconfig.ModelEnsembling_Step
	inputs   map[string]bool   // the ensemble's inputs
	writer   map[string]int    // the step that writes a tensor
	readers  map[string][]int  // the steps that read it
	where    map[string]string // the field that names it first
	unfed    map[string]bool   // tensors that nothing writes, and all that depend on them
	reported map[string]bool   // tensors whose problem was reported already
}

func (l *problems) dataFlow() {
	f := newFlow(l.cfg)
	before := len(l.list)
	for i, s := range f.steps {
		l.link(f, i, s)
	}
	linked := len(l.list) == before
	f.findUnfed()
	for i, in := range l.cfg.GetInput() {
		if _, written := f.writer[in.GetName()]; !written && len(f.readers[in.GetName()]) == 0 {
			l.unusedInput(f, i, in.GetName())
		}
	}
	outputs := map[string]bool{}
	for i, out := range l.cfg.GetOutput() {
		outputs[out.GetName()] = true
		l.outputFed(f, fmt.Sprintf("output[%d]", i), out.GetName())
	}
	for _, t := range f.tensors() {
		if !outputs[t] && !f.reported[t] && (f.unfed[t] || len(f.readers[t]) == 0) {
			l.add(TensorUnused, f.where[t], "ensemble tensor '%s' is unused in ensemble '%s'", t, l.cfg.GetName())
		}
	}
	if linked && len(l.list) > before {
		l.cycle(f)
	}
}

func newFlow(cfg *modelconfig.ModelConfig) *flow {
	f := &flow{
		steps: cfg.GetEnsembleScheduling().GetStep(), inputs: map[string]bool{},
		writer: map[string]int{}, readers: map[string][]int{}, where: map[string]string{}, reported: map[string]bool{},
	}
	for _, in := range cfg.GetInput() {
		f.inputs[in.GetName()] = true
	}
	return f
}

// firstUse records the first field that names tensor t.
func (f *flow) firstUse(t, field string) {
	if f.where[t] == "" {
		f.where[t] = field
	}
}

func stepField(i int) string { return fmt.Sprintf("ensemble_scheduling.step[%d]", i) }

// link adds step i to the flow.
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
		f.firstUse(t, stepField(i)+".output_map."+port)
	}
	for _, port := range slices.Sorted(maps.Keys(s.GetInputMap())) {
		t := s.GetInputMap()[port]
		f.readers[t] = append(f.readers[t], i)
		f.firstUse(t, stepField(i)+".input_map."+port)
	}
}

// findUnfed finds the tensors that nothing writes and all that depend on them.
func (f *flow) findUnfed() {
	loose := map[string]bool{}
	for _, t := range f.tensors() {
		if _, written := f.writer[t]; !written && !f.inputs[t] {
			f.spread(loose, t)
		}
	}
	f.unfed = loose
}

// report marks a tensor and all that depend on it as reported.
func (f *flow) report(t string) { f.spread(f.reported, t) }

// spread adds a tensor and all that depend on it to a set.
func (f *flow) spread(set map[string]bool, t string) {
	set[t] = true
	for queue := []string{t}; len(queue) > 0; queue = queue[1:] {
		for _, i := range f.readers[queue[0]] {
			for _, t := range f.steps[i].GetOutputMap() {
				if !set[t] {
					set[t] = true
					queue = append(queue, t)
				}
			}
		}
	}
}

// tensors returns every tensor that the steps name, sorted.
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

// outputFed reports an output that gets no data. Like Triton it names the tensor at the root.
func (l *problems) outputFed(f *flow, field, out string) {
	i, written := f.writer[out]
	if !written && len(f.readers[out]) == 0 {
		near := f.suggestion(out, f.unread)
		l.add(OutputUnused, field, "ensemble output '%s' for ensemble %s' is not used%s", out, l.cfg.GetName(), near)
		return
	}
	if !f.unfed[out] {
		return
	}
	root := out
	if written {
		root = f.root(i, out)
	}
	if f.reported[root] {
		return // reported with the suggestion
	}
	near := f.suggestion(root, f.unread)
	f.report(root)
	if root != out || near != "" {
		field = f.where[root] // where it is read
	}
	if root == out {
		l.add(NotWritten, field, "output '%s' for ensemble '%s' is not written%s", out, l.cfg.GetName(), near)
		return
	}
	l.add(NotWritten, field, "output '%s' for ensemble '%s' is not written: at least one of its depending tensors, '%s', is not connected%s",
		out, l.cfg.GetName(), root, near)
	if near != "" {
		l.fix("correct the name of the tensor here, or where it is written")
	} else {
		l.fix("have a step write '" + root + "', or read another tensor here")
	}
}
