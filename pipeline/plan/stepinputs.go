package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
)

// readConstants reads the inputs of a step that the configuration gives, when its model is known.
func (s *step) readConstants(c *config.Constants, m *Model) error {
	if c == nil {
		return nil
	}
	name := strings.TrimPrefix(c.Field, "parameters.")
	if m.Ensemble != nil {
		return s.level.errorf(config.NotHonoured, c.Field, "parameter '%s' is of step '%s', which is the ensemble '%s': set it for the steps of '%s'", name, s.name, s.model, s.model)
	}
	s.constants = make([]Constant, len(s.sig.Inputs))
	for port, value := range c.Values {
		i := s.sig.Input(port)
		if i < 0 {
			var names []string
			for k := range s.sig.Inputs {
				names = append(names, s.sig.Inputs[k].Name)
			}
			return s.level.errorf(config.NoSuchPort, c.Field, "parameter '%s' has a value for the input '%s', which model '%s' does not have, expected one of %s.%s",
				name, port, s.model, strings.Join(names, ", "), config.DidYouMean(port, names))
		}
		var err error
		if s.constants[i], err = constant(value, s.sig.Inputs[i].DType, s.sig.Inputs[i].Dims); err != nil {
			return s.level.errorf(config.FlowParam, c.Field, "parameter '%s' has for the input '%s' %s", name, port, err)
		}
	}
	return nil
}

// given reports whether the configuration gives an input of a step.
func (s *step) given(port int) bool { return s.constants != nil && s.constants[port].Data != nil }

// allParams returns the request parameters that only a step sees: those of the ensembles around it, then its own, which take precedence.
func (s *step) allParams() infer.Params {
	var list infer.Params
	if s.level.within != nil {
		list = s.level.within.allParams()
	}
	for _, p := range s.params {
		list = slices.DeleteFunc(list, func(x infer.Param) bool { return x.Key == p.Key })
		list = append(list, paramOf(p))
	}
	return list
}

func paramOf(p config.StepParameter) infer.Param {
	to := infer.Param{Key: p.Key}
	switch v := p.Value.(type) {
	case bool:
		to.Kind, to.Bool = infer.ParamBool, v
	case int64:
		to.Kind, to.Int = infer.ParamInt, v
	case float64:
		to.Kind, to.Double = infer.ParamDouble, v
	case string:
		to.Kind, to.String = infer.ParamString, v
	}
	return to
}

// paramsText describes the request parameters that only a node sees.
func (n *Node) paramsText() string {
	var list []string
	for i := range n.Params {
		text := n.Params[i].Text()
		if n.Params[i].Kind == infer.ParamString {
			text = fmt.Sprintf("%q", text)
		}
		list = append(list, n.Params[i].Key+"="+text)
	}
	return "parameters " + strings.Join(list, ", ")
}
