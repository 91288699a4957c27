package httpapi

import (
	"net/http"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// prompt reads a generate request: a JSON object whose members are inputs where the
// model has one of the name, and parameters otherwise. So are the members of its
// member "parameters"; "id" is the request's.
func (x *exchange) prompt(w http.ResponseWriter, r *http.Request, d *infer.Description) error {
	ok, err := x.readObject(w, r)
	if err != nil {
		return err
	}
	if !ok {
		return x.p.fail(msgEmpty, 0)
	}
	if err := x.promptMembers(d, false); err != nil {
		return err
	}
	if err := x.req.CheckNames(); err != nil {
		return err
	}
	return x.req.CheckInputs()
}

func (x *exchange) promptMembers(d *infer.Description, nested bool) error {
	if x.p.peek() != '{' {
		return status.Errorf(status.Internal, "%s", noMembers)
	}
	more, err := x.p.enter('}')
	for ; more && err == nil; more, err = x.p.more('}') {
		key, err := x.p.key()
		if err != nil {
			return err
		}
		if err := x.promptMember(d, x.names.of(key), nested); err != nil {
			return err
		}
	}
	return err
}

func (x *exchange) promptMember(d *infer.Description, key string, nested bool) error {
	if key == "parameters" && !nested {
		if x.p.peek() != '{' {
			return status.Errorf(status.Internal, "Expected JSON object for keyword: 'parameters': %s", notObject)
		}
		if err := x.promptMembers(d, true); err != nil {
			return status.Prefixf(err, "Converting keyword: 'parameters': ")
		}
		return nil
	}
	for i := range d.Inputs {
		if d.Inputs[i].Name == key {
			return x.promptInput(&d.Inputs[i])
		}
	}
	if key == "id" && !nested {
		id, err := x.text("id")
		x.req.ID = string(id)
		return err
	}
	return x.promptParameter(key)
}

// promptParameter reads a parameter: what names a sequence, or what only the model knows.
func (x *exchange) promptParameter(key string) (err error) {
	switch s := &x.req.Sequence; key {
	case "sequence_id":
		return x.sequenceID()
	case "sequence_start":
		s.Start, err = x.boolean(key)
	case "sequence_end":
		s.End, err = x.boolean(key)
	default:
		return x.customParameter(key)
	}
	return err
}

// promptInput reads a scalar, or arrays nested in any way, as the tensor that the
// model's input wants. It reads twice: for the size, and for the values.
func (x *exchange) promptInput(port *infer.Port) error {
	in := spec{name: port.Name, dtype: port.DType}
	if in.dtype == tensor.FP16 || in.dtype == tensor.BF16 {
		return noHalf(&in)
	}
	start, depth := x.p.pos, x.p.depth
	n, size, err := x.measure(&in)
	if err != nil {
		return err
	}
	var ok bool
	if in.shape, ok = fit(port.Shape, n); !ok {
		return status.Errorf(status.InvalidArg, "The schema can not convert input '%s' to tensor with proper shape", in.name)
	}
	if size > x.srv.maxInput {
		return x.tooLarge(&in, size)
	}
	if in.tensor, err = x.alloc(&in, int(size)); err != nil {
		return err
	}
	x.p.pos, x.p.depth = start, depth
	v := values{walk: walk{p: &x.p}}
	if err := v.fill(&in); err != nil {
		in.tensor.Release()
		return err
	}
	x.req.Inputs = append(x.req.Inputs, infer.Named{Name: in.name, Tensor: in.tensor})
	return nil
}

func noHalf(in *spec) error {
	return status.Errorf(status.InvalidArg,
		"receiving %s data via JSON is not supported. Please use the binary data format for input %s", in.dtype, in.name)
}

// measure counts the values at the cursor and the bytes they take in a tensor.
func (x *exchange) measure(in *spec) (n, size int64, err error) {
	v := values{walk: walk{p: &x.p}}
	for {
		ok, err := v.next()
		if !ok || err != nil {
			return n, size, err
		}
		n++
		if in.dtype != tensor.Bytes {
			size += int64(in.dtype.Size())
			err = x.p.skip()
		} else {
			var s []byte
			s, err = x.stringElement()
			size += int64(tensor.EncodedLen(len(s)))
		}
		if err != nil {
			return n, size, err
		}
	}
}

func (x *exchange) stringElement() ([]byte, error) {
	if x.p.peek() != '"' {
		return nil, status.Errorf(status.Internal, "Unable to parse JSON bytes array: %s", notString)
	}
	return x.p.str()
}

// fit gives n values a shape: fixed extents take their part, the innermost variable
// one takes the rest, and the other variable ones are 1.
func fit(want tensor.Shape, n int64) (tensor.Shape, bool) {
	var few [8]int64
	dims := append(few[:0], want.Dims()...)
	if slices.Contains(dims, 0) { // nothing fits, in any number of rows
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
