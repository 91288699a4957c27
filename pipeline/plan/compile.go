package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// passes are the names of the steps of the compiler, in order.
var passes = []string{"expand", "bind", "types", "batchdims", "cycles", "streams", "rows", "prune", "order", "place"}

// run runs the passes up to the one named after. A pass reads what earlier ones have left in the compiler.
func (c *compiler) run(after string) error {
	for i, pass := range []func() error{c.expand, c.bind, c.types, c.batchDims, c.cycles, c.streams, c.rows, c.prune, c.order, c.place} {
		if err := pass(); err != nil || passes[i] == after {
			return err
		}
	}
	return nil
}

// Compile compiles an ensemble's normalised configuration into a plan. It looks up the models
// of the steps in look and inlines nested ensembles. Every error names the ensemble, the tensor
// and the model at fault, in Triton's text where Triton has one.
func Compile(cfg *modelconfig.ModelConfig, version int64, look Lookup) (*Plan, error) {
	c := &compiler{root: cfg, version: version, look: look}
	if err := c.run(""); err != nil {
		return nil, err
	}
	c.plan.linkWaits()
	c.plan.divide()
	return c.plan, nil
}

// compiler is the state between passes.
type compiler struct {
	root    *modelconfig.ModelConfig
	version int64
	look    Lookup

	// expand
	levels []*level // outermost first, every level before those inside it
	leaves []*step  // the steps that are models, depth first
	total  int      // steps seen, nested ensembles included

	// bind
	names []string // per slot
	alias []Slot   // per slot: the slot whose tensor it is another name of, else itself

	// batchdims
	outputRules   []BatchRule
	outputRuntime []RuntimeRule

	// cycles
	writer []int32 // per slot: the leaf that writes it, or -1

	// streams
	flows  []stream
	origin []int32 // per slot: the stream it is of

	// rows; nil when no step has a condition
	sets    []RowSet
	choices []Slot  // per row set: what its choice writes
	setOf   []int32 // per slot: the row set of its tensor

	// prune
	outputs []Slot    // per port of the ensemble
	needs   []NodeSet // per output: leaves

	// order
	plan *Plan
}

// level is one ensemble: the one compiled, or one inlined into it.
type level struct {
	cfg    *modelconfig.ModelConfig
	flow   *config.Flow
	look   Lookup
	id     string            // of the model; the name when there is no other
	sig    *config.Signature // as declared
	parent *level
	within *step // the parent's step that this ensemble stands for
	steps  []*step
	slots  map[string]Slot // by tensor name
	depths *depths         // nil without a fan-out
	whole  bool            // routes whole requests: its flow is config.WholeFlowOf
	itself bool            // the steps of the ensemble that the level around it routes
}

// step is one step of a level.
type step struct {
	level    *level
	name     string // unique in the plan
	model    string
	id       string
	version  int64
	cfg      *modelconfig.ModelEnsembling_Step
	sig      *config.Signature
	places   []tensor.Place
	why      string        // of places
	edge     bool          // runs on the side of its neighbours
	gathers  bool          // batches across requests, and is no concurrent model
	precise  string        // the precision of the model
	inner    *level        // of a nested ensemble
	in, out  []Slot        // per port
	rules    []BatchRule   // per input, of a leaf
	runtime  []RuntimeRule // per input, of a leaf; nil when none is
	stream   int32         // of a leaf
	op       *operation    // nil for a model
	rowsName string        // the tensor that the choice of its rows writes, or ""
	rows     Slot          // written by the choice of its rows, or None
	waits    []Slot        // of the choices that it runs after
	set      int32         // its row set

	sequence         bool                                     // the requests of a sequence depend on each other
	formats          map[string]modelconfig.ModelInput_Format // of inputs that declare one
	constants        []Constant                               // per input, those that the configuration gives; nil for none
	params           []config.StepParameter                   // request parameters that only the step sees
	faults           *config.Faults                           // nil: a failure fails the request
	added            string                                   // the parameter that adds the step, "" for one of the configuration
	of               string                                   // the step that it runs instead of, "" for an ordinary one
	failed           Slot                                     // by which its fallback waits for it, or None
	succeeded, fails int32                                    // row sets; 0 where failures are not absorbed
}

// name returns the name by which the ensemble was looked up.
func (l *level) name() string {
	if l.within == nil {
		return l.cfg.GetName()
	}
	return l.within.model
}

// prefix distinguishes names inside l from names outside. For example, "inner/".
func (l *level) prefix() string {
	switch {
	case l.within == nil:
		return ""
	case l.itself:
		return l.parent.prefix()
	}
	return l.within.name + "/"
}

// around lists the levels that l is in and l itself, outermost first. An ensemble whose requests are routed is one of them.
func (l *level) around() []*level {
	if l == nil {
		return nil
	}
	if l.itself {
		return l.parent.around()
	}
	return append(l.parent.around(), l)
}

// path lists the names of the ensembles that l is in and of l itself, outermost first.
func (l *level) path() (names []string) {
	for _, x := range l.around() {
		names = append(names, x.name())
	}
	return names
}

// fail wraps an error about l into one about the compiled ensemble.
func (l *level) fail(err error) error {
	for ; l.parent != nil; l = l.parent {
		if l.itself {
			continue
		}
		err = config.Coded(config.BadDependency, l.within.field(), status.Prefixf(err,
			"ensemble '%s' depends on '%s' which is not valid. Model '%s' failed with error: ", l.parent.name(), l.name(), l.name()))
	}
	return err
}

// errorf is fail of a new error of the given rule that starts with l's name.
func (l *level) errorf(code config.Code, field, format string, args ...any) error {
	return l.fail(config.Errorf(code, field, "in ensemble %s, %s", l.name(), fmt.Sprintf(format, args...)))
}

// field is the path of the step in its ensemble's configuration.
func (s *step) field() string {
	if s.op != nil {
		return s.op.Field
	}
	if s.added != "" {
		return s.added
	}
	return fmt.Sprintf("ensemble_scheduling.step[%d]", slices.Index(s.level.steps, s))
}

// fieldOf is the path of the first step of the given model.
func (l *level) fieldOf(model string) string {
	for _, s := range l.flow.Steps {
		if s.Field != "" && s.GetModelName() == model {
			return s.Field
		}
	}
	return fmt.Sprintf("ensemble_scheduling.step[%d]", slices.IndexFunc(l.cfg.GetEnsembleScheduling().GetStep(),
		func(s *modelconfig.ModelEnsembling_Step) bool { return s.GetModelName() == model }))
}

// slot returns the slot that s's tensor is in.
func (c *compiler) slot(s Slot) Slot {
	for s != None && c.alias[s] != s {
		s = c.alias[s]
	}
	return s
}

// Stages compiles up to and including the pass named after, and prints the state: after "bind", for example, the slots.
func Stages(cfg *modelconfig.ModelConfig, look Lookup, after string) (string, error) {
	c := &compiler{root: cfg, version: 1, look: look}
	if !slices.Contains(passes, after) {
		return "", status.Errorf(status.InvalidArg, "there is no pass '%s', expected one of %s", after, strings.Join(passes, ", "))
	}
	if err := c.run(after); err != nil {
		return "", err
	}
	if c.plan != nil {
		return c.plan.Text(), nil
	}
	return c.text(), nil
}
