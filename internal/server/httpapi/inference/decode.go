package inference

import (
	"errors"
	"io"
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// decode reads the body into x.req. The body is JSON followed by the binary tensors; the header has the length of the JSON, which
// is all of the body without the header. A body that is empty or has no JSON is the model's only input in raw bytes.
func (x *exchange) decode(h http.Header) error {
	n, err := transport.JSONSize(h, x.in.Left())
	x.parsing = err == nil && !x.in.Compressed()
	switch {
	case err != nil:
		return err
	case n == 0:
		x.body, err = x.in.ReadRest(x.body[:0])
	case n > 0:
		x.body, err = x.in.ReadHead(x.body[:0], n)
	default:
		x.body, err = x.in.ReadJSON(x.body[:0])
	}
	if err != nil {
		return err
	}
	x.parsing = true
	if n == 0 || len(x.body) == 0 {
		return x.decodeRaw()
	}
	if err := x.parse(x.body); err != nil {
		return err
	}
	return x.readTensors()
}

// readTensors reads the tensors that follow the JSON or are in shared memory, and checks all inputs.
func (x *exchange) readTensors() (err error) {
	for i := range x.inputs {
		switch in := &x.inputs[i]; {
		case in.have.has(hasBinary):
			err = x.readBinary(in, &x.req.Inputs[i])
		case in.have.has(hasRegion):
			err = x.readShared(in, &x.req.Inputs[i])
		}
		if err != nil {
			return err
		}
	}
	switch end, err := x.in.AtEnd(); {
	case err != nil:
		return err
	case !end:
		return status.Errorf(status.InvalidArg, "unexpected additional input data for model '%s'", x.req.Model)
	}
	return x.checkInputs()
}

func (x *exchange) checkInputs() error {
	if err := x.req.CheckNames(); err != nil {
		return err
	}
	return x.req.CheckInputs()
}

// readBinary reads one tensor from the body.
func (x *exchange) readBinary(in *input, to *infer.Named) (err error) {
	if left := x.in.Left(); left >= 0 && in.size > left {
		return x.tooShort(in, in.size-left)
	}
	want, err := infer.ShapeSize(in.name, in.dtype, in.shape)
	if err != nil {
		return err
	}
	if want >= 0 && want != in.size {
		return x.req.SizeError(in.name, want, in.size)
	}
	if err := x.in.CheckSize(in.size); err != nil {
		return err
	}
	if to.Tensor, err = x.alloc(in, int(in.size), int(in.size)); err != nil {
		return err
	}
	n, err := x.in.ReadFull(to.Tensor.Bytes())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return x.tooShort(in, in.size-int64(n))
	}
	return err
}

func (x *exchange) tooShort(in *input, by int64) error {
	return status.Errorf(status.InvalidArg, "unexpected size for input '%s', expecting %d additional bytes for model '%s'",
		in.name, by, x.req.Model)
}

// alloc returns a tensor of size bytes with the input's type and shape. It charges those bytes that are not yet charged.
func (x *exchange) alloc(in *input, size, charged int) (tensor.Tensor, error) {
	if err := x.in.Charge.Acquire(int64(size - charged)); err != nil {
		return tensor.Tensor{}, err
	}
	b, err := x.srv.Alloc.Alloc(size)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return tensor.Tensor{DType: in.dtype, Shape: in.shape, Buf: b, Len: size}, nil
}

// decodeRaw makes the body, which is in x.body, the model's only input, with the type and shape of the configuration.
func (x *exchange) decodeRaw() error {
	x.wanted.binary = true
	cfg, err := x.srv.Catalog.Config(x.req.Model, x.req.Version)
	if err != nil {
		return err
	}
	if n := len(cfg.GetInput()); n != 1 {
		return status.Errorf(status.InvalidArg,
			"%sRaw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration",
			infer.IDPrefix(""), n, x.req.Model)
	}
	c := cfg.GetInput()[0]
	in := input{name: c.GetName(), dtype: tensor.DType(c.GetDataType()), shape: tensor.Of(c.GetDims()...)}
	if cfg.GetMaxBatchSize() > 0 {
		in.shape = in.shape.Prepend(1)
	}
	return x.setRaw(&in, x.body)
}

// setRaw adds the raw bytes as an input and derives its shape from their number. For BYTES they are one element.
func (x *exchange) setRaw(in *input, raw []byte) (err error) {
	elements := int64(1)
	size := len(raw)
	if in.dtype == tensor.Bytes {
		size = tensor.EncodedLen(size)
	} else if n := in.dtype.Size(); n > 0 {
		elements = int64(size / n)
	}
	if err := in.deduceShape(elements); err != nil {
		return err
	}
	t, err := x.alloc(in, size, 0)
	if err != nil {
		return err
	}
	if in.dtype == tensor.Bytes {
		tensor.AppendBytes(t.Bytes()[:0], raw)
	} else {
		copy(t.Bytes(), raw)
	}
	x.req.Inputs = append(x.req.Inputs, infer.Named{Name: in.name, Tensor: t})
	return x.req.CheckInput(&x.req.Inputs[0])
}

// deduceShape replaces the variable dimension of the shape, of which there may be one. A BYTES input must have a fixed shape of
// one element. For example, 24 elements of [2,-1] have the shape [2,12].
func (in *input) deduceShape(elements int64) error {
	axis, rest := -1, int64(1)
	for i, d := range in.shape.Dims() {
		switch {
		case d >= 0:
			rest *= max(d, 1)
		case axis >= 0:
			return status.Errorf(status.InvalidArg,
				"%sThe shape of the raw input '%s' can not be deduced because there are more than one variable-sized dimension",
				infer.IDPrefix(""), in.name)
		default:
			axis = i
		}
	}
	if in.dtype == tensor.Bytes && (axis >= 0 || rest != 1) {
		return status.Errorf(status.InvalidArg, "%sFor BYTE datatype raw input '%s', the model must have input shape [1], got %s",
			infer.IDPrefix(""), in.name, in.shape)
	}
	if axis >= 0 {
		in.shape.SetDim(axis, elements/max(rest, 1))
	}
	return nil
}

