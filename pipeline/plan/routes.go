package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// A route is a choice without an expression: each alternative of a step has a row set with all rows of the step or none, and joins take
// the tensors of the one that ran. A shadow is an operation that reads what a step reads and writes, and writes nothing.

// Route divides the requests of a step between alternatives.
type Route struct {
	*config.Route

	// Step is the name of the step in the plan.
	Step string
}

// Shadow sends copies of a step's requests to another model. The inputs of its node are those of the step, then its outputs.
type Shadow struct {
	*config.Shadow

	// Step is the name of the step in the plan.
	Step string
	// Ports are the step's, in the order of the node's inputs.
	Ports []config.Port
	// MaxBatch is that of the step's model.
	MaxBatch int
}

// choiceText is the text of an alternative's row set.
func (r *Route) choiceText(alternative int) string {
	return fmt.Sprintf("the %s of '%s' takes '%s'", r.Kind, r.Step, r.Alternatives[alternative].Name)
}

// routed adds the route of a choice or a join to the plan.
func (a *assembly) routed(s *step, op *Operation) {
	if s.op.Shadow != nil {
		op.Shadow = &Shadow{Shadow: s.op.Shadow, Step: s.level.prefix() + s.op.Shadow.Of, MaxBatch: s.sig.MaxBatch}
		op.Shadow.Ports = slices.Clone(s.sig.Inputs)
		for i, name := range slices.Concat(s.op.Shadow.Inputs, s.op.Shadow.Outputs) {
			op.Shadow.Ports[i].Name = name
		}
	}
	of := s.op.Route
	if of == nil {
		of = s.op.Joins
	}
	if of == nil {
		return
	}
	at := slices.IndexFunc(a.plan.Routes, func(r *Route) bool { return r.Route == of })
	if at < 0 {
		at = len(a.plan.Routes)
		a.plan.Routes = append(a.plan.Routes, &Route{of, s.level.prefix() + of.Of})
	}
	if op.Route = int32(at); s.op.Route != nil { //nolint:gosec // few
		op.Takes = true
		op.Alternative = int32(s.op.Alternative) //nolint:gosec // few
	}
}

// AlternativeOf returns the alternative of a route that node n belongs to; -1 for none.
func (p *Plan) AlternativeOf(route *Route, n int32) int {
	for set := p.Nodes[n].Rows; set != 0; set = p.RowSets[set].Parent {
		if s := &p.RowSets[set]; s.Route == route.Route {
			return s.Alternative
		}
	}
	return -1
}

// takes gives the choice of a route's alternative its row set.
func (c *compiler) takes(s *step) {
	r := &Route{s.op.Route, s.level.prefix() + s.op.Route.Of}
	s.op.chooses = c.newSet(RowSet{Parent: s.set, Text: r.choiceText(s.op.Alternative), Route: s.op.Route, Alternative: s.op.Alternative}, s.out[0])
	c.setOf[s.out[0]] = s.op.chooses
}

// checkRoute compares the ports of an alternative with those of the step that it may take the place of.
func (l *level) checkRoute(i int) error {
	flow := &l.flow.Steps[i]
	if flow.Route == nil || flow.Name == "" {
		return nil
	}
	own := slices.IndexFunc(l.flow.Steps, func(s config.FlowStep) bool { return s.Route == flow.Route && s.Name == "" })
	s := l.steps[i]
	return l.comparePorts(flow.Field, l.steps[own], s.sig, s.model)
}

// comparePorts returns an error unless a model has the mapped ports of a step.
func (l *level) comparePorts(parameter string, own *step, sig *config.Signature, model string) error {
	other := &step{sig: sig}
	for _, side := range []struct {
		what     string
		mapped   map[string]string
		own, has []config.Port
	}{
		{"input", own.cfg.GetInputMap(), own.sig.Inputs, sig.Inputs},
		{"output", own.cfg.GetOutputMap(), own.sig.Outputs, sig.Outputs},
	} {
		for i := range side.own {
			p := &side.own[i]
			if _, mapped := side.mapped[p.Name]; !mapped {
				continue
			}
			at := slices.IndexFunc(side.has, func(q config.Port) bool { return q.Name == p.Name })
			if at < 0 {
				return l.errorf(config.NoSuchPort, parameter, "parameter '%s' names the model '%s', which has no %s '%s' as '%s' has, found %s.%s",
					strings.TrimPrefix(parameter, "parameters."), model, side.what, p.Name, own.model, portNames(side.has), config.DidYouMean(p.Name, listNames(side.has)))
			}
			q := &side.has[at]
			a, b := l.dimsOf(own, p), l.dimsOf(other, q)
			if _, fits := config.Narrow(a, b); p.DType != q.DType || !fits {
				return l.errorf(config.TypesDiffer, parameter, "parameter '%s' names the model '%s', whose %s '%s' is %s %s, expected %s %s as '%s' has it",
					strings.TrimPrefix(parameter, "parameters."), model, side.what, p.Name, q.DType.ConfigName(), b, p.DType.ConfigName(), a, own.model)
			}
			if l.whole && side.what == "input" && p.Optional && !q.Optional {
				return l.errorf(config.InputUnmapped, parameter, "parameter '%s' names the model '%s', whose input '%s' is required, expected an optional one as '%s' has it: requests may be without it",
					strings.TrimPrefix(parameter, "parameters."), model, p.Name, own.model)
			}
		}
	}
	for i := range sig.Inputs {
		if p := &sig.Inputs[i]; !p.Optional && own.cfg.GetInputMap()[p.Name] == "" {
			return l.errorf(config.InputUnmapped, parameter, "parameter '%s' names the model '%s', which needs the input '%s' that %s",
				strings.TrimPrefix(parameter, "parameters."), model, p.Name, l.without(own))
		}
	}
	return nil
}

