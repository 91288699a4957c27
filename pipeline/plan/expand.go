package plan

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// maxSteps bounds the expanded steps: ten ensembles that each contain the next one twice are a thousand steps.
const maxSteps = 1 << 14

// maxDepth bounds how deep ensembles nest.
const maxDepth = 64

// expand looks up the model of every step and inlines ensembles, so that only models that execute are left.
func (c *compiler) expand() error {
	root := &level{cfg: c.root, look: c.look, id: c.root.GetName()}
	if s, ok := c.look.(NamespaceLookup); ok {
		root.id = s.Self()
	}
	if err := c.open(root); err != nil {
		return err
	}
	return c.checkSequences()
}

// open checks the configuration of l and expands its steps.
func (c *compiler) open(l *level) error {
	if !config.IsEnsemble(l.cfg) {
		return l.fail(config.Errorf(config.EnsembleFlow, "", "model '%s' is not an ensemble", l.name()))
	}
	if len(l.path()) > maxDepth {
		return status.Errorf(status.Unsupported, "ensemble '%s' nests ensembles more than %d deep", c.root.GetName(), maxDepth)
	}
	if err := config.Validate(l.cfg); err != nil {
		return l.fail(err)
	}
	c.levels = append(c.levels, l)
	l.sig = config.SignatureOf(l.cfg)
	l.readFlow()
	steps := make([]*modelconfig.ModelEnsembling_Step, len(l.flow.Steps))
	for i := range steps {
		steps[i] = l.flow.Steps[i].ModelEnsembling_Step
	}
	if c.total += len(steps); c.total > maxSteps {
		return status.Errorf(status.Unsupported, "ensemble '%s' expands to more than %d steps", c.root.GetName(), maxSteps)
	}
	models, err := l.models(steps)
	for i, s := range steps {
		if cycle := l.ring(models[i].ID, s.GetModelName()); cycle != "" && !l.isItself(s) {
			return config.Errorf(config.Circle, "ensemble_scheduling", "circular dependency between ensembles: %s", cycle)
		}
	}
	if err != nil {
		if cycle := l.cycle(steps); cycle != nil {
			return cycle
		}
		return l.fail(err)
	}
	names := stepNames(l, steps)
	l.depths = depthsOf(l.flow)
	for i, s := range l.flow.Steps {
		if err := c.step(l, s, names[i], models[i]); err != nil {
			return err
		}
		if err := l.checkRoute(i); err != nil {
			return err
		}
	}
	l.completeBatch()
	if err := l.gathered(); err != nil {
		return err
	}
	c.adapt(l)
	if err := c.operations(l, l.flow.Operations); err != nil {
		return err
	}
	l.decouple() // windows may have made it so
	c.adapt(l)   // also what the operations write
	l.complete()
	return nil
}

func (c *compiler) step(l *level, flow config.FlowStep, name string, m Model) error {
	cfg := flow.ModelEnsembling_Step
	s := &step{level: l, name: name, model: cfg.GetModelName(), id: m.ID, version: cfg.GetModelVersion(), cfg: cfg, sig: m.Signature, places: m.Places, why: m.PlacesWhy, edge: m.Edge, gathers: m.Gathers, precise: m.Precision, rows: None, rowsName: flow.Rows, faults: flow.Faults, added: flow.Field, of: flow.Of, failed: None, params: flow.Params, formats: m.Formats, sequence: m.Sequence}
	if err := s.checkFaults(&m); err != nil {
		return err
	}
	if err := s.readConstants(flow.Constants, &m); err != nil {
		return err
	}
	l.steps = append(l.steps, s)
	if m.Ensemble == nil {
		if s.sig.Version > 0 {
			s.version = s.sig.Version
		}
		c.leaves = append(c.leaves, s)
		return nil
	}
	s.inner = &level{cfg: m.Ensemble, parent: l, within: s, look: l.look, id: m.ID, itself: l.isItself(cfg)}
	if m.Steps != nil {
		s.inner.look = m.Steps
	}
	if err := c.open(s.inner); err != nil {
		return err
	}
	s.sig = config.SignatureOf(s.inner.cfg)
	if reshapes(s.sig) {
		return config.WithFix(l.fail(config.Errorf(config.NotHonoured, s.field()+".model_name",
			"ensemble '%s' has the ensemble '%s' as a step, which sets 'reshape'; this server reshapes the tensors of requests only", l.name(), s.model)),
			"set reshape in the configuration of a model in it")
	}
	if m.Signature != nil {
		for i := range s.sig.Outputs {
			if at := m.Signature.Output(s.sig.Outputs[i].Name); at >= 0 {
				s.sig.Outputs[i].Labels = m.Signature.Outputs[at].Labels
			}
		}
	}
	return nil
}

