package httpapi

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

const wrongShape = "Shape does not match true shape of 'data' field"

// data reads an input's JSON data, flat or nested, straight into a new tensor.
func (x *exchange) data(in *spec) error {
	if x.p.peek() != '[' {
		return unable("data", notArray)
	}
	size, err := infer.ShapeSize(in.name, in.dtype, in.shape)
	if err != nil {
		return err
	}
	if in.dtype == tensor.FP16 || in.dtype == tensor.BF16 {
		return status.Errorf(status.InvalidArg,
			"receiving %s data via JSON is not supported. Please use the binary data format for input %s", in.dtype, in.name)
	}
	if in.shape.Elements() == 0 {
		if err := x.p.skip(); err != nil {
			return err
		}
		in.tensor, err = x.alloc(in, 0)
		return err
	}
	if in.dtype == tensor.Bytes {
		return x.stringData(in)
	}
	if size > x.srv.maxInput {
		return x.tooLarge(in, size)
	}
	// Every element takes a digit and a comma at least: a shape that the rest of
	// the document cannot fill must not cost memory.
	if in.shape.Elements() > int64(len(x.p.buf)-x.p.pos) {
		return unable("data", wrongShape)
	}
	if in.tensor, err = x.alloc(in, int(size)); err != nil {
		return err
	}
	w := walk{p: &x.p}
	if err := w.fill(&in.tensor); err != nil {
		in.tensor.Release()
		return err
	}
	return nil
}

func (x *exchange) tooLarge(in *spec, size int64) error {
	return status.Errorf(status.InvalidArg, "JSON input '%s' has a byte_size (%d bytes) that exceeds the maximum allowed value "+
		"of %d bytes. Use --http-max-input-size to increase the limit.", in.name, size, x.srv.maxInput)
}

// alloc charges and returns a tensor of an input's type and shape with size bytes.
func (x *exchange) alloc(in *spec, size int) (tensor.Tensor, error) {
	if err := x.charge.Take(int64(size)); err != nil {
		return tensor.Tensor{}, err
	}
	return x.make(in, size)
}

// make is alloc of bytes that are charged already.
func (x *exchange) make(in *spec, size int) (tensor.Tensor, error) {
	b, err := x.srv.alloc.Alloc(size)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return tensor.Tensor{DType: in.dtype, Shape: in.shape, Buf: b, Len: size}, nil
}

// stringData reads BYTES data: once for its size, once into the tensor. How many
// elements there must be is checked with the other inputs.
func (x *exchange) stringData(in *spec) error {
	start, depth := x.p.pos, x.p.depth
	size, err := x.stringSize()
	if err != nil {
		return err
	}
	if size > x.srv.maxInput {
		return x.tooLarge(in, size)
	}
	if in.tensor, err = x.alloc(in, int(size)); err != nil {
		return err
	}
	x.p.pos, x.p.depth = start, depth
	w, dst := walk{p: &x.p}, in.tensor.Bytes()[:0]
	for {
		ok, err := w.next()
		if !ok || err != nil {
			return err
		}
		s, err := x.p.str()
		if err != nil {
			return err
		}
		dst = tensor.AppendBytes(dst, s)
	}
}

// stringSize returns the bytes that the strings at the cursor take in a tensor.
func (x *exchange) stringSize() (int64, error) {
	w, size := walk{p: &x.p}, int64(0)
	for {
		ok, err := w.next()
		if !ok || err != nil {
			return size, err
		}
		if x.p.peek() != '"' {
			return 0, status.Errorf(status.Internal, "Unable to parse JSON bytes array: %s", notString)
		}
		s, err := x.p.str()
		if err != nil {
			return 0, err
		}
		size += int64(tensor.EncodedLen(len(s)))
	}
}

// walk visits the values in nested arrays from left to right.
type walk struct {
	p     *parser
	base  int // the depth outside the outermost array
	begun bool
}

