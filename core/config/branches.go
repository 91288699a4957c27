package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/condition"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of an ensemble that change its data flow. Those of a step are named step.MODEL.WHAT, or step.INDEX.WHAT
// where INDEX is the step's position.
//
//	parameters { key: "step.detailed.when"      value { string_value: "score[0] < 0.8" } }
//	parameters { key: "step.detailed.otherwise" value { string_value: "{\"label\": -1}" } }
//	parameters { key: "ensemble.first_of"       value { string_value: "{\"answer\": [\"long\", \"short\"]}" } }
const (
	stepPrefix     = "step."
	whenParam      = "when"
	otherwiseParam = "otherwise"
	firstOfParam   = "ensemble.first_of"
)

var stepParams = slices.Sorted(slices.Values(slices.Concat([]string{adaptParam, countsParam, demuxParam, otherwiseParam, whenParam}, faultParams, inputParams, routeParams, streamParams)))

// Flow is the data flow of an ensemble: its steps, and the operations that its parameters add.
type Flow struct {
	Steps      []FlowStep
	Operations []Operation
	// Adapt reports that adapters may be inserted for every step and output.
	Adapt bool
}

// FlowStep is a step of the configuration.
type FlowStep struct {
	*modelconfig.ModelEnsembling_Step

	// Rows is the output of the operation When that chooses the rows for which the step runs; empty for all.
	Rows string
	// Faults say what happens when the step fails; nil: its request fails.
	Faults *Faults
	// Constants are inputs that the configuration gives, nil for none; Params are request parameters that only the step sees.
	Constants *Constants
	Params    []StepParameter
	// Adapt is whether adapters may be inserted before the step; nil: as for the ensemble.
	Adapt *bool
	// Name and Field are set for a step that is not in the configuration: its name, and the parameter that adds it. Of is the step whose
	// fallback it is.
	Name, Field, Of string
	// Route is set for a step that is an alternative of a route, the one of the configuration included.
	Route *Route
}

// Operation is a part of an ensemble's data flow that is no model: a choice of rows (When is set), the begin or the end of a fan-out (Demux or
// Gather is set), or a tensor that is joined from the rows of others.
type Operation struct {
	// Name is unique in the ensemble. For example, "detailed.when".
	Name string
	// Field is the parameter that adds the operation.
	Field string
	// In and Out name the ensemble's tensors that it reads and writes. Each row of a joined tensor is that of the first in In that has it.
	In  []string
	Out string
	// More are further tensors that a Demux or a Gather writes.
	More []string
	// When is the condition of the rows; nil for a joined tensor.
	When *condition.Parsed
	// Otherwise is the value, in JSON, of rows that no input has; nil where there must be none.
	Otherwise json.RawMessage
	// Faults marks a join of what a step and its fallback or optional result write. Absent reports that the tensor is absent when none did.
	Faults, Absent bool
	// Demux and Gather are nil for other operations.
	Demux  *Demux
	Gather *Gather
	// Route marks a choice that has all rows if the route takes the Alternative of this number, else none. Joins marks a join of what the
	// alternatives write.
	Route, Joins *Route
	Alternative  int
	// Window and StreamJoin are operations on streams; nil for others.
	Window     *Window
	StreamJoin *StreamJoin
	// Shadow marks an operation that reads the inputs and outputs of the step of number Of and writes nothing.
	Shadow *Shadow
	Of     int
}

// IsFlowParam reports whether a parameter changes the data flow of an ensemble.
func IsFlowParam(key string) bool {
	return strings.HasPrefix(key, stepPrefix) || slices.Contains(ensembleRouteParams, key) ||
		slices.Contains([]string{firstOfParam, gatherParam, maxItemsParam, inFlightParam, ensembleAdaptParam, earlyParam, limitParam}, key)
}

