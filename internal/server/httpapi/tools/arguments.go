package tools

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
)

// reader turns the arguments of a call into the inputs of a request. A value is read twice: for its shape and size, and into the tensor.
type reader struct {
	*tool

	req    *infer.Request
	charge *infer.Charge
	alloc  tensor.Allocator
	limit  int64 // of bytes of a tensor
	p      jsonwire.Parser
}

// read reads all arguments, an object with a member for each input.
func (a *reader) read(doc json.RawMessage) error {
	if len(doc) == 0 || string(doc) == "null" {
		doc = []byte("{}")
	}
	if doc[0] != '{' {
		return status.Errorf(status.InvalidArg, "the arguments are %s, expected an object with %s", kind(doc[0]), a.names())
	}
	a.p.Begin(doc)
	err := a.p.Members(func(name []byte) error { return a.argument(string(name)) })
	if err != nil {
		return err
	}
	for i := range a.desc.Inputs {
		if in := &a.desc.Inputs[i]; !in.Optional && a.req.Input(in.Name) == nil {
			return status.Errorf(status.InvalidArg, "the argument '%s' is missing, expected %s", in.Name, a.expected(in))
		}
	}
	return a.req.CheckInputs()
}

// names lists the arguments of the tool.
func (a *reader) names() string {
	if len(a.desc.Inputs) == 0 {
		return "no members"
	}
	var list []string
	for i := range a.desc.Inputs {
		list = append(list, "'"+a.desc.Inputs[i].Name+"'")
	}
	return strings.Join(list, ", ")
}

func (a *reader) argument(name string) error {
	i := slices.IndexFunc(a.desc.Inputs, func(p infer.Port) bool { return p.Name == name })
	if i < 0 {
		return status.Errorf(status.InvalidArg, "there is no argument '%.200s', expected %s", name, a.names())
	}
	port := &a.desc.Inputs[i]
	if port.Optional {
		if null, err := a.p.Null(); null || err != nil {
			return err
		}
	}
	if a.req.Input(name) != nil {
		return status.Errorf(status.InvalidArg, "the argument '%s' is there twice, expected one", name)
	}
	v := value{reader: a, port: port, dims: a.dims(port), binary: a.Binary(name)}
	t, err := v.read()
	if err != nil {
		return err
	}
	a.req.Inputs = append(a.req.Inputs, infer.Named{Name: port.Name, Tensor: t})
	return nil
}

// kinds are the names of JSON values by their first bytes.
var kinds = map[byte]string{'"': "a string", '{': "an object", '[': "an array", 't': "true", 'f': "false", 'n': "null"}

func kind(first byte) string {
	if k := kinds[first]; k != "" {
		return k
	}
	return "a number"
}

// expected says what the value of an input must be.
func (a *reader) expected(p *infer.Port) string {
	dims := a.dims(p)
	one, many := elementNames(p.DType, a.Binary(p.Name))
	switch {
	case single(dims):
		return one
	case len(dims) == 1 && dims[0] < 0:
		return "an array of " + many
	default:
		shape := tensor.Of(dims...)
		return "arrays of " + many + " with the dimensions " + shape.String()
	}
}

func elementNames(d tensor.DType, encoded bool) (one, many string) {
	switch d {
	case tensor.Bytes:
		if encoded {
			return "a string in base64", "strings in base64"
		}
		return "a string", "strings"
	case tensor.Bool:
		return "true or false", "booleans"
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		return "a number", "numbers"
	default:
		return "an integer", "integers"
	}
}

// value reads the value of one argument.
type value struct {
	*reader

	port   *infer.Port
	dims   []int64 // as declared, -1 for any
	binary bool    // strings are in base64
	shape  []int64 // as found; -1 while it is not known
	size   int64   // of the tensor in bytes
}

func (v *value) read() (t tensor.Tensor, err error) {
	start := v.p.Mark()
	v.shape = slices.Repeat([]int64{-1}, len(v.dims))
	if single(v.dims) {
		err = v.element()
		copy(v.shape, v.dims)
	} else {
		err = v.measure(0)
	}
	if err != nil {
		return t, err
	}
	for i := range v.shape {
		v.shape[i] = max(v.shape[i], 0) // inside of an empty array
	}
	t.DType, t.Shape = v.port.DType, tensor.Of(v.shape...)
	if v.desc.MaxBatch > 0 {
		t.Shape = t.Shape.Prepend(1)
	}
	if v.size > v.limit {
		return t, status.Reasonf(status.TooLarge, "the argument '%s' has %d bytes, expected at most %d; use --http-max-input-size to change it", v.port.Name, v.size, v.limit)
	}
	if err := v.charge.Acquire(v.size); err != nil {
		return t, err
	}
	if t.Buf, err = v.alloc.Alloc(int(v.size)); err != nil {
		return t, err
	}
	t.Len = int(v.size)
	v.p.Reset(start)
	if err := v.fill(&t); err != nil {
		t.Release()
		return t, err
	}
	return t, nil
}

