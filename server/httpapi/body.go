package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/tensor"
)

const jsonLength = "Inference-Header-Content-Length"

// firstRead bounds what a claimed length may cost before its bytes arrive.
const firstRead = 64 << 10

// body reads a request's body and knows how much of it is left.
type body struct {
	r    io.Reader
	left int64 // -1 when only the end will tell
	read int64
	max  int64
}

// full reads exactly len(b) bytes; n tells how many there were.
func (b *body) full(dst []byte) (n int, err error) {
	n, err = io.ReadFull(b.r, dst)
	b.count(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) count(n int) {
	b.read += int64(n)
	if b.left >= 0 {
		b.left -= int64(n)
	}
}

// upTo appends at most n further bytes to dst, less only where the body ends.
func (b *body) upTo(dst []byte, n int64) ([]byte, error) {
	for n > 0 {
		if len(dst) == cap(dst) {
			dst = grow(dst, n)
		}
		part := dst[len(dst):min(int64(cap(dst)), int64(len(dst))+n)]
		got, err := b.full(part)
		dst = dst[:len(dst)+got]
		n -= int64(got)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// grow makes room for up to n bytes, little by little: memory follows what has arrived.
func grow(b []byte, n int64) []byte {
	more := min(n, int64(max(firstRead, len(b))))
	grown := make([]byte, len(b), int64(len(b))+more)
	copy(grown, b)
	return grown
}

// atEnd reports whether nothing is left.
func (b *body) atEnd() bool {
	if b.left >= 0 {
		return b.left == 0
	}
	var one [1]byte
	n, _ := b.full(one[:])
	return n == 0
}

func (b *body) tooLarge(size int64) error {
	return status.Errorf(status.InvalidArg, "request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. "+
		"Use --http-max-input-size to increase the limit.", size, b.max)
}

// The values of lengthHeader when there is no usable length.
const (
	noLength  = -1
	badLength = -2
)

// lengthHeader returns the length of the body's JSON as the client gave it.
func lengthHeader(h http.Header, total int64) (int64, error) {
	v := h[jsonLength]
	if len(v) == 0 {
		return noLength, nil
	}
	n, err := strconv.ParseInt(v[0], 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, status.Errorf(status.InvalidArg,
			"Unable to parse %s, got: %s, value is out of range [ -2147483648, 2147483647 ]", jsonLength, v[0])
	case err != nil:
		return badLength, nil
	case n < 0 || total >= 0 && n > total:
		return 0, outOfRange(total, v[0])
	}
	return n, nil
}

func outOfRange(total int64, got string) error {
	return status.Errorf(status.InvalidArg, "inference header size should be in range (0, %d), got: %s", max(total, 0), got)
}

// decode reads a request from r into x.req.
func (x *exchange) decode(r *http.Request) error {
	b := body{r: r.Body, left: r.ContentLength, max: x.srv.maxInput}
	if b.left > b.max {
		return b.tooLarge(b.left)
	}
	n, err := lengthHeader(r.Header, b.left)
	switch {
	case err != nil:
		return err
	case n == 0:
		return x.decodeRaw(&b, nil)
	case n > 0:
		err = x.readJSON(&b, n)
	default:
		if err = x.readAll(&b); err == nil && !looksJSON(x.body) {
			return x.decodeRaw(&b, x.body)
		}
		if err == nil && n == badLength {
			err = status.Errorf(status.InvalidArg, "Unable to parse %s, got: %s", jsonLength, r.Header[jsonLength][0])
		}
	}
	if err != nil {
		return err
	}
	if err := x.parse(x.body); err != nil {
		return err
	}
	return x.binaryInputs(&b)
}

// readJSON reads the body's first n bytes.
func (x *exchange) readJSON(b *body, n int64) (err error) {
	if n > b.max {
		return b.tooLarge(n)
	}
	x.body, err = b.upTo(x.body[:0], n)
	if err == nil && int64(len(x.body)) < n {
		return outOfRange(b.read, strconv.FormatInt(n, 10))
	}
	return err
}

// readAll reads a body without a length for its JSON.
func (x *exchange) readAll(b *body) (err error) {
	n := b.left
	if n < 0 {
		n = b.max + 1
	}
	if x.body, err = b.upTo(x.body[:0], n); err != nil {
		return err
	}
	switch {
	case int64(len(x.body)) > b.max:
		return b.tooLarge(int64(len(x.body)))
	case b.left > 0:
		return status.Errorf(status.InvalidArg, "unexpected size for request JSON, expecting %d more bytes", b.left)
	}
	return nil
}

// looksJSON tells a request's JSON from the raw bytes of a tensor.
func looksJSON(b []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{"))
}

// binaryInputs reads the tensors that follow the JSON, and verifies that every input's size fits its shape.
func (x *exchange) binaryInputs(b *body) error {
	for i := range x.specs {
		if in := &x.specs[i]; in.have.has(hasBinary) {
			if err := x.binaryInput(b, in, &x.req.Inputs[i]); err != nil {
				return err
			}
		}
	}
	if !b.atEnd() {
		return status.Errorf(status.InvalidArg, "unexpected additional input data for model '%s'", x.req.Model)
	}
	if err := x.req.CheckNames(); err != nil {
		return err
	}
	for i := range x.req.Inputs {
		if err := x.req.CheckInput(&x.req.Inputs[i]); err != nil {
			return err
		}
	}
	return nil
}

// binaryInput reads one tensor from the body into memory of its own.
func (x *exchange) binaryInput(b *body, in *spec, to *infer.Named) (err error) {
	if b.left >= 0 && in.size > b.left {
		return x.tooShort(in, in.size-b.left)
	}
	want, err := infer.ShapeSize(in.name, in.dtype, in.shape)
	if err != nil {
		return err
	}
	if want >= 0 && want != in.size {
		return x.req.SizeError(in.name, want, in.size)
	}
	if b.read+in.size > b.max || b.read+in.size < 0 {
		return b.tooLarge(b.read + in.size)
	}
	if to.Tensor, err = x.alloc(in, int(in.size)); err != nil {
		return err
	}
	n, err := b.full(to.Tensor.Bytes())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return x.tooShort(in, in.size-int64(n))
	}
	return err
}

func (x *exchange) tooShort(in *spec, by int64) error {
	return status.Errorf(status.InvalidArg, "unexpected size for input '%s', expecting %d additional bytes for model '%s'",
		in.name, by, x.req.Model)
}

// decodeRaw takes a whole body as the only input of a model; head is what has been read of it.
func (x *exchange) decodeRaw(b *body, head []byte) (err error) {
	x.binary = true
	in, err := x.rawInput()
	if err != nil {
		return err
	}
	if head == nil {
		n := b.left
		if n < 0 {
			n = b.max + 1
		}
		if x.body, err = b.upTo(x.body[:0], n); err != nil {
			return err
		}
		head = x.body
	}
	if size := int64(len(head)); size > b.max {
		return status.Errorf(status.InvalidArg, "Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value "+
			"of %d bytes. Use --http-max-input-size to increase the limit.", size, b.max)
	}
	return x.rawTensor(&in, head)
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
	if err := x.deduce(in, elements); err != nil {
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

// deduce replaces the one variable dimension of a raw input's shape.
func (x *exchange) deduce(in *spec, elements int64) error {
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
	if in.dtype == tensor.Bytes && rest != 1 {
		return status.Errorf(status.InvalidArg, "%sFor BYTE datatype raw input '%s', the model must have input shape [1], got %s",
			infer.IDPrefix(""), in.name, in.shape)
	}
	if axis >= 0 {
		in.shape.SetDim(axis, elements/max(rest, 1))
	}
	return nil
}
