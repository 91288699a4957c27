package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of a step that send requests, or copies of them, to other models.
//
//	parameters { key: "step.reader.split"  value { string_value: "{\"weights\": {\"reader\": 90, \"reader:2\": 10}, \"key\": \"user\"}" } }
//	parameters { key: "step.reader.canary" value { string_value: "{\"model\": \"reader:2\", \"weight\": 5, \"requests\": 200}" } }
//	parameters { key: "step.reader.shadow" value { string_value: "{\"model\": \"reader:2\", \"share\": 0.1}" } }
const (
	splitParam  = "split"
	canaryParam = "canary"
	shadowParam = "shadow"
)

var routeParams = []string{canaryParam, shadowParam, splitParam}

// Route divides the requests of a step between alternatives. Each request goes to one of them as a whole.
type Route struct {
	// Of names the step, Field the parameter, and Kind is its last word: "split" or "canary".
	Of, Field, Kind string
	// Key is the request parameter whose value decides; empty, or where a request does not have it, chance decides.
	Key string
	// Alternatives are sorted by name, but the step's own is the last one: the keys of the others stay when their weights grow.
	Alternatives []Alternative
	// Canary is nil for a split.
	Canary *Canary
}

// Alternative is a model, or a version of it, that may execute a step.
type Alternative struct {
	Name    string // MODEL or MODEL:VERSION
	Model   string
	Version int64 // -1 for the latest
	Share   float64
}

// Shadow sends copies of a step's requests to another model and compares the responses.
type Shadow struct {
	Of, Field string
	Alternative
	// InFlight bounds the copies that are executed at a time: further ones are dropped.
	InFlight int
	// Absolute and Relative bound the difference of numbers with a fraction; nil for the type's own tolerance.
	Absolute, Relative *float64
	// Inputs and Outputs are the ports of the step, in the order of the operation's tensors.
	Inputs, Outputs []string
}

// Limits of routes.
const (
	maxAlternatives = 16
	maxShadows      = 1024
	defaultShadows  = 16
	defaultRequests = 100
)

// String returns the shares as text, for example "reader:2 10%, reader 90%".
func (r *Route) String() string {
	parts := make([]string, len(r.Alternatives))
	for i, a := range r.Alternatives {
		parts[i] = fmt.Sprintf("%s %s%%", a.Name, strconv.FormatFloat(a.Share*100, 'g', 4, 64))
	}
	text := strings.Join(parts, ", ")
	if r.Key != "" {
		text += ", by the parameter '" + r.Key + "'"
	}
	if r.Canary != nil {
		text += ", " + r.Canary.String()
	}
	return text
}

// route reads one parameter of step i later.
func (b *branches) route(key, what string, i int) {
	switch what {
	case splitParam:
		b.routes = append(b.routes, func() { b.split(key, i) })
	case canaryParam:
		b.routes = append(b.routes, func() { b.canary(key, i) })
	case shadowParam:
		b.shadows = append(b.shadows, func() { b.shadow(key, i) })
	}
}

// fields reads a JSON object whose fields are known.
func (b *branches) fields(key, example string, known ...string) (map[string]json.RawMessage, bool) {
	m, err := object[json.RawMessage](b.value(key))
	if err != nil {
		b.fail(key, "is %s, expected a JSON object, for example %s", err, example)
		return nil, false
	}
	for _, name := range sortedKeys(m) {
		if !slices.Contains(known, name) {
			b.fail(key, "has the field '%s', expected %s.%s", name, strings.Join(known, ", "), DidYouMean(name, known))
			return nil, false
		}
	}
	return m, true
}

// field reads a field into to. It returns false after an error.
func field[T any](b *branches, key string, m map[string]json.RawMessage, name, expected string, to *T) bool {
	text, set := m[name]
	if !set {
		return true
	}
	if err := json.Unmarshal(text, to); err != nil || string(text) == "null" {
		b.fail(key, "has '%s' %s, expected %s", name, text, expected)
		return false
	}
	return true
}

// within reads a number in a range into to.
func (b *branches) within(key string, m map[string]json.RawMessage, name string, low, high float64, to *float64) bool {
	expected := fmt.Sprintf("a number from %g to %g", low, high)
	if !field(b, key, m, name, expected, to) {
		return false
	}
	if _, set := m[name]; set && (*to < low || *to > high || math.IsNaN(*to)) {
		b.fail(key, "has '%s' %s, expected %s", name, m[name], expected)
		return false
	}
	return true
}

// whole reads an integer in a range into to.
func (b *branches) whole(key string, m map[string]json.RawMessage, name string, low, high int, to *int) bool {
	v := float64(*to)
	if !b.within(key, m, name, float64(low), float64(high), &v) {
		return false
	}
	if v != math.Trunc(v) {
		b.fail(key, "has '%s' %s, expected an integer", name, m[name])
		return false
	}
	*to = int(v)
	return true
}

