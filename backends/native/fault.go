package native

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/steps"
)

// unnamed is the error of a model that names no step, or one that there is not.
func (b *backend) unnamed(model, name string) error {
	names := b.steps.Names()
	if name == "" {
		return config.WithFix(config.Errorf(config.StepParam, "parameters", "model '%s' of backend '%s' must name its step by parameter '%s', one of: %s",
			model, Name, steps.Key, strings.Join(names, ", ")), `add parameters { key: "step" value { string_value: "NAME" } }`)
	}
	near := config.DidYouMean(name, names)
	if near != "" {
		near = "." + near
	}
	return config.WithFix(config.Errorf(config.StepParam, "parameters."+steps.Key, "model '%s' names unknown step '%s', expected one of: %s%s",
		model, name, strings.Join(names, ", "), near), "name one of the steps: docs/steps.md describes them")
}

// faulty gives an error of a step the place of the parameter that it speaks of, by its name or its value in quotes, and
// what the step says about that parameter.
func faulty(err error, f *steps.Factory, given map[string]string) error {
	key := spokenOf(err.Error(), f, given)
	field := "parameters"
	if _, set := given[key]; set {
		field += "." + key
	}
	if _, known := config.Diagnosed(err); known {
		return config.WithField(err, field)
	}
	if _, coded := errors.AsType[*status.Error](err); coded {
		err = config.Coded(config.StepParam, field, err)
	} else {
		err = config.Errorf(config.StepParam, field, "%w", err)
	}
	if i := slices.IndexFunc(f.Params, func(p steps.Param) bool { return p.Key == key }); i >= 0 {
		return config.WithFix(err, advice(&f.Params[i]))
	}
	return err
}

// spokenOf returns the parameter that a text names, else the one whose value it quotes, else none.
func spokenOf(text string, f *steps.Factory, given map[string]string) string {
	quotes := func(word string) bool { return word != "" && strings.Contains(text, "'"+word+"'") }
	for _, p := range f.Params {
		if quotes(p.Key) {
			return p.Key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if key != steps.Key && (quotes(key) || quotes(given[key])) {
			return key
		}
	}
	return ""
}

// advice says what a parameter is for.
func advice(p *steps.Param) string {
	text := fmt.Sprintf(`%s: %s`, p.Key, strings.TrimSuffix(p.Doc, "."))
	switch {
	case p.Required:
		return text + "; it must be set"
	case p.Default != "":
		return text + "; by default " + p.Default
	}
	return text
}
