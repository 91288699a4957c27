package remote

import (
	"strings"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/wire"
)

// response is a ModelInferResponse, or a ModelStreamInferResponse if stream is set, in the transport's buffers.
type response struct {
	m      *model
	stream bool

	data    mem.BufferSlice // a reference that free releases
	cursor  wire.Cursor
	outputs []farOutput
	raw     []wire.Span
	params  infer.Params
	failure []byte // error_message of a stream
	final   bool   // triton_final_response
}

// farOutput is an InferOutputTensor.
type farOutput struct {
	name, dtype []byte
	dims        []int64
	contents    []byte
	typed       bool // has contents
}

// maxListed bounds each list of a response.
const maxListed = 1 << 16

// keep retains the transport's buffers.
func (r *response) keep(data mem.BufferSlice) {
	r.free()
	data.Ref()
	r.data = data
}

// free releases the transport's buffers and what refers to them.
func (r *response) free() {
	r.data.Free()
	r.data = nil
	r.cursor.Reset()
	clear(r.outputs)
	r.outputs, r.raw, r.params, r.failure, r.final = r.outputs[:0], r.raw[:0], nil, nil, false
}

// scan finds the fields of the message.
func (r *response) scan() error {
	c := &r.cursor
	c.Start(r.data)
	if !r.stream {
		return r.message(r.data.Len())
	}
	for !c.Done() {
		num, typ, err := c.Tag()
		switch {
		case err != nil:
		case num == 1 && typ == protowire.BytesType:
			var s wire.Span
			if s, err = c.Span(); err == nil {
				r.failure = append([]byte(nil), c.Bytes(s)...)
			}
		case num == 2 && typ == protowire.BytesType:
			var end int
			if end, err = c.Enter(); err == nil {
				err = r.message(end)
			}
		default:
			err = c.Skip(num, typ)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// message reads the fields of a ModelInferResponse that ends at a position.
func (r *response) message(end int) error {
	c := &r.cursor
	for c.Pos() < end {
		num, typ, err := c.Tag()
		if err != nil {
			return err
		}
		if typ != protowire.BytesType || num < 4 || num > 6 {
			err = c.Skip(num, typ)
		} else {
			err = r.field(num)
		}
		if err != nil {
			return err
		}
	}
	if c.Pos() != end {
		return wire.ErrMalformed
	}
	return nil
}

// field reads one parameter, output or raw content.
func (r *response) field(num protowire.Number) error {
	s, err := r.cursor.Span()
	if err != nil {
		return err
	}
	if len(r.outputs) > maxListed || len(r.raw) > maxListed || len(r.params) > maxListed {
		return wire.ErrMalformed
	}
	switch num {
	case 4:
		return r.param(r.cursor.Bytes(s))
	case 5:
		var o farOutput
		if err := o.parse(r.cursor.Bytes(s)); err != nil {
			return err
		}
		r.outputs = append(r.outputs, o)
	case 6:
		r.raw = append(r.raw, s)
	}
	return nil
}

// param reads a parameter. Those that the protocol reserves concern this hop only.
func (r *response) param(b []byte) error {
	var p wire.Param
	if err := p.Parse(b); err != nil || !p.Set {
		return err
	}
	key := string(p.Name)
	switch {
	case key == "triton_final_response":
		r.final = p.Kind == infer.ParamBool && p.Bool
	case infer.ReservedParam(key), key == "sequence_id", key == "sequence_start", key == "sequence_end": // echoed
	default:
		to := p.Param
		to.Key, to.String = key, string(p.Text)
		r.params = append(r.params, to)
	}
	return nil
}

func (o *farOutput) parse(b []byte) error {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Is(1, protowire.BytesType):
			o.name = f.Text()
		case f.Is(2, protowire.BytesType):
			o.dtype = f.Text()
		case f.Is(3, protowire.BytesType):
			list := wire.Fields{Rest: f.Bytes()}
			for len(list.Rest) > 0 && list.Err == nil {
				o.dims = append(o.dims, int64(list.Varint()))
			}
			if list.Err != nil {
				return list.Err
			}
		case f.Is(3, protowire.VarintType):
			o.dims = append(o.dims, int64(f.Varint()))
		case f.Is(5, protowire.BytesType):
			part := f.Bytes()
			if o.typed {
				part = append(append([]byte(nil), o.contents...), part...)
			}
			o.contents, o.typed = part, true
		default:
			f.Skip()
		}
		if len(o.dims) > maxDims {
			return wire.ErrMalformed
		}
	}
	return f.Err
}

// tensors copies the outputs, once, into memory of the allocator: by position in the signature, those that the response lacks
// are absent. rows is the number of rows of the request. On an error it releases what it allocated.
func (r *response) tensors(a tensor.Allocator, rows int, out []tensor.Tensor) (err error) {
	defer func() {
		if err != nil {
			tensor.ReleaseAll(out)
		}
	}()
	sig := r.m.Sig
	if len(r.raw) > 0 && len(r.raw) != len(r.outputs) {
		return r.bad("has %d outputs and %d raw contents, expected one for each", len(r.outputs), len(r.raw))
	}
	known := len(r.outputs) == 0
	for i := range r.outputs {
		o := &r.outputs[i]
		at := sig.Output(string(o.name))
		if at < 0 {
			continue // not requested
		}
		known = true
		if out[at].Present() {
			return r.bad("has output '%s' twice, expected once", o.name)
		}
		t, err := r.shape(o, &sig.Outputs[at], rows)
		if err != nil {
			return err
		}
		if len(r.raw) > 0 {
			err = r.rawTensor(a, o, &t, r.raw[i])
		} else {
			err = r.typedTensor(a, o, &t)
		}
		if err != nil {
			return err
		}
		out[at] = t
	}
	if !known {
		return r.bad("has output '%s', expected %s as when model '%s' was loaded", r.outputs[0].name, strings.Join(r.m.names, ", "), sig.Model)
	}
	return nil
}

// bad returns the error of a response that does not fit. The far server may have another model than the one that was loaded: it is compared again.
func (r *response) bad(format string, args ...any) error {
	r.m.doubt()
	return status.Errorf(status.Internal, "unexpected response of "+r.m.set.where(nil)+": it "+format, args...)
}

// shape returns the tensor of an output without its memory. Type and shape must be those of the signature.
func (r *response) shape(o *farOutput, p *config.Port, rows int) (tensor.Tensor, error) {
	t := tensor.Tensor{DType: tensor.ParseDType(string(o.dtype)), Shape: tensor.Of(o.dims...)}
	batch := r.m.Sig.MaxBatch
	if t.DType != p.DType {
		return t, r.bad("has output '%s' of data type '%s', expected '%s' as when model '%s' was loaded", p.Name, o.dtype, p.DType, r.m.Sig.Model)
	}
	if t.Shape.Elements() < 0 || !p.Accepts(&t.Shape, batch) || batch > 0 && t.Shape.Dim(0) != int64(rows) {
		return t, r.bad("has output '%s' of shape %s for %d rows, expected %s as when model '%s' was loaded", p.Name, t.Shape, rows, p.FullDims(batch), r.m.Sig.Model)
	}
	return t, nil
}

// rawTensor sets the memory of a tensor to a copy of raw contents.
func (r *response) rawTensor(a tensor.Allocator, o *farOutput, t *tensor.Tensor, s wire.Span) error {
	if o.typed {
		return r.bad("has raw and typed contents for output '%s', expected one of them", o.name)
	}
	if n := t.Shape.Elements(); t.DType != tensor.Bytes && (n > int64(s.N) || n*int64(t.DType.Size()) != int64(s.N)) {
		return r.bad("has %d bytes for output '%s', expected those of %s %s", s.N, o.name, t.DType, t.Shape)
	}
	if err := alloc(a, t, s.N); err != nil {
		return err
	}
	r.cursor.Copy(t.Bytes(), s)
	return r.checkBytes(o, t)
}

// typedTensor sets the memory of a tensor to its typed contents.
func (r *response) typedTensor(a tensor.Allocator, o *farOutput, t *tensor.Tensor) error {
	c, err := wire.CountContents(o.contents)
	if err != nil {
		return r.bad("has malformed contents for output '%s'", o.name)
	}
	used, n := wire.FieldOf[t.DType], 0
	for num := range c.N {
		if n += c.N[num]; c.N[num] > 0 && num != int(used) {
			return r.bad("has contents of another type for output '%s' of %s", o.name, t.DType)
		}
	}
	if int64(n) != t.Shape.Elements() {
		return r.bad("has %d elements for output '%s', expected those of shape %s", n, o.name, t.Shape)
	}
	size := n * t.DType.Size()
	if t.DType == tensor.Bytes {
		size = c.Bytes
	}
	if err := alloc(a, t, size); err != nil {
		return err
	}
	if size > 0 {
		wire.FillContents(o.contents, t)
	}
	return nil
}

func alloc(a tensor.Allocator, t *tensor.Tensor, n int) (err error) {
	t.Buf, err = a.Alloc(n)
	t.Len = n
	return err
}

// checkBytes verifies the elements of a BYTES tensor, and releases one that is malformed.
func (r *response) checkBytes(o *farOutput, t *tensor.Tensor) error {
	if t.DType != tensor.Bytes {
		return nil
	}
	if err := tensor.CheckBytes(t.Bytes(), t.Shape.Elements()); err != nil {
		t.Release()
		return r.bad("has malformed contents for output '%s': %v", o.name, err)
	}
	return nil
}