// next stops at the next value that is no array; false after the last.
//
// hot: one call per element of a JSON tensor.
func (w *walk) next() (bool, error) {
	p := w.p
	more, err := true, error(nil)
	if w.begun {
		more, err = p.more(']')
	} else {
		w.begun, w.base = true, p.depth
	}
	for err == nil {
		switch {
		case !more && p.depth == w.base:
			return false, nil
		case !more:
			more, err = p.more(']')
		case p.peek() == '[':
			more, err = p.enter(']')
		default:
			return true, nil
		}
	}
	return false, err
}

// fill reads exactly as many values as t has elements.
func (w *walk) fill(t *tensor.Tensor) error {
	switch t.DType {
	case tensor.Bool:
		return w.bools(t.Bytes())
	case tensor.Uint8:
		return unsignedInts(w, tensor.Slice[uint8](t))
	case tensor.Uint16:
		return unsignedInts(w, tensor.Slice[uint16](t))
	case tensor.Uint32:
		return unsignedInts(w, tensor.Slice[uint32](t))
	case tensor.Uint64:
		return unsignedInts(w, tensor.Slice[uint64](t))
	case tensor.Int8:
		return signedInts(w, tensor.Slice[int8](t))
	case tensor.Int16:
		return signedInts(w, tensor.Slice[int16](t))
	case tensor.Int32:
		return signedInts(w, tensor.Slice[int32](t))
	case tensor.Int64:
		return signedInts(w, tensor.Slice[int64](t))
	case tensor.FP32:
		return floats(w, tensor.Slice[float32](t))
	default:
		return floats(w, tensor.Slice[float64](t))
	}
}

// element stops at the value of element i of n, which must exist exactly when i < n.
func (w *walk) element(i, n int) error {
	ok, err := w.next()
	if err == nil && ok != (i < n) {
		return unable("data", wrongShape)
	}
	return err
}

// numeric reads the number at the cursor; any other value has the wrong type.
func (w *walk) numeric(wrong string) (number, error) {
	switch c := w.p.peek(); {
	case '0' <= c && c <= '9', c == '-', c == 'N', c == 'I':
		return w.p.number()
	default:
		return number{}, unable("data", wrong)
	}
}

func (w *walk) bools(dst []byte) error {
	for i := range dst {
		if err := w.element(i, len(dst)); err != nil {
			return err
		}
		word := "false"
		dst[i] = 0
		switch w.p.peek() {
		case 't':
			word, dst[i] = "true", 1
		case 'f':
		default:
			return unable("data", notBoolean)
		}
		if err := w.p.literal(word); err != nil {
			return err
		}
	}
	return w.element(len(dst), len(dst))
}

// signedInts keeps the low bits of a number too large for T, as Triton does.
func signedInts[T int8 | int16 | int32 | int64](w *walk, dst []T) error {
	for i := range dst {
		if err := w.element(i, len(dst)); err != nil {
			return err
		}
		n, err := w.numeric(notSigned)
		if err != nil {
			return err
		}
		v, ok := n.signed()
		if !ok {
			return unable("data", notSigned)
		}
		dst[i] = T(v)
	}
	return w.element(len(dst), len(dst))
}

// unsignedInts keeps the low bits of a number too large for T, as Triton does.
func unsignedInts[T uint8 | uint16 | uint32 | uint64](w *walk, dst []T) error {
	for i := range dst {
		if err := w.element(i, len(dst)); err != nil {
			return err
		}
		n, err := w.numeric(notUnsigned)
		if err != nil {
			return err
		}
		v, ok := n.unsigned()
		if !ok {
			return unable("data", notUnsigned)
		}
		dst[i] = T(v)
	}
	return w.element(len(dst), len(dst))
}

func floats[T float32 | float64](w *walk, dst []T) error {
	for i := range dst {
		if err := w.element(i, len(dst)); err != nil {
			return err
		}
		n, err := w.numeric(notNumber)
		if err != nil {
			return err
		}
		dst[i] = T(n.float())
	}
	return w.element(len(dst), len(dst))
}
