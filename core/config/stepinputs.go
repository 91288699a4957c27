package config

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The parameters of a step that give it what is no tensor.
//
//	parameters { key: "step.generate.constant"   value { string_value: "{\"MAX_TOKENS\": 64}" } }
//	parameters { key: "step.generate.parameters" value { string_value: "{\"temperature\": 0.2, \"stream\": false}" } }
const (
	constantParam = "constant"
	requestParams = "parameters"
)

var inputParams = []string{constantParam, requestParams}

// Constants are inputs of a step that the configuration gives.
type Constants struct {
	Field string
	// Values has the value, in JSON, of each input by its name at the model.
	Values map[string]json.RawMessage
}

// StepParameter is a request parameter that only one step sees.
type StepParameter struct {
	Key string
	// Value is a bool, an int64, a float64 or a string.
	Value any
}

// constants reads the constant inputs of step i.
func (b *branches) constants(key string, i int) {
	values, err := object[json.RawMessage](b.value(key))
	if err != nil {
		b.fail(key, "is %s, expected a JSON object of inputs of the model and values, for example {\"MAX_TOKENS\": 64}", err)
		return
	}
	for _, port := range sortedKeys(values) {
		if t, mapped := b.flow.Steps[i].GetInputMap()[port]; mapped {
			b.fail(key, "has a value for the input '%s', to which input_map maps the tensor '%s', expected one of both", port, t)
			return
		}
	}
	b.flow.Steps[i].Constants = &Constants{Field: "parameters." + key, Values: values}
}

// reservedParams are request parameters that the server reads itself.
var reservedParams = []string{"binary_data_output", "headers", "priority", "sequence_end", "sequence_id", "sequence_start", "timeout"}

// params reads the request parameters that only step i sees.
func (b *branches) params(key string, i int) {
	values, err := object[json.RawMessage](b.value(key))
	if err != nil {
		b.fail(key, "is %s, expected a JSON object of parameters and values, for example {\"temperature\": 0.2}", err)
		return
	}
	s := &b.flow.Steps[i]
	for _, name := range sortedKeys(values) {
		if slices.Contains(reservedParams, name) || strings.HasPrefix(name, "triton_") || name == "" {
			b.fail(key, "sets '%s', which is reserved for the server: no model receives it as a parameter", name)
			return
		}
		v, err := paramValue(values[name])
		if err != nil {
			b.fail(key, "has for '%s' the value %s, expected true or false, a number or a string", name, values[name])
			return
		}
		s.Params = append(s.Params, StepParameter{name, v})
	}
}

// paramValue returns the value of a parameter: an integer where the text is one.
func paramValue(text json.RawMessage) (any, error) {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case bool, string:
		return v, nil
	case float64:
		if !math.IsInf(v, 0) {
			return v, nil
		}
	}
	return nil, errors.New("not a bool, a number or a string")
}
