// Package jsonvalue holds two steps: "json_extract" reads values from JSON documents into typed tensors, "json_build" writes tensors
// as JSON objects.
package jsonvalue

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// NewBuildFactory returns the step "json_build".
//
// Inputs are those that config.pbtxt declares, of any type but FP16 and BF16 and of any dims. Output JSON is BYTES [1], an object
// with a member for each input in their order: a single value for dims [1], else an array, nested as its dims are. For example,
// inputs label [1] and p [2] become {"label":"fox","p":[0.25,0.75]}. Numbers are the shortest that read back as the same. NaN and
// infinities fail their row or become null.
func NewBuildFactory() steps.Factory {
	return steps.Factory{
		Name: "json_build",
		Doc:  "Makes a JSON object of the inputs that config.pbtxt declares: one value where an input has one, arrays elsewhere. An optional input that is not given is left out.",
		Params: []steps.Param{
			{Key: "names", Doc: "A JSON object of other names for the members than their inputs'.", Default: "{}"},
			{Key: "raw", Doc: "A JSON array of BYTES inputs whose elements are JSON already.", Default: "[]"},
			{Key: "arrays", Doc: "Whether single values are arrays too.", Default: "false", Values: []string{"true", "false"}},
			{Key: "nan", Doc: "How NaN and infinities are treated, which JSON does not have: the row fails, or they become null.", Default: "refuse", Values: []string{"refuse", "null"}},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig(`max_batch_size: 8
input [ { name: "label" data_type: TYPE_STRING dims: [ 1 ] }, { name: "probabilities" data_type: TYPE_FP32 dims: [ -1 ] } ]`, "json_build", "names", `{"probabilities": "p"}`),
			Request: `{"inputs": [
    {"name": "label", "datatype": "BYTES", "shape": [1, 1], "data": ["fox"]},
    {"name": "probabilities", "datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.75]}]}`,
		}},
		Inline:    true,
		Signature: buildSignature,
		New:       newBuild,
	}
}

func buildSignature(s *steps.Settings) (*config.Signature, error) {
	in := slices.Clone(s.Inputs)
	if len(in) == 0 {
		in = []config.Port{{Name: "VALUE", DType: tensor.Bytes, Dims: tensor.Of(1)}}
	}
	for i := range in {
		if err := known(&in[i], "input", s.Model); err != nil {
			return nil, err
		}
	}
	out := config.Port{Name: "JSON", DType: tensor.Bytes, Dims: tensor.Of(1)}
	if len(s.Outputs) == 1 {
		out.Name = s.Outputs[0].Name
	}
	return &config.Signature{Inputs: in, Outputs: []config.Port{out}}, nil
}

type build struct {
	batched bool
	inputs  []member
	pool    pool.Of[[]byte]
}

// member is how an input becomes a member of the object.
type member struct {
	key    []byte // the name in JSON, with the colon
	raw    bool   // its elements are JSON
	arrays bool   // a single value is an array, too
	null   bool   // NaN and infinities become null
}

func newBuild(s *steps.Settings) (steps.Step, error) {
	sig, err := buildSignature(s)
	if err != nil {
		return nil, err
	}
	names, raw := map[string]string{}, []string(nil)
	err = cmp.Or(parseParam(s, "names", "a JSON object of strings", &names), parseParam(s, "raw", "a JSON array of strings", &raw))
	if err != nil {
		return nil, err
	}
	st := &build{batched: s.MaxBatch > 0}
	for _, p := range sig.Inputs {
		name := p.Name
		if other, ok := names[p.Name]; ok {
			name = other
		}
		m := member{key: append(jsontext.AppendValid(nil, []byte(name)), ':'), raw: slices.Contains(raw, p.Name)}
		m.arrays, m.null = s.Params["arrays"] == "true", s.Params["nan"] == "null"
		if m.raw && p.DType != tensor.Bytes {
			return nil, fmt.Errorf("parameter 'raw' of model '%s' names input '%s', which is %s, expected TYPE_STRING", s.Model, p.Name, p.DType.ConfigName())
		}
		st.inputs = append(st.inputs, m)
	}
	named := append(slices.Collect(maps.Keys(names)), raw...)
	slices.Sort(named)
	for _, name := range named {
		if !slices.ContainsFunc(sig.Inputs, func(p config.Port) bool { return p.Name == name }) {
			return nil, fmt.Errorf("model '%s' has no input '%s', which its parameters name", s.Model, name)
		}
	}
	return st, nil
}

