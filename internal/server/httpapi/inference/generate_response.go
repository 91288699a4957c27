package inference

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
)

// member is a member of a generate response: a parameter, an output, or one whose value only its name decides.
type member struct {
	name  string
	param *infer.Param
	out   *infer.Named
}

// appendResponse appends a response as one flat JSON object with sorted members, as Triton does. An output of one element is a
// scalar. For example: {"model_name":"m","model_version":"1","text_output":"hello"}.
func (x *exchange) appendResponse(b []byte, resp *infer.Response) ([]byte, error) {
	members := x.sortedMembers(resp)
	b = append(b, '{')
	comma, err := false, error(nil)
	for i := range members {
		m := &members[i]
		if i > 0 && members[i-1].name == m.name {
			continue // the server's member comes before the model's
		}
		if comma {
			b = append(b, ',')
		}
		comma = true
		if b, err = m.append(b, resp); err != nil {
			break
		}
	}
	clear(members)
	return append(b, '}'), err
}

// sortedMembers returns the members of the response. Of equal names the server's comes first.
func (x *exchange) sortedMembers(resp *infer.Response) []member {
	list := x.members[:0]
	if resp.ID != "" {
		list = append(list, member{name: "id"})
	}
	list = append(list, member{name: "model_name"}, member{name: "model_version"})
	if resp.Ensemble {
		list = append(list, member{name: "sequence_end"}, member{name: "sequence_id"}, member{name: "sequence_start"})
	}
	for i := range resp.Params {
		list = append(list, member{name: resp.Params[i].Key, param: &resp.Params[i]})
	}
	for i := range resp.Outputs {
		list = append(list, member{name: resp.Outputs[i].Name, out: &resp.Outputs[i]})
	}
	slices.SortStableFunc(list, func(a, b member) int { return strings.Compare(a.name, b.name) })
	x.members = list
	return list
}

func (m *member) append(b []byte, resp *infer.Response) ([]byte, error) {
	if m.param != nil {
		return appendParam(b, m.param), nil
	}
	b = append(jsontext.Append(b, m.name), ':')
	if m.out != nil {
		return appendValue(b, m.out)
	}
	switch m.name {
	case "id":
		return jsontext.Append(b, resp.ID), nil
	case "model_name":
		return jsontext.Append(b, resp.Model), nil
	case "model_version":
		return append(strconv.AppendInt(append(b, '"'), resp.Version, 10), '"'), nil
	case "sequence_id":
		return appendSequenceID(b, &resp.Sequence), nil
	case "sequence_start":
		return strconv.AppendBool(b, resp.Sequence.Start), nil
	default:
		return strconv.AppendBool(b, resp.Sequence.End), nil
	}
}

// appendValue appends an output as a scalar or a flat array.
func appendValue(b []byte, out *infer.Named) ([]byte, error) {
	if out.Tensor.Shape.Elements() == 1 {
		return tensorjson.AppendData(b, out)
	}
	b, err := tensorjson.AppendData(append(b, '['), out)
	return append(b, ']'), err
}