// FlowOf returns the data flow of an ensemble, and what is wrong with the parameters that change it. These have no effect then.
func FlowOf(cfg *modelconfig.ModelConfig) (*Flow, []Diagnostic) {
	b := &branches{problems: problems{cfg: cfg}, flow: &Flow{}}
	for _, s := range cfg.GetEnsembleScheduling().GetStep() {
		b.flow.Steps = append(b.flow.Steps, FlowStep{ModelEnsembling_Step: s})
		b.inputs = append(b.inputs, s.GetInputMap())
	}
	for _, key := range sortedKeys(cfg.GetParameters()) {
		switch {
		case strings.HasPrefix(key, stepPrefix):
			b.step(key)
		case key == firstOfParam:
			b.firstOf(key)
		case key == gatherParam:
			b.gather(key)
		case key == maxItemsParam, key == inFlightParam:
			b.limit(key)
		case key == ensembleAdaptParam:
			b.adapt(key, -1)
		case key == earlyParam:
			b.early()
		case key == limitParam:
			b.timeLimit()
		}
	}
	for _, f := range slices.Concat(b.fallbacks, b.optionals, b.routes, b.shadows, b.streamed, b.joined) {
		f()
	}
	for _, d := range b.demuxes {
		b.demux(d.key, d.step)
	}
	b.named()
	b.checkRoutes()
	return b.flow, b.list
}

// branches reads the parameters that change the data flow.
type branches struct {
	problems

	flow *Flow
	// inside is the flow of the ensemble's steps, when flow is the one around it (WholeFlowOf); else nil.
	inside *Flow
	// fallbacks and optionals read parameters that rename what a step writes, after all others.
	fallbacks, optionals []func()
	// routes read those that divide steps, after these, and shadows those that copy requests, last.
	routes, shadows []func()
	demuxes         []stepParam // read last: they divide what the other parameters leave
	// streamed read windows, and joined the joins of streams, which may be of windows.
	streamed, joined []func()
	// inputs are the input maps of the configuration's steps.
	inputs []map[string]string
}

// stepParam is a parameter of a step.
type stepParam struct {
	key  string
	step int
}

func (b *branches) value(key string) string { return b.cfg.GetParameters()[key].GetStringValue() }

// fail reports that a parameter is not valid.
func (b *branches) fail(key, format string, args ...any) {
	b.add(FlowParam, "parameters."+key, "parameter '%s' of ensemble '%s' %s", key, b.cfg.GetName(), fmt.Sprintf(format, args...))
}

// step reads one parameter of a step.
func (b *branches) step(key string) {
	name := strings.TrimPrefix(key, stepPrefix)
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		b.fail(key, "names no step or no setting, expected %sMODEL. and one of %s", stepPrefix, strings.Join(stepParams, ", "))
		return
	}
	name, what := name[:dot], name[dot+1:]
	if !slices.Contains(stepParams, what) {
		b.fail(key, "has no effect, expected one of %s after the step.%s", strings.Join(stepParams, ", "), DidYouMean(what, stepParams))
		return
	}
	i, ok := b.find(key, name)
	if !ok {
		return
	}
	switch what {
	case whenParam:
		b.when(key, i)
	case otherwiseParam:
		b.otherwise(key, i)
	case demuxParam:
		b.demuxes = append(b.demuxes, stepParam{key, i})
	case countsParam:
		b.counts(key)
	case constantParam:
		b.constants(key, i)
	case adaptParam:
		b.adapt(key, i)
	case requestParams:
		b.params(key, i)
	case canaryParam, shadowParam, splitParam:
		b.route(key, what, i)
	case aheadParam, joinByParam, joinParam, strideParam, tailParam, unevenParam, windowOfParam, windowParam:
		b.stream(key, what, i)
	default:
		b.fault(key, what, i)
	}
}

