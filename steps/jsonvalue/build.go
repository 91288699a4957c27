package jsonvalue

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
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
// Inputs are those that config.pbtxt declares, of any type but FP16 and BF16, and any
// dims. Output JSON is BYTES [1], an object with a member for each input in their order:
// a single value for dims [1], else an array, nested as its dims are. Numbers are the
// shortest that read back as the same. NaN and infinities fail their row or become null.
func NewBuildFactory() steps.Factory {
	return steps.Factory{
		Name: "json_build",
		Doc:  "Makes a JSON object of the inputs that config.pbtxt declares: one value where an input has one, arrays elsewhere. An optional input that is not given is left out.",
		Params: []steps.Param{
			{Key: "names", Doc: "A JSON object of other names for the members than their inputs'.", Default: "{}"},
			{Key: "raw", Doc: "A JSON array of BYTES inputs whose elements are JSON already.", Default: "[]"},
			{Key: "arrays", Doc: "Whether single values are arrays too.", Default: "false", Values: []string{"true", "false"}},
			{Key: "nan", Doc: "What becomes of NaN and infinities, which JSON does not have.", Default: "refuse", Values: []string{"refuse", "null"}},
		},
		Examples: []steps.Example{{
			Config: `max_batch_size: 8
input [ { name: "label" data_type: TYPE_STRING dims: [ 1 ] }, { name: "probabilities" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "step" value { string_value: "json_build" } }
parameters { key: "names" value { string_value: "{\"probabilities\": \"p\"}" } }`,
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

// build is the step "json_build".
type build struct {
	batched, arrays, null bool
	keys                  [][]byte // of each input, with what stands before its value
	raw                   []bool
	pool                  pool.Of[[]byte]
}

var _ steps.Step = (*build)(nil)

func newBuild(s *steps.Settings) (steps.Step, error) {
	sig, err := buildSignature(s)
	if err != nil {
		return nil, err
	}
	names, raw := map[string]string{}, []string(nil)
	if err := json.Unmarshal([]byte(s.Params["names"]), &names); err != nil {
		return nil, fmt.Errorf("parameter 'names' of model '%s' is '%s', expected a JSON object of strings: %w", s.Model, s.Params["names"], err)
	}
	if err := json.Unmarshal([]byte(s.Params["raw"]), &raw); err != nil {
		return nil, fmt.Errorf("parameter 'raw' of model '%s' is '%s', expected a JSON array of strings: %w", s.Model, s.Params["raw"], err)
	}
	st := &build{batched: s.MaxBatch > 0, arrays: s.Params["arrays"] == "true", null: s.Params["nan"] == "null"}
	for i, p := range sig.Inputs {
		name := p.Name
		if other, ok := names[p.Name]; ok {
			name = other
			delete(names, p.Name)
		}
		st.keys = append(st.keys, append(jsontext.AppendValid(nil, []byte(name)), ':'))
		at := slices.Index(raw, p.Name)
		st.raw = append(st.raw, at >= 0)
		if at >= 0 {
			raw = slices.Delete(raw, at, at+1)
			if p.DType != tensor.Bytes {
				return nil, fmt.Errorf("parameter 'raw' of model '%s' names input '%s', which is %s, expected TYPE_STRING", s.Model, sig.Inputs[i].Name, p.DType.ConfigName())
			}
		}
	}
	for name := range names {
		raw = append(raw, name)
	}
	if len(raw) > 0 {
		return nil, fmt.Errorf("model '%s' has no input '%s', which its parameters name", s.Model, slices.Min(raw))
	}
	return st, nil
}

// mostKept bounds the scratch that is kept for the next execution.
const mostKept = 1 << 20

// Run writes the objects.
func (st *build) Run(_ context.Context, b *backends.Batch) error {
	scratch := st.pool.Get()
	defer func() {
		if cap(*scratch) <= mostKept {
			st.pool.Put(scratch)
		}
	}()
	rows := 1
	if st.batched {
		rows = b.Rows
	}
	out := (*scratch)[:0]
	readers := make([]reader, len(b.In))
	for i := range b.In {
		readers[i] = st.reader(&b.In[i], i)
	}
	for row := range rows {
		at := len(out)
		out = append(out, 0, 0, 0, 0)
		out = append(out, '{')
		for i := range readers {
			if !b.In[i].Present() {
				continue
			}
			if out[len(out)-1] != '{' {
				out = append(out, ',')
			}
			out = append(out, st.keys[i]...)
			var err error
			if out, err = readers[i].value(out, 0); err != nil {
				b.Fail(row, err)
			}
		}
		out = append(out, '}')
		binary.LittleEndian.PutUint32(out[at:], uint32(len(out)-at-4))
	}
	*scratch = out
	shape := tensor.Of(1)
	if st.batched {
		shape = tensor.Of(int64(rows), 1)
	}
	t, err := b.AllocBytes(0, shape, len(out))
	if err != nil {
		return err
	}
	copy(t.Bytes(), out)
	return nil
}

// reader writes the elements of an input one after the other.
type reader struct {
	dtype  tensor.DType
	dims   []int64
	single bool
	raw    bool
	null   bool
	rest   []byte
}

func (st *build) reader(t *tensor.Tensor, i int) reader {
	if !t.Present() {
		return reader{}
	}
	r := reader{dtype: t.DType, dims: t.Shape.Dims(), raw: st.raw[i], null: st.null, rest: t.Bytes()}
	if st.batched {
		r.dims = r.dims[1:]
	}
	r.single = len(r.dims) == 0 || len(r.dims) == 1 && r.dims[0] == 1 && !st.arrays
	return r
}

// value writes what is at a depth of the dims. After a failure it goes on, so that the
// next row is read where it begins.
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

func (r *reader) element(dst []byte) ([]byte, error) {
	if r.dtype == tensor.Bytes {
		elem, rest, ok := tensor.NextBytes(r.rest)
		if !ok {
			return dst, status.Errorf(status.Internal, "an input ends inside an element")
		}
		r.rest = rest
		if !r.raw {
			return jsontext.AppendValid(dst, elem), nil
		}
		if !json.Valid(elem) {
			return append(dst, "null"...), status.Errorf(status.InvalidArg, "an element of an input that parameter 'raw' names is no JSON: %.40q", elem)
		}
		return append(dst, elem...), nil
	}
	b := r.rest[:r.dtype.Size()]
	r.rest = r.rest[len(b):]
	switch r.dtype {
	case tensor.Bool:
		return strconv.AppendBool(dst, b[0] != 0), nil
	case tensor.FP32:
		return r.float(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), 32)
	case tensor.FP64:
		return r.float(dst, math.Float64frombits(binary.LittleEndian.Uint64(b)), 64)
	}
	var wide [8]byte
	copy(wide[:], b)
	n := binary.LittleEndian.Uint64(wide[:])
	switch r.dtype {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		shift := 64 - 8*len(b)
		return strconv.AppendInt(dst, int64(n<<shift)>>shift, 10), nil
	default:
		return strconv.AppendUint(dst, n, 10), nil
	}
}

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
