package tools

import (
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// schema is the part of JSON Schema that tensors need.
type schema struct {
	Type                 any                `json:"type,omitempty"` // a string, or a list of them
	Description          string             `json:"description,omitempty"`
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	Minimum              *int               `json:"minimum,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	MinItems             *int64             `json:"minItems,omitempty"`
	MaxItems             *int64             `json:"maxItems,omitempty"`
	Properties           map[string]*schema `json:"properties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	AdditionalProperties *bool              `json:"additionalProperties,omitempty"`
}

// responses is the member of the result of a decoupled model, which has a list.
const responses = "responses"

// describe returns the tool as clients see it.
func (t *tool) describe() *mcp.Tool {
	in := &schema{Type: "object", Properties: map[string]*schema{}, AdditionalProperties: new(bool)}
	for i := range t.desc.Inputs {
		p := &t.desc.Inputs[i]
		s := t.ofPort(p, false)
		if t.Binary(p.Name) {
			s.encode("base64")
		}
		in.Properties[p.Name] = s
		if !p.Optional {
			in.Required = append(in.Required, p.Name)
		}
	}
	out := &schema{Type: "object", Properties: map[string]*schema{}}
	for i := range t.desc.Outputs {
		out.Properties[t.desc.Outputs[i].Name] = t.ofPort(&t.desc.Outputs[i], true)
	}
	if t.desc.Decoupled {
		out = &schema{Type: "object", Properties: map[string]*schema{responses: {Type: "array", Items: out}}, Required: []string{responses}}
	}
	closed := false // a model is no world to interact with
	return &mcp.Tool{
		Name: t.desc.Model, Description: t.Description, InputSchema: in, OutputSchema: out,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed},
	}
}

// dims returns the dimensions of one item, without that of batches.
func (t *tool) dims(p *infer.Port) []int64 {
	dims := p.Shape.Dims()
	if t.desc.MaxBatch > 0 && len(dims) > 0 {
		dims = dims[1:]
	}
	return dims
}

// single reports whether dimensions are those of one element, which JSON has without brackets.
func single(dims []int64) bool {
	for _, d := range dims {
		if d != 1 {
			return false
		}
	}
	return true
}

// ofPort returns the schema of one item of an input or output.
func (t *tool) ofPort(p *infer.Port, output bool) *schema {
	s := ofElement(p.DType, output)
	if dims := t.dims(p); !single(dims) {
		for _, n := range slices.Backward(dims) {
			s = &schema{Type: "array", Items: s}
			if n >= 0 {
				s.MinItems, s.MaxItems = &n, &n
			}
		}
	}
	s.Description = t.About(p.Name)
	return s
}

func ofElement(d tensor.DType, output bool) *schema {
	switch d {
	case tensor.Bytes:
		return &schema{Type: "string"}
	case tensor.Bool:
		return &schema{Type: "boolean"}
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		if output { // JSON has no NaN and no infinity
			return &schema{Type: []string{"number", "null"}}
		}
		return &schema{Type: "number"}
	default:
		s := &schema{Type: "integer"}
		if isUnsigned(d) {
			s.Minimum = new(int)
		}
		return s
	}
}

// encode sets the encoding of the strings.
func (s *schema) encode(name string) {
	for s.Items != nil {
		s = s.Items
	}
	s.ContentEncoding = name
}
