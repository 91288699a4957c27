package textapi

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
)

// extra is a member of a request to /v1/completions that is an input of the model or a parameter of the request, for example temperature.
type extra struct {
	name string
	at   jsonwire.Mark
}

// addExtra adds the members to a request, as inputs where the model has one with the name, and otherwise as parameters.
func (x *exchange) addExtra(p *jsonwire.Parser, req *infer.Request) error {
	for i := range x.extra {
		m := &x.extra[i]
		p.Reset(m.at)
		if is, err := p.Null(); is || err != nil {
			continue
		}
		port := x.input(m.name)
		var err error
		switch {
		case port != nil && port.Name != x.api.Text:
			err = x.addMember(p, req, m, port)
		case m.name == "stream":
		default:
			err = x.addParam(p, req, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addMember adds an input with the value of a member, a scalar or a list.
func (x *exchange) addMember(p *jsonwire.Parser, req *infer.Request, m *extra, port *infer.Port) error {
	if err := tensorjson.Readable(port.Name, port.DType); err != nil {
		return err
	}
	n, size, err := tensorjson.Measure(p, port.DType)
	if err != nil {
		return x.wrongMember(m, port)
	}
	shape, ok := x.fit(port, n)
	if !ok {
		return invalid(m.name, "'%s' has %d values, expected the shape %s of the input of model '%s'", m.name, n, port.Shape, x.model.name)
	}
	b, err := x.srv.Alloc.Alloc(int(size))
	if err != nil {
		return err
	}
	req.Inputs = append(req.Inputs, infer.Named{Name: port.Name, Tensor: tensor.Tensor{DType: port.DType, Shape: shape, Buf: b, Len: int(size)}})
	p.Reset(m.at)
	if err := tensorjson.Fill(p, &req.Inputs[len(req.Inputs)-1].Tensor, m.name, true); err != nil {
		return x.wrongMember(m, port)
	}
	return nil
}

func (x *exchange) wrongMember(m *extra, port *infer.Port) error {
	return invalid(m.name, "'%s' has a value that is no %s, which is what the input of model '%s' has", m.name, port.DType, x.model.name)
}

// fit returns the shape of n elements for one row. The last variable dimension takes what the others leave.
func (x *exchange) fit(port *infer.Port, n int64) (tensor.Shape, bool) {
	shape, free, fixed := port.Shape, -1, int64(1)
	for i, d := range shape.Dims() {
		switch {
		case i == 0 && x.model.desc.MaxBatch > 0:
			shape.SetDim(i, 1)
		case d < 0:
			shape.SetDim(i, 1)
			free = i
		default:
			fixed *= d
		}
	}
	if free >= 0 && fixed > 0 && n%fixed == 0 {
		shape.SetDim(free, n/fixed)
		return shape, true
	}
	return shape, n == fixed
}

// addParam adds a parameter with the value of a member. What a client sends to say nothing, such as an empty list, adds none.
func (x *exchange) addParam(p *jsonwire.Parser, req *infer.Request, m *extra) (err error) {
	to := infer.Param{Key: m.name}
	switch p.Peek() {
	case '"':
		var s []byte
		s, err = p.Str()
		to.Kind, to.String = infer.ParamString, string(s)
	case 't', 'f':
		to.Kind = infer.ParamBool
		to.Bool, err = p.Bool(m.name)
	case '{', '[':
		empty := true
		if p.Peek() == '{' {
			err = p.Members(func([]byte) error { empty = false; return p.Skip() })
		} else {
			err = p.Elements(func() error { empty = false; return p.Skip() })
		}
		if err == nil && !empty {
			err = invalid(m.name, "'%s' is a list or an object, expected a string, a number or a boolean: model '%s' has no input of this name", m.name, x.model.name)
		}
		return err
	default:
		var n jsonwire.Number
		n, err = p.Number()
		var whole bool
		if to.Int, whole = n.Signed(); whole {
			to.Kind = infer.ParamInt
		} else {
			to.Kind, to.Double = infer.ParamDouble, n.Float()
		}
	}
	if err == nil {
		req.Params = append(req.Params, to)
	}
	return err
}
