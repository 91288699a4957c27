package plan

import (
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/condition"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Operation is what a node without a model does: it chooses the rows of a set, begins or ends a fan-out, or joins tensors.
type Operation struct {
	// When chooses the rows of the set Chooses; nil for a join.
	When    *condition.Condition
	Chooses int32
	// Otherwise is the row of a joined tensor that no input has; absent when that is an error. It is on the host and belongs to the plan.
	Otherwise Constant
	// Adapter is set for a node that only changes the type, layout or dims of a tensor.
	Adapter *Adapter
	// Fault marks a join of what a step and its fallback or optional result write; if Absent is set and neither wrote, it writes nothing.
	// Chooses then has rows where one did.
	Fault, Absent bool
	// Demux and Gather are the begin and the end of a fan-out.
	Demux  *Demux
	Gather *Gather
	// FanOut stands for a whole fan-out, in a part of a plan that has it.
	FanOut *FanOut
	// Route is the position of the operation's route in Plan.Routes, of a choice (Takes is set) that of its alternative, too; -1 for none.
	Route, Alternative int32
	Takes              bool
	// Window and StreamJoin make a new stream of those that the node reads. Feed is set for what each of these streams does for it.
	Window     *config.Window
	StreamJoin *config.StreamJoin
	Feed       *Feed
	// Shadow is set for a node that sends copies of a step's requests to another model.
	Shadow *Shadow
}

// Label is the text of a node in drawings: its name, the condition of a choice, or what a fan-out divides.
func (n *Node) Label() string {
	switch op := n.Operation; {
	case op == nil:
	case op.When != nil:
		return "when " + op.When.Text()
	case op.Demux != nil:
		return "each item of " + n.Items()
	case op.Window != nil:
		return windowText(op.Window)
	case op.StreamJoin != nil:
		return joinText(op.StreamJoin)
	case op.Shadow != nil:
		return "shadow " + op.Shadow.Name
	}
	return n.Name
}

// Items lists the tensors of items that a demux writes.
func (n *Node) Items() string {
	var names []string
	for i := range n.Signature.Outputs {
		names = append(names, n.Signature.Outputs[i].Name)
	}
	return strings.Join(names, ", ")
}

// Owner is the step that a condition or a demux belongs to.
func (n *Node) Owner() string {
	return strings.TrimSuffix(strings.TrimSuffix(n.Name, ".when"), ".demux")
}

// Kind is "condition", "fan-out", "gather", "join", "adapter", "route", "shadow", "window", "stream join" or, for what a step or its replacement wrote, "fallback" for a
// node without a model, else "".
func (n *Node) Kind() string {
	switch {
	case n.Operation == nil:
		return ""
	case n.Operation.When != nil:
		return "condition"
	case n.Operation.Adapter != nil:
		return "adapter"
	case n.Operation.Fault:
		return "fallback"
	case n.Operation.Demux != nil:
		return "fan-out"
	case n.Operation.Gather != nil:
		return "gather"
	case n.Operation.Takes:
		return "route"
	case n.Operation.Shadow != nil:
		return "shadow"
	case n.Operation.Window != nil:
		return "window"
	case n.Operation.StreamJoin != nil:
		return "stream join"
	default:
		return "join"
	}
}

// Constant is one row of a tensor.
type Constant struct {
	Data  []byte // in the layout of a tensor; nil: there is no constant
	Shape tensor.Shape
}

// operation is a node without a model, as the configuration describes it.
type operation struct {
	config.Operation

	when      *condition.Condition
	adapter   *Adapter
	owner     *step // of a choice: the step whose rows it chooses
	otherwise Constant
	chooses   int32
	demux     *Demux
	gather    *Gather
}

// operations adds the operations of l as steps, when the types of the models' tensors are known.
func (c *compiler) operations(l *level, list []config.Operation) error {
	known := l.stepPorts()
	for _, in := range l.cfg.GetInput() {
		if known[in.GetName()] == nil && len(in.GetDims()) > 0 {
			known[in.GetName()] = &portInfo{dtype: tensor.DType(in.GetDataType()), dims: tensor.Of(in.GetDims()...)} //nolint:gosec // the same numbers
		}
	}
	for len(list) > 0 {
		at := typable(list, known)
		if at < 0 {
			return l.errorf(config.Circle, list[0].Field, "the tensors of %s cannot be typed: they wait for each other, or are inputs without data_type and dims", list[0].Name)
		}
		s, err := l.operation(list[at], known)
		if err != nil {
			return err
		}
		if s.op.When != nil || s.op.Route != nil {
			s.op.owner = l.owner(s.op.Out)
			known[s.op.Out] = &portInfo{dtype: anyType.DType, dims: anyType.Dims}
		}
		l.steps, c.leaves = append(l.steps, s), append(c.leaves, s)
		list = slices.Delete(slices.Clone(list), at, at+1)
	}
	return nil
}

// owner returns the step whose rows a choice chooses, directly or before the choices of a route.
func (l *level) owner(rows string) *step {
	for _, o := range l.flow.Operations {
		if o.Route != nil && slices.Contains(o.In, rows) {
			rows = o.Out
			break
		}
	}
	return l.steps[slices.IndexFunc(l.steps, func(x *step) bool { return x.rowsName == rows })]
}

// operation returns an operation as a step, and notes the tensor that it writes.
func (l *level) operation(o config.Operation, known map[string]*portInfo) (*step, error) {
	s := &step{
		level: l, name: l.prefix() + o.Name, op: &operation{Operation: o}, rows: None, failed: None,
		cfg: &modelconfig.ModelEnsembling_Step{ModelName: o.Name, InputMap: map[string]string{}, OutputMap: map[string]string{}},
		sig: &config.Signature{Model: o.Name, MaxBatch: int(l.cfg.GetMaxBatchSize())},
	}
	for _, t := range o.Written() {
		s.cfg.OutputMap[t] = t
	}
	for _, t := range o.In {
		s.cfg.InputMap[t] = t
		s.sig.Inputs = append(s.sig.Inputs, config.Port{Name: t, DType: known[t].dtype, Dims: l.rowDims(t, known[t])})
		if o.Demux == nil && s.sig.MaxBatch == 0 && l.depths.depth(t) > 0 {
			s.sig.MaxBatch = many // items are rows
		}
	}
	if err := l.operationOutputs(s, known); err != nil {
		return s, err
	}
	for i := range s.sig.Outputs {
		out := &s.sig.Outputs[i]
		if o.When == nil {
			known[out.Name] = &portInfo{dtype: out.DType, dims: l.dimsOf(s, out)}
		}
	}
	return s, nil
}

// operationOutputs types what an operation writes.
func (l *level) operationOutputs(s *step, known map[string]*portInfo) (err error) {
	out := config.Port{Name: s.op.Out, DType: anyType.DType, Dims: anyType.Dims}
	switch {
	case s.op.Demux != nil:
		return s.demux()
	case s.op.Gather != nil:
		return s.gather(known)
	case s.op.When != nil:
		err = l.choice(s)
	case s.op.Route != nil:
	case s.op.Shadow != nil:
		return l.shadowStep(s, s.op.Operation)
	case s.op.onStreams():
		return s.streamOutputs(known)
	default:
		out.DType, out.Dims, err = l.join(s)
	}
	s.sig.Outputs = []config.Port{out}
	return err
}

// choice compiles the condition of a choice.
func (l *level) choice(s *step) error {
	var vars []condition.Variable
	for i := range s.sig.Inputs {
		p := &s.sig.Inputs[i]
		vars = append(vars, condition.Variable{Name: p.Name, DType: p.DType, Dims: p.Dims})
	}
	var err error
	if s.op.when, err = s.op.When.Compile(vars); err != nil {
		return l.errorf(config.FlowParam, s.op.Field, "parameter '%s' is not valid: %s", strings.TrimPrefix(s.op.Field, "parameters."), err)
	}
	return nil
}

// join returns the type and dims of a joined tensor, and reads the value of the rows that no tensor has.
func (l *level) join(s *step) (tensor.DType, tensor.Shape, error) {
	first := &s.sig.Inputs[0]
	dims := first.Dims
	for i := range s.sig.Inputs[1:] {
		p := &s.sig.Inputs[i+1]
		if p.DType != first.DType {
			return 0, dims, l.errorf(config.TypesDiffer, s.op.Field, "%s joins '%s' of type %s and '%s' of type %s", s.op.Name, first.Name, first.DType.ConfigName(), p.Name, p.DType.ConfigName())
		}
		both, ok := config.Narrow(dims, p.Dims)
		if !ok {
			return 0, dims, l.errorf(config.ShapesDiffer, s.op.Field, "%s joins '%s' of dims %s and '%s' of dims %s", s.op.Name, first.Name, dims, p.Name, p.Dims)
		}
		dims = both
	}
	for _, out := range l.cfg.GetOutput() { // it may declare what the models leave open
		if both, ok := config.Narrow(dims, tensor.Of(out.GetDims()...)); out.GetName() == s.op.Out && out.GetReshape() == nil && ok {
			dims = both
		}
	}
	if s.op.Otherwise == nil {
		return first.DType, dims, nil
	}
	var err error
	if s.op.otherwise, err = constant(s.op.Otherwise, first.DType, dims); err != nil {
		return 0, dims, l.errorf(config.FlowParam, s.op.Field, "parameter '%s' has for the tensor '%s' %s", strings.TrimPrefix(s.op.Field, "parameters."), s.op.Out, err)
	}
	return first.DType, dims, nil
}
