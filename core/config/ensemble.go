package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// ensemble checks the steps of an ensemble as far as its own configuration allows. Tensors that only feed each
// other in a cycle count as connected: the plan compiler reports the cycle.
func (l *problems) ensemble() {
	name := l.cfg.GetName()
	l.addIf(len(l.cfg.GetInstanceGroup()) > 0, EnsembleField, "instance_group", "instance group should not be specified for ensemble '%s'", name)
	l.addIf(l.cfg.GetOptimization() != nil, EnsembleField, "optimization", "optimization should not be specified for ensemble '%s'", name)
	l.addIf(len(l.cfg.GetModelWarmup()) > 0, EnsembleField, "model_warmup", "model_warmup can not be specified for ensemble '%s'", name)
	steps := l.cfg.GetEnsembleScheduling().GetStep()
	if len(steps) == 0 {
		l.add(EnsembleStep, "ensemble_scheduling", "must specify 'step' for ensemble '%s'", name)
		return
	}
	before := len(l.list)
	for i, s := range steps {
		l.step(i, s)
	}
	_, faults := FlowOf(l.cfg)
	_, whole := WholeFlowOf(l.cfg)
	if l.list = append(append(l.list, faults...), whole...); len(l.list) == before {
		l.dataFlow()
	}
}

func (l *problems) step(i int, s *modelconfig.ModelEnsembling_Step) {
	const text = "must specify '%s' in step %d of ensemble '%s'"
	l.addIf(s.GetModelName() == "", EnsembleStep, stepField(i), text, "model_name", i, l.cfg.GetName())
	l.addIf(len(s.GetInputMap()) == 0, EnsembleStep, stepField(i), text, "input_map", i, l.cfg.GetName())
	l.addIf(len(s.GetOutputMap()) == 0, EnsembleStep, stepField(i), text, "output_map", i, l.cfg.GetName())
}

// flow is an ensemble's data flow by tensor name.
type flow struct {
	steps    []*modelconfig.ModelEnsembling_Step // those of the configuration, then the operations of its parameters
	fields   []string                            // per step: its place in the configuration
	inputs   map[string]bool                     // the ensemble's inputs
	writer   map[string]int                      // the step that writes a tensor
	readers  map[string][]int                    // the steps that read it
	where    map[string]string                   // the field that names it first
	unfed    map[string]bool                     // tensors that nothing writes, and all that depend on them
	reported map[string]bool                     // tensors whose problem was reported already
}

func (l *problems) dataFlow() {
	f := newFlow(l.cfg)
	before := len(l.list)
	for i, s := range f.steps {
		l.link(f, i, s)
	}
	linked := len(l.list) == before
	for _, t := range f.unwritten() {
		f.spread(f.unfed, t)
	}
	for i, in := range l.cfg.GetInput() {
		if _, written := f.writer[in.GetName()]; !written && len(f.readers[in.GetName()]) == 0 {
			near := f.suggestion(in.GetName(), f.unwritten) // the tensor that was probably meant
			if near != "" {
				near = ": a step reads a tensor that nothing writes" + near
			}
			l.add(InputUnused, fmt.Sprintf("input[%d]", i), "ensemble input '%s' for ensemble %s' is not used%s", in.GetName(), l.cfg.GetName(), near)
		}
	}
	outputs := map[string]bool{}
	for i, out := range l.cfg.GetOutput() {
		outputs[out.GetName()] = true
		l.outputFed(f, fmt.Sprintf("output[%d]", i), out.GetName())
	}
	for _, t := range union(f.writer, f.readers) {
		l.addIf(!outputs[t] && !f.reported[t] && (f.unfed[t] || len(f.readers[t]) == 0), TensorUnused, f.where[t],
			"ensemble tensor '%s' is unused in ensemble '%s'", t, l.cfg.GetName())
	}
	if linked && len(l.list) > before {
		l.cycle(f)
	}
}

