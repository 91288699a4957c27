package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

var (
	pipelineFields   = []string{"input", "steps", "output", "dataflow", "allowCycles", "maxStepRevisits"}
	seldonStepFields = []string{"name", "inputs", "joinWindowMs", "tensorMap", "triggers", "inputsJoinType", "triggersJoinType", "batch"}
)

// pipeline is a Pipeline that is being read.
type pipeline struct {
	*builder

	e     *ensemble
	name  string
	steps map[string]*seldonStep
	order []*seldonStep
}

// seldonStep is a step of a Pipeline.
type seldonStep struct {
	value

	name      string
	fields    map[string]value
	sig       *signature
	out       []link
	connected bool // its inputs and condition are known
	open      bool // they are being made
	step      *step
}

// seldon reads a Pipeline.
func (b *builder) seldon(doc value) {
	b.result.Format = "Seldon Core 2 Pipeline"
	f := b.object(doc, resourceFields...)
	name, _ := b.resourceName(doc, f["metadata"])
	spec := b.object(f["spec"], pipelineFields...)
	p := &pipeline{builder: b, name: name, steps: map[string]*seldonStep{}, e: &ensemble{name: name, comment: "From the Pipeline '" + name + "' of Seldon Core 2.\n"}}
	p.rest(spec)
	if len(b.list(spec["steps"])) == 0 {
		b.fail(doc, "the pipeline '%s' has no steps", name)
		return
	}
	for _, v := range b.list(spec["steps"]) {
		p.read(v)
	}
	for _, s := range p.order {
		p.connect(s)
	}
	if len(b.errs) > 0 || len(b.unknown) > 0 {
		return
	}
	p.outputs(doc, spec["output"])
	b.add(doc, p.e)
}

// rest notes the parts of a pipeline that are no steps and outputs.
func (p *pipeline) rest(spec map[string]value) {
	if v := spec["dataflow"]; v.n != nil {
		p.note(v, "dataflow", "there are no topics of Kafka: tensors stay in the memory of the server")
	}
	if v := spec["allowCycles"]; v.n != nil && p.text(v) == "true" {
		p.fail(v, "a pipeline with cycles is no ensemble: expected a graph without them")
	}
	for _, f := range p.fields(spec["input"]) {
		p.note(f.value, "input."+f.name, "an ensemble reads no other pipeline: its inputs are those of the request. Make an ensemble of both, where one is a step")
	}
}

// read reads the name of a step and adds its model.
func (p *pipeline) read(v value) {
	s := &seldonStep{value: v, fields: p.object(v, seldonStepFields...)}
	s.name = p.folderName(v, s.fields["name"], "name")
	if p.steps[s.name] != nil {
		p.fail(s.fields["name"], "there are two steps '%s'", s.name)
		return
	}
	if p.steps[s.name], p.order = s, append(p.order, s); s.name == "" {
		return
	}
	if s.name == p.name {
		p.note(s.fields["name"], "step '"+s.name+"'", "it has the name of the pipeline: references to '%s' are to the step's outputs", s.name)
	}
	s.sig = p.needed(v, s.name)
	endpoint := p.Endpoint
	if endpoint == "" {
		endpoint = "seldon-mesh.seldon-mesh.svc.cluster.local:80"
		p.noteOnce(value{}, "endpoint", "models are called at %s, the service of Seldon's mesh, which must route by the model's name in the request: set the parameter 'endpoint', or --remote HOST:PORT", endpoint)
	}
	p.remote(s.name, endpoint, "", s.sig)
	if batch := s.fields["batch"]; batch.n != nil {
		f := p.object(batch, "size", "windowMs", "rolling")
		p.note(batch, "batch of step '"+s.name+"'", "a step runs once per request: size %s is that of the requests that are batched together, which dynamic_batching of the model decides", p.text(f["size"]))
	}
	for _, key := range []string{"joinWindowMs"} {
		if w := s.fields[key]; w.n != nil {
			p.note(w, key+" of step '"+s.name+"'", "the tensors of a request arrive together: there is nothing to wait for")
		}
	}
	if j := s.fields["inputsJoinType"]; p.choice(j, "inner", "inner", "outer", "any") != "inner" {
		p.note(j, "inputsJoinType "+p.text(j)+" of step '"+s.name+"'", "a step waits for all its inputs, as inner does")
	}
	if s.sig == nil {
		return
	}
	s.step = &step{model: s.name}
	for _, out := range s.sig.out {
		w := p.e.wire(s.name+"_"+out.name, out, nil)
		s.out, s.step.out = append(s.out, link{out.name, w}), append(s.step.out, link{out.name, w})
	}
}

// reference is what an input or trigger names: the tensors of a step, or of the request.
type reference struct {
	step   *seldonStep // nil for the request
	inputs bool        // the inputs of the step, not its outputs
	tensor string      // empty for all
}

