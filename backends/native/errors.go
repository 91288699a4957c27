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

// unknownStep returns the error of a model that names no step, or an unknown one.
func (b *backend) unknownStep(model, name string) error {
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

// withParam adds to a step's error the field of config.pbtxt that it concerns, and the documentation of that
// parameter. The error concerns the parameter whose name or value it quotes.
func withParam(err error, f *steps.Factory, given map[string]string) error {
	key := quotedParam(err.Error(), f, given)
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
		return config.WithFix(err, paramHint(&f.Params[i]))
	}
	return err
}

// quotedParam returns the parameter whose name the text quotes, else the one whose value it quotes, else "".
func quotedParam(text string, f *steps.Factory, given map[string]string) string {
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

// paramHint describes a parameter for an error's hint.
func paramHint(p *steps.Param) string {
	text := fmt.Sprintf(`%s: %s`, p.Key, strings.TrimSuffix(p.Doc, "."))
	switch {
	case p.Required:
		return text + "; it must be set"
	case p.Default != "":
		return text + "; by default " + p.Default
	}
	return text
}