// find returns the step of a model's name or of a position.
func (b *branches) find(key, name string) (int, bool) {
	var at []string
	var models []string
	for i, s := range b.flow.Steps {
		if models = append(models, s.GetModelName()); s.GetModelName() == name {
			at = append(at, strconv.Itoa(i))
		}
	}
	i, err := strconv.Atoi(name)
	switch {
	case len(at) == 1:
		i, _ = strconv.Atoi(at[0])
		return i, true
	case len(at) > 1:
		b.fail(key, "is of several steps with the model '%s', expected a position: %s", name, strings.Join(at, ", "))
	case err != nil:
		b.fail(key, "is of no step: no step has the model '%s', expected one of %s.%s", name, strings.Join(slices.Compact(slices.Sorted(slices.Values(models))), ", "), DidYouMean(name, models))
	case i < 0 || i >= len(models):
		b.fail(key, "is of no step: there is no position %d, expected 0 to %d", i, len(models)-1)
	default:
		return i, true
	}
	return 0, false
}

// when adds the condition of a step.
func (b *branches) when(key string, step int) {
	parsed, err := condition.Parse(b.value(key))
	if err != nil {
		b.fail(key, "is not valid: %s", err)
		return
	}
	op := Operation{Name: strings.TrimPrefix(key, stepPrefix), Field: "parameters." + key, In: parsed.Names(), When: parsed}
	op.Out = op.Name
	b.flow.Steps[step].Rows = op.Out
	b.flow.Operations = append(b.flow.Operations, op)
}

// otherwise adds values for the rows that a step does not have. The step then writes another tensor, from which and the values the
// tensor of the configuration is joined.
func (b *branches) otherwise(key string, step int) {
	values, err := object[json.RawMessage](b.value(key))
	if err != nil {
		b.fail(key, "is %s, expected a JSON object of tensors and values, for example {\"label\": -1}", err)
		return
	}
	s := &b.flow.Steps[step]
	s.ModelEnsembling_Step = proto.CloneOf(s.ModelEnsembling_Step)
	written := slices.Sorted(maps.Values(s.GetOutputMap()))
	for _, t := range sortedKeys(values) {
		if !slices.Contains(written, t) {
			b.fail(key, "has a value for the tensor '%s', which the step does not write, expected one of %s.%s", t, strings.Join(written, ", "), DidYouMean(t, written))
			continue
		}
		op := Operation{Name: otherwiseParam + " " + t, Field: "parameters." + key, In: []string{t + " of " + s.GetModelName()}, Out: t, Otherwise: values[t]}
		for port, name := range s.GetOutputMap() {
			if name == t {
				s.OutputMap[port] = op.In[0]
			}
		}
		b.flow.Operations = append(b.flow.Operations, op)
	}
}

// firstOf adds tensors that are joined from others.
func (b *branches) firstOf(key string) {
	lists, err := object[[]string](b.value(key))
	if err != nil {
		b.fail(key, "is %s, expected a JSON object of tensors and lists of tensors, for example {\"answer\": [\"long_answer\", \"short_answer\"]}", err)
		return
	}
	for _, t := range sortedKeys(lists) {
		list := slices.Clone(lists[t])
		if slices.Sort(list); len(list) < 2 || len(slices.Compact(list)) < len(lists[t]) {
			b.fail(key, "joins the tensor '%s' from %d tensors, expected at least two different ones", t, len(slices.Compact(list)))
			continue
		}
		b.flow.Operations = append(b.flow.Operations, Operation{Name: "first_of " + t, Field: "parameters." + key, In: lists[t], Out: t})
	}
}

// object reads a JSON object. The error says what the text is instead.
func object[V any](text string) (map[string]V, error) {
	var m map[string]V
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("%s (%w)", quoteShort(text), err)
	}
	if len(m) == 0 || strings.TrimSpace(text[d.InputOffset():]) != "" {
		return nil, fmt.Errorf("%s", quoteShort(text))
	}
	return m, nil
}

// quoteShort quotes the beginning of a text.
func quoteShort(text string) string {
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return strconv.Quote(text)
}
