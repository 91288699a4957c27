package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of an ensemble that send its own requests, or copies of them, to other models. Their values have the form of those of a step.
// The name of the ensemble stands for its steps.
//
//	parameters { key: "ensemble.canary" value { string_value: "{\"model\": \"reader_next\", \"weight\": 5}" } }
const ensemblePrefix = "ensemble."

// ensembleRouteParams are those parameters.
var ensembleRouteParams = []string{ensemblePrefix + canaryParam, ensemblePrefix + shadowParam, ensemblePrefix + splitParam}

// WholeFlowOf returns the data flow around an ensemble whose requests are routed as a whole: a step that is the ensemble itself without
// these parameters (WithoutRoutes), the steps of its alternatives, and its shadow. The tensors of this flow are the inputs and outputs of the
// ensemble. It returns nil for an ensemble without such parameters, and what is wrong with them; wrong ones have no effect.
func WholeFlowOf(cfg *modelconfig.ModelConfig) (*Flow, []Diagnostic) {
	keys := slices.DeleteFunc(sortedKeys(cfg.GetParameters()), func(key string) bool { return !slices.Contains(ensembleRouteParams, key) })
	if len(keys) == 0 {
		return nil, nil
	}
	inside, _ := FlowOf(cfg)
	b := &branches{problems: problems{cfg: cfg}, flow: &Flow{}, inside: inside}
	self := &modelconfig.ModelEnsembling_Step{ModelName: cfg.GetName(), ModelVersion: -1, InputMap: map[string]string{}, OutputMap: map[string]string{}}
	for _, in := range cfg.GetInput() {
		self.InputMap[in.GetName()] = in.GetName()
	}
	for _, out := range cfg.GetOutput() {
		self.OutputMap[out.GetName()] = out.GetName()
	}
	b.flow.Steps = []FlowStep{{ModelEnsembling_Step: self}}
	for _, key := range keys {
		b.route(key, strings.TrimPrefix(key, ensemblePrefix), 0)
	}
	for _, f := range slices.Concat(b.routes, b.shadows) {
		f()
	}
	b.checkRoutes()
	return b.flow, b.list
}

// WithoutRoutes returns a copy of an ensemble's configuration without the parameters that route its requests as a whole. Its inputs and
// outputs have the shapes that its steps see.
func WithoutRoutes(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	cfg = proto.CloneOf(cfg)
	for _, key := range ensembleRouteParams {
		delete(cfg.Parameters, key)
	}
	for _, in := range cfg.GetInput() {
		if in.GetReshape() != nil {
			in.Dims, in.Reshape = in.GetReshape().GetShape(), nil
		}
	}
	for _, out := range cfg.GetOutput() {
		if out.GetReshape() != nil {
			out.Dims, out.Reshape = out.GetReshape().GetShape(), nil
		}
	}
	return cfg
}

// outer reports whether the flow is the one around an ensemble.
func (b *branches) outer() bool { return b.inside != nil }

// divides names what a route divides, for errors.
func (b *branches) divides() string {
	if b.outer() {
		return "an ensemble"
	}
	return "a step"
}

// ownText names the model that has the other part of the requests, for errors.
func (b *branches) ownText(own *Alternative) string {
	if b.outer() {
		return fmt.Sprintf("the ensemble '%s' itself", own.Name)
	}
	return fmt.Sprintf("the step's own model '%s'", own.Name)
}

// endless reports an alternative that is the ensemble.
func (b *branches) endless(key string, a *Alternative) bool {
	switch {
	case a.Model != b.cfg.GetName(), b.outer() && a.Version < 0:
		return false
	case b.outer():
		b.fail(key, "names version %d of the ensemble '%s' itself, whose versions have the same steps: expected another model, or '%[2]s' for its own steps", a.Version, a.Model)
	default:
		b.fail(key, "names the ensemble '%s' itself, which would never end", a.Model)
	}
	return true
}

// shadowKey returns the parameter of the shadow that belongs to a canary.
func (b *branches) shadowKey(r *Route) string {
	if b.outer() {
		return ensemblePrefix + shadowParam
	}
	return stepPrefix + r.Of + "." + shadowParam
}

// joinName names the join of a tensor that the alternatives of a route write. The steps of the ensemble may divide a tensor of the same name.
func (b *branches) joinName(r *Route, tensor string) string {
	if b.outer() {
		return ensemblePrefix + r.Kind + " " + tensor
	}
	return r.Kind + " " + tensor
}

// hasStep reports whether a step of the ensemble has this name.
func (b *branches) hasStep(name string) bool {
	steps := b.flow.Steps
	if b.outer() {
		steps = slices.Concat(steps, b.inside.Steps)
	}
	return slices.ContainsFunc(steps, func(s FlowStep) bool { return cmp.Or(s.Name, s.GetModelName()) == name })
}

// wholeMeanings explain the parameters of an ensemble that route its requests.
var wholeMeanings = map[string]func(value string) string{
	ensemblePrefix + splitParam: func(v string) string {
		return "each request is executed by the ensemble itself or by another model: " + v
	},
	ensemblePrefix + canaryParam: func(v string) string {
		return "the ensemble has a canary, whose share of the requests follows its results: " + v
	},
	ensemblePrefix + shadowParam: func(v string) string {
		return "the ensemble has a shadow: a model that gets copies of requests, and whose responses are only compared: " + v
	},
}
