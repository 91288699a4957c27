package importer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// choose runs the first step whose condition holds.
func (g *graph) choose(name string, at value, steps []value, request *message, when *condition) *message {
	var responses []*message
	var before *condition // that no earlier step ran
	for _, v := range steps {
		s := g.stepOf(v)
		c := s.fields["condition"]
		if c.n == nil {
			g.fail(v, "the field 'condition' is missing in a step of the Switch '%s'", name)
			continue
		}
		expr := g.condition(c, request, true)
		if expr == nil {
			expr = &condition{text: escape(fmt.Sprintf("has(params.%s) && params.%s == %s", identifier(name), identifier(name), strconv.Quote(s.name)))}
			g.note(c, "condition "+g.text(c), "it has no counterpart for tensors: the step runs if the parameter '%s' of the request is '%s'", identifier(name), s.name)
		}
		own := both(both(when, before), expr)
		before = both(before, expr.negated())
		if r := g.run(s, request, own); r != nil {
			responses = append(responses, r)
		}
	}
	if len(responses) < 2 {
		if len(responses) == 1 && len(steps) == 1 {
			g.fail(at, "the Switch '%s' has one step, expected at least two", name)
		}
		return nil
	}
	return g.firstOf(at, responses, when)
}

// split chooses a step by its weight.
func (g *graph) split(name string, at value, steps []value, request *message, when *condition) *message {
	type alternative struct {
		model  string
		weight int64
	}
	var list []alternative
	var sum int64
	for _, v := range steps {
		s := g.stepOf(v)
		w := g.integer(s.fields["weight"], -1)
		if w < 0 {
			g.fail(v, "the step of the Splitter '%s' has no weight, expected 0 to 100", name)
		}
		sum += max(w, 0)
		var model string
		if n := s.fields["nodeName"]; n.n != nil {
			model = g.name + "-" + g.text(n)
			g.build(model, g.text(n), n)
		} else {
			model = g.target(s)
		}
		list = append(list, alternative{model, w})
	}
	if sum != 100 {
		g.fail(at, "the weights of the Splitter '%s' have the sum %d, expected 100", name, sum)
	}
	weights := map[string]int64{}
	for _, a := range list {
		weights[a.model] += a.weight
	}
	if len(g.errs) > 0 || list[0].model == "" {
		return nil
	}
	first := value{steps[0].n, steps[0].path}
	response := g.call(&graphStep{first, nil, list[0].model}, list[0].model, request, when)
	text, _ := json.Marshal(map[string]any{"weights": weights})
	if len(weights) > 1 && response != nil {
		g.e.params = append(g.e.params, [2]string{"step." + g.e.stepKey(len(g.e.steps)-1) + ".split", string(text)})
	}
	return response
}

// The conditions of GJSON that have a counterpart. KServe runs a step if the path exists.
var (
	pathParam     = regexp.MustCompile(`^parameters\.(\w+)$`)
	pathObject    = regexp.MustCompile(`^\[@this\]\.#\(([\w.]+)\s*(==|!=|<=|>=|<|>)\s*(.+)\)$`)
	pathData      = regexp.MustCompile(`^(?:inputs|outputs)\.#\(name=="?([^"()]+?)"?\)(?:#)?\.data\.(.+)$`)
	pathAny       = regexp.MustCompile(`^#\(\s*(==|!=|<=|>=|<|>)\s*(.+)\)$`)
	pathElement   = regexp.MustCompile(`^(?:predictions|outputs\.0\.data|inputs\.0\.data)\.(\d+)$`)
	pathParameter = regexp.MustCompile(`^(?:parameters\.)?(\w+)$`)
)

// condition returns the expression for a path of GJSON over a message; nil if it has none. topLevel says that fields of the message
// are those of a request.
func (g *graph) condition(v value, m *message, topLevel bool) *condition {
	text := strings.TrimSpace(g.text(v))
	if p := pathParam.FindStringSubmatch(text); p != nil {
		return &condition{text: "has(params." + p[1] + ")"}
	}
	if p := pathData.FindStringSubmatch(text); p != nil {
		return g.dataCondition(m, p[1], p[2])
	}
	p := pathObject.FindStringSubmatch(text)
	if p == nil {
		return nil
	}
	to := literal(p[3])
	if e := pathElement.FindStringSubmatch(p[1]); e != nil {
		w := g.onlyTensor(m)
		if w == nil {
			return nil
		}
		if strings.HasPrefix(p[1], "predictions") {
			g.note(v, "predictions", "they are taken to be the tensor '%s', the only one of %s", w.name, m.from)
		}
		return &condition{"size(%s) > " + e[1] + " && %s[" + e[1] + "] " + p[2] + " " + escape(typed(to, w)), []*wire{w, w}}
	}
	if e := pathParameter.FindStringSubmatch(p[1]); e != nil && topLevel && m.request {
		if !strings.HasPrefix(p[1], "parameters.") {
			g.note(v, "field '"+e[1]+"' of the request", "a request of KServe v2 has no fields of its own: it is the request's parameter '%s'", e[1])
		}
		return &condition{text: escape(fmt.Sprintf("has(params.%s) && params.%s %s %s", e[1], e[1], p[2], to))}
	}
	return nil
}

// dataCondition returns the expression for elements of a tensor.
func (g *graph) dataCondition(m *message, name, rest string) *condition {
	w := m.find(name)
	if w == nil && m.request {
		for _, in := range g.e.in {
			if in.name == name {
				w = in
			}
		}
	}
	if w == nil || w.fixed && !isIdentifier(w.name) {
		return nil
	}
	if i, err := strconv.Atoi(rest); err == nil && i >= 0 {
		return &condition{"size(%s) > " + rest, []*wire{w}}
	}
	if p := pathAny.FindStringSubmatch(rest); p != nil {
		return &condition{"%s.exists(v, v " + p[1] + " " + escape(typed(literal(p[2]), w)) + ")", []*wire{w}}
	}
	return nil
}

// onlyTensor returns the tensor of a message that has one; else nil.
func (*graph) onlyTensor(m *message) *wire {
	if len(m.links) != 1 || m.links[0].wire.fixed && !isIdentifier(m.links[0].wire.name) {
		return nil
	}
	return m.links[0].wire
}

// literal returns a value of GJSON as an expression: a number, a JSON string, or a text without quotes.
func literal(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		switch v.(type) {
		case string, float64, bool:
			return text
		}
	}
	return strconv.Quote(strings.Trim(text, `"'`))
}

// typed returns a literal as the tensor's type needs it: a number for a tensor of text is a text.
func typed(literal string, w *wire) string {
	if w.port.dtype == "TYPE_STRING" && !strings.HasPrefix(literal, `"`) {
		return strconv.Quote(literal)
	}
	return literal
}

// escape protects a text from the names that are filled in.
func escape(text string) string { return strings.ReplaceAll(text, "%", "%%") }