// parse reads the request's JSON. A document with both an error in its meaning and one in its syntax is rejected for its syntax,
// as by Triton, which parses the whole document first.
func (x *exchange) parse(doc []byte) error {
	x.p.Begin(doc)
	err := x.readRequest()
	if err == nil {
		return nil
	}
	if syntax := x.p.Validate(doc); syntax != nil {
		return syntax
	}
	return err
}

func (x *exchange) readRequest() error {
	if err := x.p.Start(); err != nil {
		return err
	}
	if x.p.Peek() != '{' {
		return jsonwire.Missing("inputs")
	}
	var seen field
	if err := x.p.Members(func(name []byte) error { return x.readMember(name, &seen) }); err != nil {
		return err
	}
	if err := x.p.End(); err != nil {
		return err
	}
	if !seen.has(hasInputs) {
		return jsonwire.Missing("inputs")
	}
	return nil
}

func (x *exchange) readMember(name []byte, seen *field) error {
	switch {
	case string(name) == "inputs" && seen.first(hasInputs):
		return x.readList("inputs", x.readInput)
	case string(name) == "outputs" && seen.first(hasOutputs):
		return x.readList("outputs", x.readOutput)
	case string(name) == "id" && seen.first(hasID):
		id, err := x.p.Text("id")
		x.req.ID = string(id)
		return err
	case string(name) == "parameters" && seen.first(hasParameters):
		return x.readParameters()
	}
	return x.p.Skip()
}

// readList reads an array, each element with read.
func (x *exchange) readList(name string, read func() error) error {
	if x.p.Peek() != '[' {
		return jsonwire.Unable(name, jsonwire.NotArray)
	}
	n := 0
	return x.p.Elements(func() error {
		n++
		if err := infer.TooMany(name, n); err != nil {
			return err
		}
		return read()
	})
}

// readParameters reads the request's parameters.
func (x *exchange) readParameters() error {
	if x.p.Peek() != '{' {
		return status.Errorf(status.Internal, "failed to get request params.: %s", jsonwire.NoMembers)
	}
	var seen field
	return x.p.Members(func(name []byte) error { return x.readParameter(name, &seen) })
}

func (x *exchange) readParameter(name []byte, seen *field) (err error) {
	m := &x.req.Meta
	switch {
	case string(name) == "sequence_id" && seen.first(paramID):
		return x.readSequenceID()
	case string(name) == "sequence_start" && seen.first(paramStart):
		m.Sequence.Start, err = x.p.Bool("sequence_start")
	case string(name) == "sequence_end" && seen.first(paramEnd):
		m.Sequence.End, err = x.p.Bool("sequence_end")
	case string(name) == "priority" && seen.first(paramPriority):
		m.Priority, err = x.p.Unsigned("priority")
	case string(name) == "timeout" && seen.first(paramTimeout):
		m.Timeout, err = x.p.Unsigned("timeout")
	case string(name) == "binary_data_output" && seen.first(paramBinary):
		x.wanted.binary, err = x.p.Bool("binary_data_output")
	default:
		return x.readModelParameter(x.srv.names.Get(name))
	}
	return err
}

// readSequenceID reads a sequence's id, a number or a string.
func (x *exchange) readSequenceID() error {
	s := &x.req.Sequence
	if x.p.Peek() == '"' {
		name, err := x.p.Str()
		s.Name = string(name)
		return err
	}
	n, err := x.p.Number()
	u, ok := n.Unsigned()
	if err != nil || !ok {
		return jsonwire.Unable("sequence_id", jsonwire.NotString)
	}
	s.ID = u
	return nil
}

// readModelParameter reads a parameter for the model.
func (x *exchange) readModelParameter(name string) error {
	switch name {
	case "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output":
		return x.p.Skip() // repeated: the first counts
	}
	if infer.ReservedParam(name) {
		return status.Errorf(status.InvalidArg,
			"parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
	}
	return x.readCustomParameter(name)
}

// readCustomParameter reads a value of any scalar type and adds it to the request's parameters.
func (x *exchange) readCustomParameter(name string) (err error) {
	to := infer.Param{Key: name}
	switch x.p.Peek() {
	case '"':
		var s []byte
		s, err = x.p.Str()
		to.Kind, to.String = infer.ParamString, string(s)
	case 't', 'f':
		to.Kind = infer.ParamBool
		to.Bool, err = x.p.Bool(name)
	case '{', '[', 'n':
		err = status.Errorf(status.InvalidArg,
			"parameter '%s' has invalid type. It should be either 'int', 'bool', or 'string'.", name)
	default:
		var n jsonwire.Number
		n, err = x.p.Number()
		setNumber(&to, &n)
	}
	if err == nil {
		x.req.Params = append(x.req.Params, to)
		err = infer.TooMany("parameters", len(x.req.Params))
	}
	return err
}

// setNumber sets the first of int64, uint64 and double that holds n.
func setNumber(to *infer.Param, n *jsonwire.Number) {
	var ok bool
	if to.Int, ok = n.Signed(); ok {
		to.Kind = infer.ParamInt
		return
	}
	to.Int = 0
	if to.Uint, ok = n.Unsigned(); ok {
		to.Kind = infer.ParamUint
		return
	}
	to.Uint, to.Kind, to.Double = 0, infer.ParamDouble, n.Float()
}