func newFlow(cfg *modelconfig.ModelConfig) *flow {
	f := &flow{
		inputs: map[string]bool{}, unfed: map[string]bool{},
		writer: map[string]int{}, readers: map[string][]int{}, where: map[string]string{}, reported: map[string]bool{},
	}
	for _, in := range cfg.GetInput() {
		f.inputs[in.GetName()] = true
	}
	all, _ := FlowOf(cfg)
	for i, s := range all.Steps {
		step := s.ModelEnsembling_Step
		if s.Rows != "" {
			step = proto.CloneOf(step)
			step.InputMap[s.Rows] = s.Rows
		}
		if s.Faults != nil && s.Faults.Failed != "" {
			step = proto.CloneOf(step)
			step.OutputMap[s.Faults.Failed] = s.Faults.Failed
		}
		f.steps, f.fields = append(f.steps, step), append(f.fields, cmp.Or(s.Field, stepField(i)))
	}
	for _, o := range all.Operations {
		step := &modelconfig.ModelEnsembling_Step{ModelName: o.Name, InputMap: map[string]string{}, OutputMap: map[string]string{}}
		if o.Shadow == nil {
			for _, t := range o.Written() {
				step.OutputMap[t] = t
			}
		}
		for _, t := range o.In {
			step.InputMap[t] = t
		}
		f.steps, f.fields = append(f.steps, step), append(f.fields, o.Field)
	}
	return f
}

// at returns the place of one port of step i. An operation has one place.
func (f *flow) at(i int, ports, port string) string {
	if strings.HasPrefix(f.fields[i], "parameters.") {
		return f.fields[i]
	}
	return f.fields[i] + ports + port
}

func stepField(i int) string { return fmt.Sprintf("ensemble_scheduling.step[%d]", i) }

func (l *problems) link(f *flow, i int, s *modelconfig.ModelEnsembling_Step) {
	for _, port := range sortedKeys(s.GetOutputMap()) {
		t := s.GetOutputMap()[port]
		_, twice := f.writer[t]
		l.addIf(twice, TensorTwice, f.at(i, ".output_map", ""),
			"ensemble tensor '%s' can appear in an output map only once for ensemble '%s' step %d", t, l.cfg.GetName(), i)
		l.addIf(f.inputs[t], InputWritten, f.at(i, ".output_map", ""),
			"ensemble tensor '%s' is an input of ensemble '%s', but step %d writes it", t, l.cfg.GetName(), i)
		f.writer[t] = i
		f.where[t] = cmp.Or(f.where[t], f.at(i, ".output_map.", port))
	}
	for _, port := range sortedKeys(s.GetInputMap()) {
		t := s.GetInputMap()[port]
		f.readers[t] = append(f.readers[t], i)
		f.where[t] = cmp.Or(f.where[t], f.at(i, ".input_map.", port))
	}
}

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

func union[A, B any](a map[string]A, b map[string]B) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
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
	f.spread(f.reported, root)
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

// CompleteFlow completes an ensemble from the names in its steps and returns a notice for each addition. An empty
// list of inputs becomes the tensors that no step writes, an empty list of outputs those that no step reads, and a
// model_version of 0 becomes -1. Types, dims and max_batch_size follow from the steps' models (pipeline/plan).
// CompleteFlow is idempotent.
func CompleteFlow(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg}
	for i, s := range cfg.GetEnsembleScheduling().GetStep() {
		if s.GetModelVersion() == 0 && s.GetModelName() != "" {
			l.add(NoModelVersion, stepField(i), "step %d of ensemble '%s' does not specify 'model_version', so the latest version of model '%s' is taken",
				i, cfg.GetName(), s.GetModelName())
			s.ModelVersion = -1
		}
	}
	f := newFlow(cfg)
	for i, s := range f.steps {
		for _, t := range s.GetInputMap() {
			f.readers[t] = append(f.readers[t], i)
		}
		for _, t := range s.GetOutputMap() {
			f.writer[t] = i
		}
	}
	if len(f.steps) > 0 {
		l.completePorts(f)
	}
	return l.list
}

