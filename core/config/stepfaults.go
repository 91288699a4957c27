package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of a step that say what happens when it fails.
//
//	parameters { key: "step.detailed.timeout_ms"      value { string_value: "50" } }
//	parameters { key: "step.detailed.retries"         value { string_value: "2" } }
//	parameters { key: "step.detailed.fallback"        value { string_value: "quick" } }
//	parameters { key: "step.detailed.optional_result" value { string_value: "{\"label\": -1}" } }
//	parameters { key: "step.detailed.breaker"         value { string_value: "{\"failures\": 5, \"probe_after_ms\": 1000}" } }
const (
	timeoutParam  = "timeout_ms"
	retriesParam  = "retries"
	fallbackParam = "fallback"
	optionalParam = "optional_result"
	breakerParam  = "breaker"
)

var faultParams = []string{breakerParam, fallbackParam, optionalParam, retriesParam, timeoutParam}

// IdempotentParam is the parameter of a model that says that a request may be sent to it again: "true" or "false".
const IdempotentParam = "idempotent"

// Idempotent reports whether a model has the parameter IdempotentParam with the value "true".
func Idempotent(cfg *modelconfig.ModelConfig) bool {
	return cfg.GetParameters()[IdempotentParam].GetStringValue() == "true"
}

// Faults say what happens when a step fails.
type Faults struct {
	// Field is the place of the parameter that is named first, RetriesField that of the retries.
	Field, RetriesField string
	// Timeout bounds each attempt; 0 for no bound.
	Timeout time.Duration
	// Retries is how often a failed attempt is repeated.
	Retries int
	// Breaker is nil without a circuit breaker.
	Breaker *Breaker
	// Absorbed reports that a failure does not fail the request: the step has a fallback or an optional result.
	Absorbed bool
	// Optional reports that the step has an optional result.
	Optional bool
	// Fallback is the model that runs instead; empty for none.
	Fallback string
	// Failed is the tensor by which the fallback waits for a failure; empty without a fallback.
	Failed string
}

// Breaker are the rules of a circuit breaker. It opens after Failures failures in a row, or when the last Window executions have at
// least the share Share of failures; one of both is set. When it has been open for ProbeAfter, one request probes the step.
type Breaker struct {
	Failures   int
	Share      float64
	Window     int
	ProbeAfter time.Duration
}

// String returns the rules as text, for example "opens after 5 failures in a row, probes after 1s".
func (b *Breaker) String() string {
	rule := fmt.Sprintf("%d failures in a row", b.Failures)
	if b.Window > 0 {
		rule = fmt.Sprintf("%g%% failures of %d", b.Share*100, b.Window)
	}
	return fmt.Sprintf("opens after %s, probes after %s", rule, b.ProbeAfter)
}

// StepModels returns the steps of an ensemble and those that run instead of failed ones: what its models are looked up by.
func StepModels(cfg *modelconfig.ModelConfig) []*modelconfig.ModelEnsembling_Step {
	list := slices.Clone(cfg.GetEnsembleScheduling().GetStep())
	for _, key := range sortedKeys(cfg.GetParameters()) {
		if strings.HasPrefix(key, stepPrefix) && strings.HasSuffix(key, "."+fallbackParam) {
			list = append(list, &modelconfig.ModelEnsembling_Step{ModelName: cfg.GetParameters()[key].GetStringValue(), ModelVersion: -1})
		}
	}
	return append(list, routedModels(cfg)...)
}

// limits of the parameters.
const (
	maxRetries   = 10
	maxWindow    = 10_000
	maxMillis    = 24 * 60 * 60 * 1000
	defaultProbe = time.Second
)

// fault reads one parameter about failures of step i.
func (b *branches) fault(key, what string, i int) {
	s := &b.flow.Steps[i]
	if s.Faults == nil {
		s.Faults = &Faults{Field: "parameters." + key}
	}
	switch f := s.Faults; what {
	case timeoutParam:
		f.Timeout = time.Duration(b.number(key, maxMillis, "milliseconds")) * time.Millisecond
	case retriesParam:
		f.Retries, f.RetriesField = b.number(key, maxRetries, "retries"), "parameters."+key
	case breakerParam:
		f.Breaker = b.breaker(key)
	case fallbackParam:
		b.fallbacks = append(b.fallbacks, func() { b.fallback(key, i) })
	case optionalParam:
		b.optionals = append(b.optionals, func() { b.optional(key, i) })
	}
}

// number reads a number from 1 to most.
func (b *branches) number(key string, most int, unit string) int {
	n, err := strconv.Atoi(b.value(key))
	if err != nil || n < 1 || n > most {
		b.fail(key, "is %s, expected a number of %s from 1 to %d", quoteShort(b.value(key)), unit, most)
		return 0
	}
	return n
}

const breakerForm = `expected {"failures": 5} or {"share": 0.5, "window": 20}, and "probe_after_ms" where it is not 1000`

// breaker reads the rules of a circuit breaker; nil when they are not valid.
func (b *branches) breaker(key string) *Breaker {
	values, err := object[float64](b.value(key))
	if err != nil {
		b.fail(key, "is %s, %s", err, breakerForm)
		return nil
	}
	known := []string{"failures", "share", "window", "probe_after_ms"}
	for _, name := range sortedKeys(values) {
		if !slices.Contains(known, name) {
			b.fail(key, "has the field '%s', %s.%s", name, breakerForm, DidYouMean(name, known))
			return nil
		}
	}
	_, counts := values["failures"]
	_, share := values["share"]
	_, window := values["window"]
	if counts == share || share != window {
		b.fail(key, "is %s, %s", quoteShort(b.value(key)), breakerForm)
		return nil
	}
	r := &Breaker{Failures: int(values["failures"]), Share: values["share"], Window: int(values["window"]), ProbeAfter: defaultProbe}
	if ms, set := values["probe_after_ms"]; set {
		r.ProbeAfter = time.Duration(ms * float64(time.Millisecond))
	}
	return b.checkBreaker(key, r, values)
}

