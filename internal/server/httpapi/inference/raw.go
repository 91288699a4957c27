package inference

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// decodeRaw makes the body, which is in x.body, the model's only input.
func (x *exchange) decodeRaw() error {
	x.wanted.binary = true
	in, err := x.rawInput()
	if err != nil {
		return err
	}
	return x.setRaw(&in, x.body)
}

// rawInput returns the model's only input with the type and shape of the configuration.
func (x *exchange) rawInput() (in input, err error) {
	cfg, err := x.srv.Catalog.Config(x.req.Model, x.req.Version)
	if err != nil {
		return in, err
	}
	if n := len(cfg.GetInput()); n != 1 {
		return in, status.Errorf(status.InvalidArg,
			"%sRaw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration",
			infer.IDPrefix(""), n, x.req.Model)
	}
	c := cfg.GetInput()[0]
	in.name, in.dtype, in.shape = c.GetName(), tensor.DType(c.GetDataType()), tensor.Of(c.GetDims()...)
	if cfg.GetMaxBatchSize() > 0 {
		in.shape = in.shape.Prepend(1)
	}
	return in, nil
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
	t, err := x.alloc(in, size)
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