func (l *problems) completePorts(f *flow) {
	cfg := l.cfg
	for _, p := range portsOf(cfg) { // those whose type or dims the steps provide
		_, written := f.writer[p.GetName()]
		used, gaps := written || len(f.readers[p.GetName()]) > 0, p.GetDataType() == modelconfig.DataType_TYPE_INVALID || len(p.GetDims()) == 0
		l.addIf(used && gaps, InferredPort, p.field,
			"%s '%s' of ensemble '%s' has no data_type or dims, which are taken from its steps", p.kind, p.GetName(), cfg.GetName())
	}
	if len(cfg.GetInput()) == 0 {
		for _, t := range sortedKeys(f.readers) {
			if _, written := f.writer[t]; !written {
				cfg.Input = append(cfg.Input, &modelconfig.ModelInput{Name: t})
				l.undeclared(f.at(f.readers[t][0], ".input_map", ""), "input", t)
			}
		}
	}
	if len(cfg.GetOutput()) == 0 {
		for _, t := range sortedKeys(f.writer) {
			if len(f.readers[t]) == 0 {
				cfg.Output = append(cfg.Output, &modelconfig.ModelOutput{Name: t})
				l.undeclared(f.at(f.writer[t], ".output_map", ""), "output", t)
			}
		}
	}
}

func (l *problems) undeclared(field, kind, tensor string) {
	l.add(InferredPort, field, "%s '%s' of ensemble '%s' is not declared and is taken from its steps", kind, tensor, l.cfg.GetName())
}

// suggestion returns a sentence with the most similar candidate, or nothing. The candidate counts as reported.
func (f *flow) suggestion(name string, candidates func() []string) string {
	list := candidates()
	near := DidYouMean(name, slices.DeleteFunc(list, func(t string) bool { return t == name }))
	if near == "" {
		return ""
	}
	for _, t := range list {
		if strings.Contains(near, "\""+t+"\"") {
			f.reported[t] = true
		}
	}
	return "." + near
}

// unread returns the tensors that a step writes and nothing reads, and the ensemble's inputs that nothing reads,
// sorted.
func (f *flow) unread() []string {
	return slices.DeleteFunc(union(f.writer, f.inputs), func(t string) bool { return len(f.readers[t]) > 0 })
}

// unwritten returns the tensors that steps read and nothing writes, sorted.
func (f *flow) unwritten() []string {
	return slices.DeleteFunc(sortedKeys(f.readers), func(t string) bool {
		_, written := f.writer[t]
		return written || f.inputs[t]
	})
}

// root follows the inputs of step i, which writes out, back to a tensor that nothing writes.
func (f *flow) root(i int, out string) string {
	root, seen := out, map[string]bool{out: true}
	for again := true; again; {
		again = false
		ins := f.steps[i].GetInputMap()
		for _, port := range sortedKeys(ins) {
			if t := ins[port]; f.unfed[t] && !seen[t] {
				root, seen[t] = t, true
				i, again = f.writer[t]
				break
			}
		}
	}
	return root
}

// cycle reports steps that wait for each other, if there are other problems: the cycle is their cause. Without
// other problems the plan compiler reports it.
func (l *problems) cycle(f *flow) {
	around := f.cycle()
	if around == nil {
		return
	}
	names := make([]string, 0, len(around)+1)
	for _, i := range around {
		names = append(names, f.steps[i].GetModelName())
	}
	l.add(Circle, f.fields[around[0]], "steps of ensemble '%s' wait for each other (cycle: %s)", l.cfg.GetName(), strings.Join(append(names, names[0]), " -> "))
}

// cycle returns the steps of one cycle, or nil.
func (f *flow) cycle() []int {
	const (
		fresh = iota
		open
		done
	)
	state := make([]int, len(f.steps))
	var path []int
	var visit func(i int) []int
	visit = func(i int) []int {
		state[i] = open
		path = append(path, i)
		outs := f.steps[i].GetOutputMap()
		for _, port := range sortedKeys(outs) {
			for _, next := range f.readers[outs[port]] {
				switch state[next] {
				case open:
					return path[slices.Index(path, next):]
				case fresh:
					if found := visit(next); found != nil {
						return found
					}
				}
			}
		}
		state[i], path = done, path[:len(path)-1]
		return nil
	}
	for i := range f.steps {
		if state[i] == fresh {
			if found := visit(i); found != nil {
				return found
			}
		}
	}
	return nil
}