// checkBreaker returns the rules of a circuit breaker if their numbers are possible, else nil.
func (b *branches) checkBreaker(key string, r *Breaker, values map[string]float64) *Breaker {
	whole := func(name string, most int) bool {
		v, set := values[name]
		if set && (v != float64(int(v)) || v < 1 || v > float64(most)) {
			b.fail(key, "has '%s' %g, expected a number from 1 to %d", name, v, most)
			return false
		}
		return true
	}
	if !whole("failures", maxWindow) || !whole("window", maxWindow) || !whole("probe_after_ms", maxMillis) {
		return nil
	}
	if r.Window > 0 && (r.Share <= 0 || r.Share > 1) {
		b.fail(key, "has 'share' %g, expected a number above 0 and at most 1", r.Share)
		return nil
	}
	return r
}

// label names a step: by its model, with the position where several steps have it.
func (b *branches) label(i int) string {
	name, n := b.flow.Steps[i].GetModelName(), 0
	for _, s := range b.cfg.GetEnsembleScheduling().GetStep() {
		if s.GetModelName() == name {
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s[%d]", name, i)
	}
	return name
}

// fallback adds the step that runs when step i has failed. Each tensor of step i is then joined from what both write.
func (b *branches) fallback(key string, i int) {
	model, s := b.value(key), &b.flow.Steps[i]
	switch {
	case model == "":
		b.fail(key, "is empty, expected the name of a model with the ports of '%s'", s.GetModelName())
		return
	case model == s.GetModelName():
		b.fail(key, "is the step's own model '%s', expected another one: use retries to run a model again", model)
		return
	}
	label, field := b.label(i), "parameters."+key
	other := FlowStep{Constants: s.Constants, Adapt: s.Adapt, ModelEnsembling_Step: proto.CloneOf(s.ModelEnsembling_Step), Name: label + ".fallback", Field: field, Of: label, Params: s.Params}
	other.ModelName, other.ModelVersion, other.ModelNamespace = model, -1, ""
	s.ModelEnsembling_Step = proto.CloneOf(s.ModelEnsembling_Step)
	s.Faults.Absorbed, s.Faults.Fallback, s.Faults.Failed = true, model, label+".failed"
	other.Rows = s.Faults.Failed
	for _, port := range sortedKeys(s.GetOutputMap()) {
		t := s.GetOutputMap()[port]
		s.OutputMap[port], other.OutputMap[port] = t+" of "+label, t+" of "+other.Name
		b.flow.Operations = append(b.flow.Operations, Operation{
			Name: fallbackParam + " " + t, Field: field, In: []string{s.OutputMap[port], other.OutputMap[port]}, Out: t, Faults: true,
		})
	}
	b.flow.Steps = append(b.flow.Steps, other)
}

// optional gives step i a result for the case that it fails: its tensors are absent, or have the values of the configuration.
func (b *branches) optional(key string, i int) {
	var values map[string]json.RawMessage
	if b.value(key) != "absent" {
		var err error
		if values, err = object[json.RawMessage](b.value(key)); err != nil {
			b.fail(key, "is %s, expected absent, or a JSON object of tensors and values, for example {\"label\": -1}", err)
			return
		}
	}
	s := &b.flow.Steps[i]
	written := slices.Sorted(maps.Values(b.cfg.GetEnsembleScheduling().GetStep()[i].GetOutputMap()))
	for _, t := range sortedKeys(values) {
		if !slices.Contains(written, t) {
			b.fail(key, "has a value for the tensor '%s', which the step does not write, expected one of %s.%s", t, strings.Join(written, ", "), DidYouMean(t, written))
			return
		}
	}
	s.Faults.Absorbed, s.Faults.Optional = true, true
	if s.Faults.Fallback != "" {
		b.optionalFallback(key, i, values)
		return
	}
	s.ModelEnsembling_Step = proto.CloneOf(s.ModelEnsembling_Step)
	for _, port := range sortedKeys(s.GetOutputMap()) {
		t := s.GetOutputMap()[port]
		value, given := b.valueOf(values, i, port)
		if !given {
			continue
		}
		s.OutputMap[port] = t + " of " + b.label(i)
		b.flow.Operations = append(b.flow.Operations, Operation{
			Name: optionalParam + " " + t, Field: "parameters." + key, In: []string{s.OutputMap[port]}, Out: t, Otherwise: value, Faults: true,
		})
	}
}

// optionalFallback gives the joins of a step and its fallback values for the case that both fail.
func (b *branches) optionalFallback(key string, i int, values map[string]json.RawMessage) {
	for at := range b.flow.Steps {
		if s := &b.flow.Steps[at]; s.Rows != "" && s.Rows == b.flow.Steps[i].Faults.Failed {
			s.Faults = &Faults{Field: "parameters." + key, Absorbed: true, Optional: true}
		}
	}
	for port, written := range b.flow.Steps[i].GetOutputMap() {
		for at := range b.flow.Operations {
			if o := &b.flow.Operations[at]; o.Faults && o.In[0] == written {
				o.Otherwise, _ = b.valueOf(values, i, port)
				o.Absent = o.Otherwise == nil
			}
		}
	}
}

// valueOf returns the value for the tensor that the configuration writes at a port of step i.
func (b *branches) valueOf(values map[string]json.RawMessage, i int, port string) (json.RawMessage, bool) {
	v, ok := values[b.cfg.GetEnsembleScheduling().GetStep()[i].GetOutputMap()[port]]
	return v, ok
}
