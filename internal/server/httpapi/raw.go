package httpapi

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// readRaw reads a body that is one tensor.
func (x *exchange) readRaw(b *body) (err error) {
	n := b.left
	if n < 0 {
		n = b.max + 1
	}
	if x.body, err = b.upTo(x.body[:0], n); err != nil {
		return err
	}
	if size := int64(len(x.body)); size > b.max {
		return b.tooLarge(size)
	}
	return nil
}

// decodeRaw makes the body that has been read the only input of the model.
func (x *exchange) decodeRaw() error {
	x.binary = true
	in, err := x.rawInput()
	if err != nil {
		return err
	}
	return x.rawTensor(&in, x.body)
}

// rawInput describes the model's only input as its configuration does.
func (x *exchange) rawInput() (in spec, err error) {
	cfg, err := x.srv.catalog.Config(x.req.Model, x.req.Version)
	if err != nil {
		return in, err
	}
	if n := len(cfg.GetInput()); n != 1 {
		return in, status.Errorf(status.InvalidArg, "%sRaw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration",
			infer.IDPrefix(""), n, x.req.Model)
	}
	c := cfg.GetInput()[0]
	in.name, in.dtype, in.shape = c.GetName(), tensor.DType(c.GetDataType()), tensor.Of(c.GetDims()...)
	if cfg.GetMaxBatchSize() > 0 {
		in.shape = in.shape.Prepend(1)
	}
	return in, nil
}

// rawTensor makes the raw bytes the request's input, and its shape from their number.
func (x *exchange) rawTensor(in *spec, raw []byte) (err error) {
	elements := int64(1)
	size := len(raw)
	if in.dtype == tensor.Bytes {
		size = tensor.EncodedLen(size)
	} else if n := in.dtype.Size(); n > 0 {
		elements = int64(size / n)
	}
	if err := in.deduce(elements); err != nil {
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

// deduce replaces the one variable dimension of a raw input's shape. BYTES are one element, which a shape must say by itself.
func (in *spec) deduce(elements int64) error {
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