func parseParam(s *steps.Settings, key, want string, into any) error {
	if err := json.Unmarshal([]byte(s.Params[key]), into); err != nil {
		return fmt.Errorf("parameter '%s' of model '%s' is '%s', expected %s: %w", key, s.Model, s.Params[key], want, err)
	}
	return nil
}

// maxPooled is the largest buffer in bytes that the pool keeps.
const maxPooled = 1 << 20

// Run writes an object for each row.
func (st *build) Run(_ context.Context, b *backends.Batch) error {
	scratch := st.pool.Get()
	defer func() {
		if cap(*scratch) <= maxPooled {
			st.pool.Put(scratch)
		}
	}()
	var readers []reader
	for i := range b.In {
		if b.In[i].Present() {
			readers = append(readers, st.reader(&b.In[i], i))
		}
	}
	out := (*scratch)[:0]
	for row := range b.Rows {
		out = appendObject(out, readers, b, row)
	}
	*scratch = out
	return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, st.batched, 1), out)
}

// appendObject appends the object of a row as a BYTES element: its length, then its text.
func appendObject(out []byte, readers []reader, b *backends.Batch, row int) []byte {
	at := len(out)
	out = append(out, 0, 0, 0, 0, '{')
	for i := range readers {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, readers[i].key...)
		var err error
		if out, err = readers[i].value(out, 0); err != nil {
			b.Fail(row, err)
		}
	}
	out = append(out, '}')
	binary.LittleEndian.PutUint32(out[at:], uint32(len(out)-at-4))
	return out
}

// reader writes the elements of an input one after the other.
type reader struct {
	member

	dtype  tensor.DType
	dims   []int64
	single bool
	rest   []byte
}

func (st *build) reader(t *tensor.Tensor, i int) reader {
	r := reader{member: st.inputs[i], dtype: t.DType, dims: t.Shape.Dims(), rest: t.Bytes()}
	if st.batched {
		r.dims = r.dims[1:]
	}
	r.single = len(r.dims) == 0 || len(r.dims) == 1 && r.dims[0] == 1 && !r.arrays
	return r
}

// value writes the values from a depth of the dims on. After a failure it goes on, so that the next row is read from its start.
func (r *reader) value(dst []byte, depth int) (_ []byte, err error) {
	if r.single || depth == len(r.dims) {
		return r.element(dst)
	}
	dst = append(dst, '[')
	for i := range r.dims[depth] {
		if i > 0 {
			dst = append(dst, ',')
		}
		var failed error
		if dst, failed = r.value(dst, depth+1); err == nil {
			err = failed
		}
	}
	return append(dst, ']'), err
}

// element writes the next element.
func (r *reader) element(dst []byte) ([]byte, error) {
	if r.dtype == tensor.Bytes {
		return r.text(dst)
	}
	b := r.rest[:r.dtype.Size()]
	r.rest = r.rest[len(b):]
	var wide [8]byte
	copy(wide[:], b)
	n := binary.LittleEndian.Uint64(wide[:])
	switch r.dtype {
	case tensor.Bool:
		return strconv.AppendBool(dst, n != 0), nil
	case tensor.FP32:
		return r.float(dst, float64(math.Float32frombits(uint32(n))), 32)
	case tensor.FP64:
		return r.float(dst, math.Float64frombits(n), 64)
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		shift := 64 - 8*len(b)
		return strconv.AppendInt(dst, int64(n<<shift)>>shift, 10), nil
	default:
		return strconv.AppendUint(dst, n, 10), nil
	}
}

// text writes the next element of a BYTES input.
func (r *reader) text(dst []byte) ([]byte, error) {
	elem, rest, ok := tensor.NextBytes(r.rest)
	if !ok {
		return dst, status.Errorf(status.Internal, "an input ends inside an element")
	}
	r.rest = rest
	switch {
	case !r.raw:
		return jsontext.AppendValid(dst, elem), nil
	case !json.Valid(elem):
		return append(dst, "null"...), status.Errorf(status.InvalidArg, "an element of an input that parameter 'raw' names is no JSON: %.40q", elem)
	default:
		return append(dst, elem...), nil
	}
}

// float writes the shortest number that reads back as x.
func (r *reader) float(dst []byte, x float64, bits int) ([]byte, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		if r.null {
			return append(dst, "null"...), nil
		}
		return append(dst, "null"...), status.Errorf(status.InvalidArg, "an input has the value %v, which JSON does not have", x)
	}
	format := byte('f')
	if abs := math.Abs(x); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, x, format, -1, bits), nil
}
