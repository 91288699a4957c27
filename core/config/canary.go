package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Canary are the rules by which the share of a canary grows, or falls to 0.
type Canary struct {
	// Stages are the shares, ascending. The canary enters the next one after Requests requests that were good enough.
	Stages   []float64
	Requests int
	// MaxErrors is by how much the share of failed requests may exceed that of the step's own model, MaxLatency how many times as long
	// requests may take, and MaxDrift the share of shadow responses that may differ; negative for no rule.
	MaxErrors, MaxLatency, MaxDrift float64
}

// String returns the rules as text.
func (c *Canary) String() string {
	stages := make([]string, len(c.Stages))
	for i, s := range c.Stages {
		stages[i] = strconv.FormatFloat(s*100, 'g', 4, 64) + "%"
	}
	return fmt.Sprintf("stages %s of %d requests", strings.Join(stages, ", "), c.Requests)
}

// canary reads the rules of a canary.
func (b *branches) canary(key string, i int) {
	own := b.own(i)
	m, ok := b.fields(key, fmt.Sprintf(`{"model": "%s:2", "weight": 5}`, own.Model), "model", "weight", "stages", "requests", "max_errors", "max_latency", "max_drift", "key")
	if !ok || b.divided(key, i) {
		return
	}
	r := &Route{Of: b.label(i), Field: "parameters." + key, Kind: canaryParam}
	c := &Canary{Requests: defaultRequests, MaxErrors: 0.01, MaxLatency: -1, MaxDrift: -1}
	var name string
	weight, stages := 5.0, []float64{25, 50, 100}
	switch {
	case !field(b, key, m, "model", "MODEL or MODEL:VERSION", &name), !field(b, key, m, "key", "the name of a request parameter", &r.Key),
		!b.within(key, m, "weight", 0, 100, &weight), !field(b, key, m, "stages", "a list of percentages", &stages),
		!b.whole(key, m, "requests", 1, 1_000_000, &c.Requests), !b.within(key, m, "max_errors", 0, 1, &c.MaxErrors),
		!b.within(key, m, "max_latency", 0.01, 1000, &c.MaxLatency), !b.within(key, m, "max_drift", 0, 1, &c.MaxDrift):
		return
	}
	other, ok := b.alternative(key, name)
	if !ok || !b.stages(key, weight, stages, c) {
		return
	}
	if other.Name == own.Name {
		b.fail(key, "names %s, expected another model or version", b.ownText(&own))
		return
	}
	other.Share = c.Stages[0]
	own.Share = 1 - other.Share
	r.Canary, r.Alternatives = c, []Alternative{other, own}
	b.divide(r, i)
}

// stages sets the shares of a canary: the weight, and the stages above it.
func (b *branches) stages(key string, weight float64, stages []float64, c *Canary) bool {
	if weight <= 0 {
		b.fail(key, "has 'weight' %g, expected a percentage above 0 to begin with", weight)
		return false
	}
	c.Stages = []float64{weight / 100}
	for _, s := range stages {
		if s <= 0 || s > 100 {
			b.fail(key, "has the stage %g, expected percentages above 0 and at most 100", s)
			return false
		}
		if s > weight {
			c.Stages, weight = append(c.Stages, s/100), s
		}
	}
	if !slices.IsSorted(stages) {
		b.fail(key, "has stages that do not ascend, expected for example [25, 50, 100]")
		return false
	}
	return true
}

// checkRoutes checks rules between routes.
func (b *branches) checkRoutes() {
	for i := range b.flow.Steps {
		r := b.flow.Steps[i].Route
		if r == nil || r.Canary == nil || r.Canary.MaxDrift < 0 || b.flow.Steps[i].Name != "" {
			continue
		}
		at := slices.IndexFunc(b.flow.Operations, func(o Operation) bool { return o.Shadow != nil && o.Shadow.Of == r.Of })
		if at < 0 || b.flow.Operations[at].Shadow.Name != r.Alternatives[0].Name {
			b.fail(strings.TrimPrefix(r.Field, "parameters."), "has 'max_drift', which counts the responses of a shadow that differ: expected the parameter '%s' with the model '%s'",
				b.shadowKey(r), r.Alternatives[0].Name)
		}
	}
}