// refer reads a reference: STEP, STEP.inputs, STEP.outputs.TENSOR, PIPELINE.inputs.TENSOR.
func (p *pipeline) refer(v value, text string) (r reference, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	known := append(slices.Sorted(maps.Keys(p.steps)), p.name)
	if r.step = p.steps[parts[0]]; r.step == nil && parts[0] != p.name {
		p.fail(v, "'%s' names no step, expected one of %s.%s", text, strings.Join(known, ", "), config.DidYouMean(parts[0], known))
		return r, false
	}
	if len(parts) > 1 {
		if parts[1] != "inputs" && parts[1] != "outputs" {
			p.fail(v, "found '%s' in '%s', expected inputs or outputs.%s", parts[1], text, config.DidYouMean(parts[1], []string{"inputs", "outputs"}))
			return r, false
		}
		r.inputs = parts[1] == "inputs"
	}
	if parts[0] == p.name && r.inputs {
		r.step = nil
	}
	if len(parts) > 2 {
		r.tensor = parts[2]
	}
	return r, true
}

// connect makes the inputs and the condition of a step, after those of the steps that it reads.
func (p *pipeline) connect(s *seldonStep) {
	if s.connected || s.step == nil {
		return
	}
	if s.open {
		p.fail(s.value, "the step '%s' waits for itself: the pipeline has a cycle", s.name)
		return
	}
	s.open = true
	defer func() { s.open, s.connected = false, true }()
	found := map[string]*wire{}
	renamed := p.tensorMap(s)
	list := p.list(s.fields["inputs"])
	for _, v := range list {
		p.source(s, v, renamed, found)
	}
	for _, in := range s.sig.in {
		w := found[in.name]
		if w == nil && len(list) == 0 {
			w = p.requestTensor(s.value, in.name, in)
		}
		if w == nil {
			have := slices.Sorted(maps.Keys(found))
			p.fail(s.value, "the model '%s' has the input '%s', which is not among the tensors of its inputs (%s): expected a tensorMap.%s", s.name, in.name, cmp.Or(strings.Join(have, ", "), "none"), config.DidYouMean(in.name, have))
			continue
		}
		s.step.in = append(s.step.in, link{in.name, w})
	}
	p.trigger(s)
	p.e.steps = append(p.e.steps, s.step)
	rows := s.step.when
	for _, l := range s.step.in {
		if l.wire.when != nil && rows == nil {
			rows = l.wire.when
		} else if l.wire.when != nil && s.step.when != nil {
			s.step.when = s.step.when.of(l.wire.when, s.step.in)
			rows = s.step.when
			break
		}
	}
	for _, l := range s.out {
		l.wire.when = rows
	}
}

// requestTensor returns a tensor of the request.
func (p *pipeline) requestTensor(at value, name string, in port) *wire {
	w, ok := p.e.input(name, in)
	if !ok {
		p.fail(at, "the tensor '%s' of the request has the type %s and dims %v for one step and %s and %v for another", name, w.port.dtype, w.port.dims, in.dtype, in.dims)
	}
	return w
}

// tensorMap returns the names that tensors have for the step, by reference.
func (p *pipeline) tensorMap(s *seldonStep) map[string]string {
	m := map[string]string{}
	for _, f := range p.fields(s.fields["tensorMap"]) {
		to := p.text(f.value)
		if r, ok := p.refer(f.value, f.name); ok {
			if r.tensor == "" {
				p.fail(f.value, "'%s' names no tensor, expected for example STEP.outputs.TENSOR", f.name)
			}
			if _, there := find(s.sig.in, to); !there {
				p.fail(f.value, "the model '%s' has no input '%s', expected one of %s.%s", s.name, to, strings.Join(names(s.sig.in), ", "), config.DidYouMean(to, names(s.sig.in)))
			}
		}
		m[f.name] = to
	}
	return m
}

// source adds the tensors of one reference in the inputs of a step.
func (p *pipeline) source(s *seldonStep, v value, renamed map[string]string, found map[string]*wire) {
	text := p.text(v)
	r, ok := p.refer(v, text)
	if !ok {
		return
	}
	if r.step == nil || r.inputs {
		p.sourceInputs(s, v, r, renamed, found)
		return
	}
	p.connect(r.step)
	hit := false
	for _, l := range r.step.out {
		if r.tensor != "" && l.port != r.tensor {
			continue
		}
		to := l.port
		if n := renamed[r.step.name+".outputs."+l.port]; n != "" {
			to = n
		}
		found[to], hit = l.wire, true
	}
	if !hit && r.step.sig != nil {
		p.fail(v, "the step '%s' has no output '%s', expected one of %s.%s", r.step.name, r.tensor, strings.Join(names(r.step.sig.out), ", "), config.DidYouMean(r.tensor, names(r.step.sig.out)))
	}
}