// ring returns the way from an ensemble around l back to it, in Triton's short form and in full; empty without one.
func (l *level) ring(id, model string) string {
	at := slices.IndexFunc(l.around(), func(x *level) bool { return x.id == id })
	if at < 0 {
		return ""
	}
	around := slices.Concat(l.path()[at:], []string{model})
	return fmt.Sprintf("%s -> ... -> %s -> %s (%s)", around[0], around[len(around)-2], model, strings.Join(around, " -> "))
}

// models looks up the model of every step. Those that are not found have their name for an ID.
func (l *level) models(steps []*modelconfig.ModelEnsembling_Step) ([]Model, error) {
	models := make([]Model, len(steps))
	var missing []string
	var first error
	for i, s := range steps {
		m, err := l.model(s)
		if m.ID == "" {
			m.ID = s.GetModelName()
		}
		switch {
		case status.CodeOf(err) == status.NotFound && err != nil:
			missing = append(missing, s.GetModelName())
		case err != nil && first == nil:
			first = err
		}
		models[i] = m
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return models, config.Errorf(config.NoSuchModel, l.fieldOf(missing[0])+".model_name", "ensemble %s contains models that are not available or ambiguous: %s%s",
			l.name(), strings.Join(slices.Compact(missing), ", "), l.nearest(missing[0]))
	}
	return models, first
}

// nearest returns the question whether another model was meant, after a full stop; "" when none is near.
func (l *level) nearest(name string) string {
	namer, ok := l.look.(Namer)
	if !ok {
		return ""
	}
	names := slices.DeleteFunc(namer.Names(), func(n string) bool { return n == l.name() || n == name })
	if near := config.DidYouMean(name, names); near != "" {
		return "." + near
	}
	return ""
}

// model looks up one step's model. An unknown model is a NotFound error; version 0 is never loaded.
func (l *level) model(s *modelconfig.ModelEnsembling_Step) (Model, error) {
	if l.isItself(s) {
		return Model{ID: l.id, Ensemble: config.WithoutRoutes(l.cfg)}, nil
	}
	name, version := s.GetModelName(), s.GetModelVersion()
	look := l.look
	if space := s.GetModelNamespace(); space != "" {
		all, ok := look.(NamespaceLookup)
		if !ok {
			return Model{}, status.Errorf(status.NotFound, "there are no namespaces, in which model '%s' is asked for", name)
		}
		look = all.In(space)
	}
	latest, err := look.Model(name, -1)
	switch {
	case status.CodeOf(err) == status.NotFound && err != nil:
		return Model{}, err
	case status.CodeOf(err) == status.Unavailable && err != nil:
		return Model{}, config.Errorf(config.BadDependency, l.fieldOf(name),
			"ensemble '%s' depends on '%s' which has no loaded version. Model '%s' loading failed with error: %w", l.name(), name, name, err)
	case err != nil:
		return Model{}, config.Errorf(config.BadDependency, l.fieldOf(name),
			"ensemble '%s' depends on '%s' which is not valid. Model '%s' failed with error: %w", l.name(), name, name, err)
	}
	m := latest
	if version != -1 {
		if version > 0 {
			m, err = look.Model(name, version)
		}
		if err != nil || version <= 0 {
			return Model{}, config.Errorf(config.BadDependency, l.fieldOf(name),
				"ensemble '%s' depends on '%s' whose required version %d is not loaded.", l.name(), name, version)
		}
	}
	if m.Signature == nil && m.Ensemble == nil {
		return Model{}, status.Errorf(status.Internal, "ensemble '%s' depends on '%s' of which no signature is known", l.name(), name)
	}
	return m, nil
}

// stepNames names the steps of l: prefix and model, with the step's position when the ensemble uses the model twice.
func stepNames(l *level, steps []*modelconfig.ModelEnsembling_Step) []string {
	times := make(map[string]int, len(steps))
	for i, s := range steps {
		if l.flow == nil || l.flow.Steps[i].Name == "" {
			times[s.GetModelName()]++
		}
	}
	names := make([]string, len(steps))
	prefix := l.prefix()
	for i, s := range steps {
		names[i] = prefix + s.GetModelName()
		if l.flow != nil && l.flow.Steps[i].Name != "" {
			names[i] = prefix + l.flow.Steps[i].Name
			continue
		}
		if times[s.GetModelName()] > 1 {
			names[i] = fmt.Sprintf("%s%s[%d]", prefix, s.GetModelName(), i)
		}
	}
	return names
}