// alternative reads MODEL or MODEL:VERSION.
func (b *branches) alternative(key, name string) (Alternative, bool) {
	a := Alternative{Name: name, Model: name, Version: -1}
	if model, version, found := strings.Cut(name, ":"); found {
		n, err := strconv.ParseInt(version, 10, 64)
		if a.Model, a.Version = model, n; err != nil || n < 1 {
			b.fail(key, "names '%s', expected a model, or a model and a version, for example %s:2", name, cmp.Or(model, "MODEL"))
			return a, false
		}
	}
	if a.Model == "" {
		b.fail(key, "names no model, expected MODEL or MODEL:VERSION")
		return a, false
	}
	return a, !b.endless(key, &a)
}

// own returns the alternative that step i of the configuration is.
func (b *branches) own(i int) Alternative {
	s := b.flow.Steps[i]
	a := Alternative{Name: s.GetModelName(), Model: s.GetModelName(), Version: s.GetModelVersion()}
	if a.Version > 0 {
		a.Name += ":" + strconv.FormatInt(a.Version, 10)
	} else {
		a.Version = -1
	}
	return a
}

// divided reports that step i cannot be divided, because it is already, or because its failures are absorbed.
func (b *branches) divided(key string, i int) bool {
	s := &b.flow.Steps[i]
	if s.Route != nil {
		b.fail(key, "is of %s that '%s' divides already, expected one of both", b.divides(), strings.TrimPrefix(s.Route.Field, "parameters."))
		return true
	}
	if s.Faults != nil && s.Faults.Absorbed {
		b.fail(key, "is of a step with a fallback or an optional result, which hide the failures of its alternatives: expected one of both")
		return true
	}
	return false
}

// split reads the weights of a step's alternatives.
func (b *branches) split(key string, i int) {
	own := b.own(i)
	m, ok := b.fields(key, fmt.Sprintf(`{"weights": {"%s": 90, "OTHER": 10}}`, own.Name), "weights", "key")
	r := &Route{Of: b.label(i), Field: "parameters." + key, Kind: splitParam}
	if !ok || b.divided(key, i) || !field(b, key, m, "key", "the name of a request parameter", &r.Key) {
		return
	}
	weights, ok := b.weights(key, m["weights"])
	if !ok {
		return
	}
	if _, there := weights[own.Name]; !there {
		b.fail(key, "has no weight for %s, expected one, which may be 0.%s", b.ownText(&own), DidYouMean(own.Name, slices.Collect(maps.Keys(weights))))
		return
	}
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for _, name := range sortedKeys(weights) {
		a, ok := b.alternative(key, name)
		if !ok {
			return
		}
		if a.Share = weights[name] / sum; name == own.Name {
			own.Share = a.Share
			continue
		}
		r.Alternatives = append(r.Alternatives, a)
	}
	r.Alternatives = append(r.Alternatives, own)
	b.divide(r, i)
}

// weights reads an object of weights that make sense: two or more, none negative, not all 0, none twice.
func (b *branches) weights(key string, text json.RawMessage) (map[string]float64, bool) {
	weights := map[string]float64{}
	names, err := memberNames(text)
	if err == nil {
		err = json.Unmarshal(text, &weights)
	}
	switch {
	case err != nil:
		b.fail(key, "has 'weights' %s, expected an object of models and numbers", quoteShort(string(text)))
		return nil, false
	case len(names) > len(weights):
		slices.Sort(names)
		b.fail(key, "has a weight twice among %s, expected one for each model", strings.Join(names, ", "))
		return nil, false
	case len(weights) < 2 || len(weights) > maxAlternatives:
		b.fail(key, "has %d weights, expected 2 to %d", len(weights), maxAlternatives)
		return nil, false
	}
	sum := 0.0
	for _, name := range sortedKeys(weights) {
		if weights[name] < 0 {
			b.fail(key, "has the weight %g for '%s', expected a number that is not negative", weights[name], name)
			return nil, false
		}
		sum += weights[name]
	}
	if sum <= 0 || math.IsInf(sum, 0) {
		b.fail(key, "has weights with the sum %g, expected at least one above 0, and a finite sum", sum)
		return nil, false
	}
	return weights, true
}