// measure reads the array of a dimension and those inside.
func (v *value) measure(axis int) error {
	if axis == len(v.dims) {
		return v.element()
	}
	if v.p.Peek() != '[' {
		return v.wrong(kind(v.p.Peek()))
	}
	n := int64(0)
	err := v.p.Elements(func() error {
		n++
		return v.measure(axis + 1)
	})
	if err != nil {
		return err
	}
	if v.shape[axis] < 0 {
		v.shape[axis] = n
	}
	if want := v.dims[axis]; n != v.shape[axis] || want >= 0 && n != want {
		if want < 0 {
			want = v.shape[axis]
		}
		return status.Errorf(status.InvalidArg, "the argument '%s' has an array of %d elements in its dimension %d, expected %d, as each array there", v.port.Name, n, axis+1, want)
	}
	return nil
}

// wrong returns the error for a value of another kind.
func (v *value) wrong(found string) error {
	return status.Errorf(status.InvalidArg, "the argument '%s' has %s, expected %s", v.port.Name, found, v.expected(v.port))
}

// element reads one element and adds its size.
func (v *value) element() error {
	first := v.p.Peek()
	v.size += int64(v.port.DType.Size())
	switch d := v.port.DType; {
	case d == tensor.Bytes && first == '"':
		s, err := v.p.Str()
		n := len(s)
		if v.binary && err == nil {
			var ok bool
			if n, ok = decodedLen(s); !ok {
				return v.wrong("a string that is no base64")
			}
		}
		v.size += int64(tensor.EncodedLen(n))
		return err
	case d == tensor.Bool && (first == 't' || first == 'f'):
		return v.p.Skip()
	case d == tensor.Bytes, d == tensor.Bool, kinds[first] != "":
		return v.wrong(kind(first))
	}
	n, err := v.p.Number()
	if err != nil || v.port.DType.IsFloat() {
		return err
	}
	_, ok := n.Signed()
	if isUnsigned(v.port.DType) {
		_, ok = n.Unsigned()
	}
	if !ok {
		return v.wrong("the number " + n.String())
	}
	return nil
}

func isUnsigned(d tensor.DType) bool { return d >= tensor.Uint8 && d <= tensor.Uint64 }

// decodedLen returns the number of bytes of a string in base64, with or without padding, and false for another string.
func decodedLen(s []byte) (int, bool) {
	s = trimPadding(s)
	n, err := io.Copy(io.Discard, base64.NewDecoder(base64.RawStdEncoding, bytes.NewReader(s)))
	return int(n), err == nil && int(n) == base64.RawStdEncoding.DecodedLen(len(s)) // else it has line breaks
}

func trimPadding(s []byte) []byte {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	return s
}

// fill reads the value into its tensor.
func (v *value) fill(t *tensor.Tensor) error {
	switch {
	case v.binary:
		return v.decode(t.Bytes()[:0])
	case t.DType == tensor.FP16:
		return v.halves(t, tensor.Float32ToFP16)
	case t.DType == tensor.BF16:
		return v.halves(t, tensor.Float32ToBF16)
	case len(t.Bytes()) == 0:
		return v.p.Skip()
	}
	return tensorjson.Fill(&v.p, t, v.port.Name, true)
}

func (v *value) decode(dst []byte) error {
	w := jsonwire.Walk{P: &v.p}
	for {
		ok, err := w.Next()
		if !ok || err != nil {
			return err
		}
		s, err := v.p.Str()
		if err != nil {
			return err
		}
		s = trimPadding(s)
		n := base64.RawStdEncoding.DecodedLen(len(s))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n)) //nolint:gosec // bounded by the limit
		if dst, err = base64.RawStdEncoding.AppendDecode(dst, s); err != nil {
			return err
		}
	}
}

func (v *value) halves(t *tensor.Tensor, half func(float32) uint16) error {
	w, dst := jsonwire.Walk{P: &v.p}, t.Bytes()
	for {
		ok, err := w.Next()
		if !ok || err != nil {
			return err
		}
		n, err := v.p.Number()
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint16(dst, half(float32(n.Float())))
		dst = dst[2:]
	}
}