// sourceInputs adds tensors of the request, or those that another step reads.
func (p *pipeline) sourceInputs(s *seldonStep, v value, r reference, renamed map[string]string, found map[string]*wire) {
	if r.step != nil {
		p.connect(r.step)
		for _, l := range r.step.step.in {
			if r.tensor == "" || l.port == r.tensor {
				to := l.port
				if n := renamed[r.step.name+".inputs."+l.port]; n != "" {
					to = n
				}
				found[to] = l.wire
			}
		}
		return
	}
	for _, in := range s.sig.in {
		name := in.name
		for from, to := range renamed {
			if to == in.name && strings.HasPrefix(from, p.name+".inputs.") {
				name = strings.TrimPrefix(from, p.name+".inputs.")
			}
		}
		if r.tensor == "" && found[in.name] == nil || r.tensor == name {
			found[in.name] = p.requestTensor(v, name, in)
		}
	}
}

// trigger makes the condition of a step: the tensors that must be there for it to run.
func (p *pipeline) trigger(s *seldonStep) {
	list := p.list(s.fields["triggers"])
	join := " && "
	if p.choice(s.fields["triggersJoinType"], "inner", "inner", "outer", "any") != "inner" {
		join = " || "
	}
	var parts []string
	for _, v := range list {
		r, ok := p.refer(v, p.text(v))
		switch {
		case !ok:
		case r.step == nil && r.tensor != "":
			parts = append(parts, "has(params."+identifier(r.tensor)+")")
			p.note(v, "trigger "+p.text(v), "every input of an ensemble is in each request: the request's parameter '%s' takes the place of the tensor", identifier(r.tensor))
		case r.step == nil:
			p.note(v, "trigger "+p.text(v), "the request is always there")
		default:
			p.connect(r.step)
			p.note(v, "trigger "+p.text(v), "the outputs of a model are always there: the step does not wait for '%s'. For a model that may leave an output out, write the parameter step.%s.when", r.step.name, s.name)
			if join == " || " {
				parts = nil
			}
		}
	}
	if len(parts) > 0 {
		s.step.when = &condition{text: escape(strings.Join(parts, join))}
	}
}

// outputs makes the outputs of the pipeline.
func (p *pipeline) outputs(doc, v value) {
	if v.n == nil {
		p.fail(doc, "the pipeline '%s' has no output: an ensemble responds to each request", p.name)
		return
	}
	f := p.object(v, "steps", "joinWindowMs", "stepsJoin", "tensorMap")
	anyOf := p.choice(f["stepsJoin"], "inner", "inner", "outer", "any") != "inner"
	renamed := map[string]string{}
	for _, t := range p.fields(f["tensorMap"]) {
		renamed[t.name] = p.text(t.value)
	}
	byName := map[string][]*wire{}
	var order []string
	for _, s := range p.list(f["steps"]) {
		r, ok := p.refer(s, p.text(s))
		if !ok || r.step == nil {
			continue
		}
		hit := false
		for _, l := range r.step.out {
			if r.tensor != "" && r.tensor != l.port {
				continue
			}
			name := l.port
			if n := renamed[r.step.name+".outputs."+l.port]; n != "" {
				name = n
			}
			if hit = true; byName[name] == nil {
				order = append(order, name)
			}
			byName[name] = append(byName[name], l.wire)
		}
		if !hit {
			p.fail(s, "the step '%s' has no output '%s', expected one of %s.%s", r.step.name, r.tensor, strings.Join(names(r.step.sig.out), ", "), config.DidYouMean(r.tensor, names(r.step.sig.out)))
		}
	}
	for _, name := range order {
		p.output(f["steps"], name, byName[name], anyOf)
	}
}

// output makes an output of tensors that have its name.
func (p *pipeline) output(at value, name string, list []*wire, anyOf bool) {
	conditional := slices.ContainsFunc(list, func(w *wire) bool { return w.when != nil })
	switch {
	case len(list) == 1 && conditional:
		p.note(at, "output '"+name+"'", "the step that writes it runs for some requests only, and an output is in every response: it is left out")
	case len(list) == 1:
		p.e.output(list[0], name)
	case anyOf && conditional && list[0].when != nil:
		to := p.e.wire(name, list[0].port, nil)
		p.e.joins = append(p.e.joins, joined{to, list})
		p.e.output(to, name)
	case anyOf:
		p.note(at, "stepsJoin any of output '"+name+"'", "every step that writes it runs for each request: it is the first one's. With the parameter step.STEP.when steps run for some requests")
		p.e.output(list[0], name)
	default:
		for i, w := range list {
			if to := fmt.Sprintf("%s_%d", name, i); i == 0 {
				p.e.output(w, name)
			} else if p.e.output(w, to) {
				p.note(at, "output '"+name+"'", "several steps have it, and a response has each name once: it is '%s' here", to)
			}
		}
	}
}
