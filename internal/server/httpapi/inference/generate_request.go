package inference

import (
	"net/http"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
)

// decodeGenerate reads a generate request: a JSON object whose members are inputs, where the model has one of that name, or
// parameters. The object in its member "parameters" has the same meaning; "id" is the request's id. For example:
// {"text_input":"hi","max_tokens":20}.
func (x *exchange) decodeGenerate(w http.ResponseWriter, r *http.Request) (err error) {
	var ok bool
	if x.body, ok, err = x.in.ReadDocument(w, r, &x.p, x.body); err != nil {
		return err
	}
	if !ok {
		return x.p.EmptyError()
	}
	if err := x.readGenerateMembers(false); err != nil {
		return err
	}
	return x.checkInputs()
}

func (x *exchange) readGenerateMembers(nested bool) error {
	return x.p.Object(func(name []byte) error { return x.readGenerateMember(x.names.of(name), nested) })
}

func (x *exchange) readGenerateMember(name string, nested bool) error {
	if name == "parameters" && !nested {
		if x.p.Peek() != '{' {
			return status.Errorf(status.Internal, "Expected JSON object for keyword: 'parameters': %s", jsonwire.NotObject)
		}
		if err := x.readGenerateMembers(true); err != nil {
			return status.Prefixf(err, "Converting keyword: 'parameters': ")
		}
		return nil
	}
	for i := range x.desc.Inputs {
		if x.desc.Inputs[i].Name == name {
			return x.readGenerateInput(&x.desc.Inputs[i])
		}
	}
	if name == "id" && !nested {
		id, err := x.p.Text("id")
		x.req.ID = string(id)
		return err
	}
	return x.readGenerateParameter(name)
}

// readGenerateParameter reads a parameter of the sequence, or one for the model.
func (x *exchange) readGenerateParameter(name string) (err error) {
	switch s := &x.req.Sequence; name {
	case "sequence_id":
		return x.readSequenceID()
	case "sequence_start":
		s.Start, err = x.p.Bool(name)
	case "sequence_end":
		s.End, err = x.p.Bool(name)
	default:
		return x.readCustomParameter(name)
	}
	return err
}

// readGenerateInput reads a scalar or nested arrays into a tensor of the input's type and shape. It reads twice: for the size, and
// for the values.
func (x *exchange) readGenerateInput(port *infer.Port) error {
	in := input{name: port.Name, dtype: port.DType}
	if err := tensorjson.Readable(in.name, in.dtype); err != nil {
		return err
	}
	start := x.p.Mark()
	n, size, err := tensorjson.Measure(&x.p, in.dtype)
	if err != nil {
		return err
	}
	var ok bool
	if in.shape, ok = fitShape(port.Shape, n); !ok {
		return status.Errorf(status.InvalidArg, "The schema can not convert input '%s' to tensor with proper shape", in.name)
	}
	x.p.Reset(start)
	if err := x.fillInput(&in, size, true); err != nil {
		return err
	}
	x.req.Inputs = append(x.req.Inputs, infer.Named{Name: in.name, Tensor: in.tensor})
	return nil
}

// fitShape returns the shape of n elements: the innermost variable dimension takes what the fixed ones leave, and the other
// variable ones are 1. It returns false if no such shape exists. For example, 6 elements of [-1,3,-1] have the shape [1,3,2].
func fitShape(want tensor.Shape, n int64) (tensor.Shape, bool) {
	var few [8]int64
	dims := append(few[:0], want.Dims()...)
	if slices.Contains(dims, 0) { // variable dimensions are 1, and there are no elements
		for i, d := range dims {
			dims[i] = max(d, -d)
		}
		return tensor.Of(dims...), n == 0
	}
	for _, d := range dims {
		if d < 0 {
			continue
		}
		if n%d != 0 {
			return want, false
		}
		n /= d
	}
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] < 0 {
			dims[i], n = n, 1
		}
	}
	return tensor.Of(dims...), n == 1
}
