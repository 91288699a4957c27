package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// decode reads a request from b into x.req. All of a body is JSON unless its header says how long the JSON is. A body
// that is empty, or has no JSON by its header, is the raw bytes of the model's only input.
func (x *exchange) decode(b *body, h http.Header) error {
	n, err := lengthHeader(h, b.left)
	x.parsing = err == nil && !b.inflated
	switch {
	case err != nil:
		return err
	case n == 0:
		err = x.readRaw(b)
	case n > 0:
		err = x.readJSON(b, n)
	default:
		err = x.readAll(b)
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
	return x.tensors(b)
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

// tensors reads those that follow the JSON or are in shared memory, and verifies
// that every input's size fits its shape.
func (x *exchange) tensors(b *body) (err error) {
	for i := range x.specs {
		switch in := &x.specs[i]; {
		case in.have.has(hasBinary):
			err = x.binaryInput(b, in, &x.req.Inputs[i])
		case in.have.has(hasRegion):
			err = x.sharedInput(in, &x.req.Inputs[i])
		}
		if err != nil {
			return err
		}
	}
	switch end, err := b.atEnd(); {
	case err != nil:
		return err
	case !end:
		return status.Errorf(status.InvalidArg, "unexpected additional input data for model '%s'", x.req.Model)
	}
	if err := x.req.CheckNames(); err != nil {
		return err
	}
	return x.req.CheckInputs()
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
	if err = b.take(in.size); err != nil {
		return err
	}
	if to.Tensor, err = x.make(in, int(in.size)); err != nil {
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
