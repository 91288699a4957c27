package httpapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/jsontext"
)

// fact is one member of a generate answer: a parameter, an output, or a value that
// is JSON already.
type fact struct {
	name  string
	param *infer.Param
	out   *infer.Named
	json  string
}

// appendAnswer appends an answer as one flat JSON object. Its members are sorted, as
// Triton's are, and an output with one element is that element.
func (x *exchange) appendAnswer(b []byte, resp *infer.Response) ([]byte, error) {
	facts := x.factsOf(resp)
	b = append(b, '{')
	comma, err := false, error(nil)
	for i := range facts {
		f := &facts[i]
		if i > 0 && facts[i-1].name == f.name {
			continue // what Triton says itself comes before what the model says
		}
		if comma {
			b = append(b, ',')
		}
		comma = true
		if b, err = f.append(b, resp); err != nil {
			break
		}
	}
	clear(facts)
	return append(b, '}'), err
}

// factsOf gathers and sorts the members.
func (x *exchange) factsOf(resp *infer.Response) []fact {
	facts := x.facts[:0]
	if resp.ID != "" {
		facts = append(facts, fact{name: "id"})
	}
	facts = append(facts, fact{name: "model_name"}, fact{name: "model_version"})
	if resp.Ensemble {
		facts = append(facts, fact{name: "sequence_end", json: strconv.FormatBool(resp.Sequence.End)},
			fact{name: "sequence_id", json: sequenceID(&resp.Sequence)}, fact{name: "sequence_start", json: strconv.FormatBool(resp.Sequence.Start)})
	}
	for i := range resp.Params {
		facts = append(facts, fact{name: resp.Params[i].Key, param: &resp.Params[i]})
	}
	for i := range resp.Outputs {
		facts = append(facts, fact{name: resp.Outputs[i].Name, out: &resp.Outputs[i]})
	}
	slices.SortStableFunc(facts, func(a, b fact) int { return strings.Compare(a.name, b.name) })
	x.facts = facts
	return facts
}

func sequenceID(s *infer.Sequence) string {
	if s.Name != "" {
		return string(jsontext.Append(nil, s.Name))
	}
	return strconv.FormatUint(s.ID, 10)
}

func (f *fact) append(b []byte, resp *infer.Response) ([]byte, error) {
	if f.param != nil {
		return appendParam(b, f.param), nil
	}
	b = append(jsontext.Append(b, f.name), ':')
	switch {
	case f.out != nil:
		return appendPlain(b, f.out)
	case f.json != "":
		return append(b, f.json...), nil
	case f.name == "id":
		return jsontext.Append(b, resp.ID), nil
	case f.name == "model_name":
		return jsontext.Append(b, resp.Model), nil
	default:
		return append(strconv.AppendInt(append(b, '"'), resp.Version, 10), '"'), nil
	}
}

// appendPlain appends an output's value, or a flat array of its values.
func appendPlain(b []byte, out *infer.Named) ([]byte, error) {
	if out.Tensor.Shape.Elements() == 1 {
		return appendData(b, out)
	}
	b, err := appendData(append(b, '['), out)
	return append(b, ']'), err
}