func listNames(ports []config.Port) []string {
	names := make([]string, len(ports))
	for i := range ports {
		names[i] = ports[i].Name
	}
	return names
}

func portNames(ports []config.Port) string { return strings.Join(listNames(ports), ", ") }

// shadowStep makes the operation of a shadow: its ports are those of the step, so that tensors get the shapes of the step's model.
func (l *level) shadowStep(s *step, o config.Operation) error {
	owner := l.steps[o.Of]
	s.op.owner, s.sig.MaxBatch = owner, owner.sig.MaxBatch
	s.cfg.InputMap, s.cfg.OutputMap, s.sig.Inputs = map[string]string{}, nil, nil
	for i, t := range o.In {
		ports, name, side := owner.sig.Inputs, "", "in "
		if i < len(o.Shadow.Inputs) {
			name = o.Shadow.Inputs[i]
		} else {
			ports, name, side = owner.sig.Outputs, o.Shadow.Outputs[i-len(o.Shadow.Inputs)], "out "
		}
		at := slices.IndexFunc(ports, func(p config.Port) bool { return p.Name == name })
		if at < 0 {
			return nil // the step itself is refused
		}
		port := config.Port{Name: side + name, DType: ports[at].DType, Dims: ports[at].Dims, Optional: true}
		s.sig.Inputs, s.cfg.InputMap[port.Name] = append(s.sig.Inputs, port), t
	}
	m, err := l.model(&modelconfig.ModelEnsembling_Step{ModelName: o.Shadow.Model, ModelVersion: o.Shadow.Version})
	if err != nil {
		return l.errorf(config.NoSuchModel, o.Field, "parameter '%s' names the model '%s', which cannot be used: %s%s", strings.TrimPrefix(o.Field, "parameters."), o.Shadow.Model, err, l.nearest(o.Shadow.Model))
	}
	sig := m.Signature
	if m.Ensemble != nil {
		sig = config.SignatureOf(m.Ensemble)
		if m.Signature != nil {
			sig = m.Signature
		}
	}
	if sig.Decoupled || owner.sig.Decoupled {
		return l.errorf(config.NotHonoured, o.Field, "parameter '%s' has a decoupled model: the responses of a shadow are compared one by one", strings.TrimPrefix(o.Field, "parameters."))
	}
	if m.Sequence {
		return l.sequenceError(o.Field, "copies requests to", o.Shadow.Model)
	}
	return l.comparePorts(o.Field, owner, sig, o.Shadow.Model)
}

// checkSequences refuses routes of sequence models: all requests of a sequence must go to one model.
func (c *compiler) checkSequences() error {
	for _, leaf := range c.leaves {
		if !leaf.sequence {
			continue
		}
		for s := leaf; s != nil; s = s.level.within {
			l := s.level
			at := slices.Index(l.steps, s)
			if r := l.flow.Steps[at].Route; r != nil {
				return l.sequenceError(r.Field, "divides the requests of", leaf.model)
			}
			for _, o := range l.flow.Operations {
				if o.Shadow != nil && o.Of == at {
					return l.sequenceError(o.Field, "copies the requests of", leaf.model)
				}
			}
		}
	}
	return nil
}

func (l *level) sequenceError(parameter, does, model string) error {
	return config.WithFix(l.errorf(config.NotHonoured, parameter, "parameter '%s' %s the sequence model '%s': expected models without sequence_batching, because all requests of a sequence must go to one model",
		strings.TrimPrefix(parameter, "parameters."), does, model), "remove the parameter, or let the clients choose the model")
}

// shadows adds the shadows of the steps that an output needs to what it needs.
func (c *compiler) shadows(need NodeSet) {
	for i, s := range c.leaves {
		if s.op == nil || s.op.Shadow == nil {
			continue
		}
		wanted := slices.ContainsFunc(s.in[len(s.op.Shadow.Inputs):], func(slot Slot) bool {
			return slot != None && c.writer[slot] >= 0 && need.Contains(c.writer[slot])
		})
		if !wanted {
			continue
		}
		need.Add(int32(i)) //nolint:gosec // few
		for _, slot := range c.before(s) {
			need.AddAll(c.upstream(slot))
		}
	}
}

// anyType is the type of what a choice writes, which is no tensor.
var anyType = config.Port{DType: tensor.Int32, Dims: tensor.Of(1)}