// memberNames returns the names of an object's members, with those that are there twice.
func memberNames(text json.RawMessage) (names []string, err error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("no object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		names = append(names, name)
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// divide adds a step for each alternative but the step's own, a choice for each, and joins the tensors that they write.
func (b *branches) divide(r *Route, i int) {
	own := &b.flow.Steps[i]
	written := own.GetOutputMap()
	joins := map[string][]string{}
	base := *own
	for k := range r.Alternatives {
		a := &r.Alternatives[k]
		next := base
		s := &next
		s.ModelEnsembling_Step, s.Route, s.Rows = proto.CloneOf(base.ModelEnsembling_Step), r, r.Of+"."+r.Kind+"."+a.Name
		if k < len(r.Alternatives)-1 {
			s.ModelName, s.ModelVersion, s.ModelNamespace = a.Model, a.Version, ""
			s.Name, s.Field = a.Name, r.Field
			if !b.outer() && strings.HasPrefix(r.Of, a.Name) || b.hasStep(a.Name) {
				s.Name = s.Rows
			}
		}
		op := Operation{Name: s.Rows, Field: r.Field, Out: s.Rows, Route: r, Alternative: k}
		if base.Rows != "" {
			op.In = []string{base.Rows}
		}
		b.flow.Operations = append(b.flow.Operations, op)
		for _, port := range sortedKeys(written) {
			t := written[port]
			s.OutputMap[port] = t + " of " + s.Rows
			joins[t] = append(joins[t], s.OutputMap[port])
		}
		if k < len(r.Alternatives)-1 {
			b.flow.Steps = append(b.flow.Steps, *s)
		} else {
			b.flow.Steps[i] = *s
		}
	}
	for _, t := range slices.Sorted(maps.Keys(joins)) {
		b.flow.Operations = append(b.flow.Operations, Operation{Name: b.joinName(r, t), Field: r.Field, In: joins[t], Out: t, Joins: r})
	}
}

// shadow reads the model that gets copies of a step's requests.
func (b *branches) shadow(key string, i int) {
	own := b.own(i)
	m, ok := b.fields(key, fmt.Sprintf(`{"model": "%s:2"}`, own.Model), "model", "share", "max_in_flight", "absolute", "relative")
	if !ok {
		return
	}
	s := &Shadow{Of: b.label(i), Field: "parameters." + key, InFlight: defaultShadows}
	name, share := "", 1.0
	absolute, relative := -1.0, -1.0
	switch {
	case !field(b, key, m, "model", "MODEL or MODEL:VERSION", &name), !b.within(key, m, "share", 0, 1, &share),
		!b.whole(key, m, "max_in_flight", 1, maxShadows, &s.InFlight), !b.within(key, m, "absolute", 0, math.MaxFloat64, &absolute),
		!b.within(key, m, "relative", 0, math.MaxFloat64, &relative):
		return
	case share == 0:
		b.fail(key, "has 'share' 0, expected the share of requests that are copied, above 0 and at most 1")
		return
	}
	if s.Alternative, ok = b.alternative(key, name); !ok {
		return
	}
	if s.Name == own.Name {
		b.fail(key, "names %s, expected another model or version", b.ownText(&own))
		return
	}
	if s.Share = share; absolute >= 0 {
		s.Absolute = &absolute
	}
	if relative >= 0 {
		s.Relative = &relative
	}
	op := Operation{Name: s.Of + "." + shadowParam, Field: s.Field, Shadow: s, Of: i}
	for _, port := range sortedKeys(b.flow.Steps[i].GetInputMap()) {
		s.Inputs, op.In = append(s.Inputs, port), append(op.In, b.flow.Steps[i].GetInputMap()[port])
	}
	for _, port := range sortedKeys(b.flow.Steps[i].GetOutputMap()) {
		s.Outputs, op.In = append(s.Outputs, port), append(op.In, b.flow.Steps[i].GetOutputMap()[port])
	}
	b.flow.Operations = append(b.flow.Operations, op)
}

// routedModels returns the models of alternatives and shadows, as steps.
func routedModels(cfg *modelconfig.ModelConfig) (list []*modelconfig.ModelEnsembling_Step) {
	flow, _ := FlowOf(cfg)
	if whole, _ := WholeFlowOf(cfg); whole != nil {
		flow = &Flow{Steps: slices.Concat(flow.Steps, whole.Steps), Operations: slices.Concat(flow.Operations, whole.Operations)}
	}
	for i := range flow.Steps {
		if s := &flow.Steps[i]; s.Route != nil && s.Name != "" {
			list = append(list, &modelconfig.ModelEnsembling_Step{ModelName: s.GetModelName(), ModelVersion: s.GetModelVersion()})
		}
	}
	for _, o := range flow.Operations {
		if o.Shadow != nil {
			list = append(list, &modelconfig.ModelEnsembling_Step{ModelName: o.Shadow.Model, ModelVersion: o.Shadow.Version})
		}
	}
	return list
}