// completeBatch sets max_batch_size when the ensemble declares no dims at all: 0 counts as absent then, and becomes the largest batch that
// every step takes.
func (l *level) completeBatch() {
	l.decouple()
	absent := l.cfg.MaxBatchSize == 0 && !slices.ContainsFunc(l.cfg.Input, func(in *modelconfig.ModelInput) bool { return len(in.Dims) > 0 }) &&
		!slices.ContainsFunc(l.cfg.Output, func(out *modelconfig.ModelOutput) bool { return len(out.Dims) > 0 })
	if !absent || len(config.CheckComplete(l.cfg)) == 0 {
		return
	}
	l.cfg = shallow(l.cfg)
	first := true
	for _, s := range l.steps {
		if n := int32(s.sig.MaxBatch); !s.perItem() && (first || n < l.cfg.MaxBatchSize) {
			l.cfg.MaxBatchSize, first = n, false
		}
	}
	l.sig = config.SignatureOf(l.cfg)
}

// complete fills in the types and dims that an ensemble does not declare from those of its steps. The steps' models must be known, and
// nested ensembles complete.
func (l *level) complete() {
	if len(config.CheckComplete(l.cfg)) == 0 {
		return
	}
	l.cfg = proto.CloneOf(l.cfg)
	stepPorts := l.stepPorts()
	fill := func(d *modelconfig.DataType, dims *[]int64, t *portInfo) {
		if *d == modelconfig.DataType_TYPE_INVALID {
			*d = modelconfig.DataType(t.dtype)
		}
		if len(*dims) == 0 {
			*dims = slices.Clone(t.dims.Dims())
		}
	}
	for _, in := range l.cfg.Input {
		if t := stepPorts[in.Name]; t != nil {
			// An input without a declaration is optional when all steps that read it allow that.
			in.Optional = in.Optional || t.optional && in.DataType == modelconfig.DataType_TYPE_INVALID && len(in.Dims) == 0
			fill(&in.DataType, &in.Dims, t)
		}
	}
	for _, out := range l.cfg.Output {
		if t := stepPorts[out.Name]; t != nil {
			fill(&out.DataType, &out.Dims, t)
		}
	}
	l.sig = config.SignatureOf(l.cfg)
}

// decouple sets whether the ensemble is decoupled: when one of its steps is, whatever the configuration, as in Triton, or when it makes windows.
func (l *level) decouple() {
	decoupled := slices.ContainsFunc(l.steps, func(s *step) bool { return s.sig.Decoupled })
	if p := l.cfg.GetModelTransactionPolicy(); p != nil && p.GetDecoupled() == decoupled {
		return
	}
	l.cfg = shallow(l.cfg)
	l.cfg.ModelTransactionPolicy = &modelconfig.ModelTransactionPolicy{Decoupled: decoupled}
	l.sig = config.SignatureOf(l.cfg)
}

// shallow copies a configuration, which shares its messages, lists and maps with the copy: only fields of the copy itself may be set. The steps of an
// ensemble are most of its configuration, and a plan lives as long as the configuration that it was made of.
func shallow(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	to := &modelconfig.ModelConfig{}
	cfg.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.ProtoReflect().Set(field, v)
		return true
	})
	to.ProtoReflect().SetUnknown(cfg.ProtoReflect().GetUnknown())
	return to
}

// portInfo is the type and shape that the steps declare for a tensor.
type portInfo struct {
	dtype tensor.DType
	dims  tensor.Shape // as the ensemble would declare them
	// optional holds for an input while every step that reads it can do without.
	optional bool
}

// stepPorts collects the declarations of the steps and narrows their dims; the pass types reports contradictions.
func (l *level) stepPorts() map[string]*portInfo {
	all := map[string]*portInfo{}
	declare := func(s *step, name string, p *config.Port, reads bool) {
		dims := l.dimsOf(s, p)
		t := all[name]
		if t == nil {
			all[name] = &portInfo{dtype: p.DType, dims: dims, optional: reads && p.Optional}
			return
		}
		t.optional = t.optional && reads && p.Optional
		if both, ok := config.Narrow(t.dims, dims); ok {
			t.dims = both
		}
	}
	for _, s := range l.steps {
		for i := range s.sig.Inputs {
			if name, mapped := s.cfg.GetInputMap()[s.sig.Inputs[i].Name]; mapped {
				declare(s, name, &s.sig.Inputs[i], true)
			}
		}
		for i := range s.sig.Outputs {
			if name, mapped := s.cfg.GetOutputMap()[s.sig.Outputs[i].Name]; mapped {
				declare(s, name, &s.sig.Outputs[i], false)
			}
		}
	}
	return all
}

// dimsOf returns a port's dims as an ensemble with or without a batch declares them.
func (l *level) dimsOf(s *step, p *config.Port) tensor.Shape {
	switch {
	case l.cfg.GetMaxBatchSize() == 0:
		return p.FullDims(s.sig.MaxBatch)
	case s.sig.MaxBatch == 0 && p.Dims.Rank() > 1 && p.Dims.Dim(0) == -1 && !s.perItem():
		return tensor.Of(p.Dims.Dims()[1:]...)
	default:
		return p.Dims
	}
}
