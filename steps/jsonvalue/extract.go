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

	"github.com/tidwall/gjson"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewExtractFactory returns the step "json_extract".
//
// Input JSON is BYTES [1], one document. Outputs are those that config.pbtxt declares: BOOL, integers, FP32, FP64 or BYTES, of dims
// [1] for a single value, [n] for an array of n values, or [-1] for one of any length (only without a batch dimension). For
// example, path "results.#.score" of {"results":[{"score":0.5},{"score":1}]} fills an FP32 output of dims [2] with [0.5, 1]. A
// BYTES output takes any value: a string as its text, others as JSON. A value that is missing without a default, of another type
// or out of range fails its row.
func NewExtractFactory() steps.Factory {
	return steps.Factory{
		Name: "json_extract",
		Doc: "Reads values from a JSON document: each output that config.pbtxt declares is the value at its path, in the syntax of GJSON " +
			"(`person.age`, `items.0.name`, `items.#.name`).",
		Params: []steps.Param{
			{Key: "paths", Doc: "A JSON object of the outputs' paths; an output that is not in it has its name as its path.", Default: "{}"},
			{Key: "defaults", Doc: "A JSON object of values for outputs whose path leads to no value or to null.", Default: "{}"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig(`output [ { name: "name" data_type: TYPE_STRING dims: [ 1 ] }, { name: "scores" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "age" data_type: TYPE_INT32 dims: [ 1 ] } ]`, "json_extract", "paths", `{"scores": "results.#.score", "name": "user.name"}`, "defaults", `{"age": -1}`),
			Request: `{"inputs": [{"name": "JSON", "datatype": "BYTES", "shape": [1],
    "data": ["{\"user\": {\"name\": \"Ada\"}, \"results\": [{\"score\": 0.5}, {\"score\": 1}]}"]}]}`,
		}},
		Inline:    true,
		Signature: extractSignature,
		New:       newExtract,
	}
}

func extractSignature(s *steps.Settings) (*config.Signature, error) {
	out := slices.Clone(s.Outputs)
	if len(out) == 0 {
		out = []config.Port{{Name: "VALUE", DType: tensor.Bytes, Dims: tensor.Of(1)}}
	}
	for i := range out {
		p := &out[i]
		if err := known(p, "output", s.Model); err != nil {
			return nil, err
		}
		if p.Dims.Rank() != 1 || s.MaxBatch > 0 && p.Dims.Dim(0) < 0 {
			return nil, fmt.Errorf("output '%s' of model '%s' has dims %s, expected one dimension, which is fixed in a model that batches", p.Name, s.Model, p.Dims)
		}
	}
	return &config.Signature{Inputs: []config.Port{{Name: "JSON", DType: tensor.Bytes, Dims: tensor.Of(1)}}, Outputs: out}, nil
}

// known returns an error for a type that JSON values are not converted from or to.
func known(p *config.Port, kind, model string) error {
	switch p.DType {
	case tensor.FP16, tensor.BF16, tensor.Invalid:
		return fmt.Errorf("%s '%s' of model '%s' is %s, which JSON values are not read from or written to: use TYPE_FP32", kind, p.Name, model, p.DType.ConfigName())
	default:
		return nil
	}
}

type extract struct {
	batched bool
	out     []field
}

// field is an output: where its values are in a document, and their type.
type field struct {
	name     string
	path     string
	dtype    tensor.DType
	count    int // of elements in a row; negative for any number
	fallback gjson.Result
}

func newExtract(s *steps.Settings) (steps.Step, error) {
	sig, err := extractSignature(s)
	if err != nil {
		return nil, err
	}
	paths, defaults := map[string]string{}, map[string]json.RawMessage{}
	err = cmp.Or(parseParam(s, "paths", "a JSON object of strings", &paths), parseParam(s, "defaults", "a JSON object", &defaults))
	if err != nil {
		return nil, err
	}
	x := &extract{batched: s.MaxBatch > 0}
	for _, p := range sig.Outputs {
		f := field{name: p.Name, path: p.Name, dtype: p.DType, count: int(p.Dims.Dim(0))}
		if given, ok := paths[p.Name]; ok {
			f.path = given
		}
		if raw, ok := defaults[p.Name]; ok {
			f.fallback = gjson.ParseBytes(raw)
			if _, err := f.append(nil, f.fallback); err != nil {
				return nil, fmt.Errorf("parameter 'defaults' of model '%s': %w", s.Model, err)
			}
		}
		x.out = append(x.out, f)
	}
	return x, cmp.Or(onlyOutputs(s, "paths", paths, sig.Outputs), onlyOutputs(s, "defaults", defaults, sig.Outputs))
}

// onlyOutputs refuses a parameter that names something else than an output.
func onlyOutputs[V any](s *steps.Settings, key string, values map[string]V, outputs []config.Port) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(outputs, func(p config.Port) bool { return p.Name == name }) {
			return fmt.Errorf("parameter '%s' of model '%s' names '%s', which is no output", key, s.Model, name)
		}
	}
	return nil
}

// Run reads the document of each row.
func (x *extract) Run(_ context.Context, b *backends.Batch) error {
	out := make([]column, len(x.out))
	rest := b.In[0].Bytes()
	for row := range b.Rows {
		doc, after, ok := tensor.NextBytes(rest)
		if !ok {
			return status.Errorf(status.Internal, "input 'JSON' ends inside an element")
		}
		rest = after
		valid := json.Valid(doc) // it also bounds the depth, which gjson does not
		if !valid {
			b.Fail(row, status.Errorf(status.InvalidArg, "input 'JSON' of row %d is no JSON document: %.40q", row, doc))
		}
		for i := range x.out {
			if err := out[i].read(&x.out[i], doc, valid); err != nil {
				b.Fail(row, err)
			}
		}
	}
	for i := range x.out {
		n := out[i].count
		if x.batched {
			n = x.out[i].count
		}
		if err := steps.Write(b, i, x.out[i].dtype, steps.Shape(b, x.batched, int64(n)), out[i].data); err != nil {
			return err
		}
	}
	return nil
}

// column is the data of an output so far, and its number of elements.
type column struct {
	data  []byte
	count int
}

// read appends the values at the path of f, or zero values where the document is not valid or lacks them.
func (c *column) read(f *field, doc []byte, valid bool) (err error) {
	if valid {
		v := gjson.GetBytes(doc, f.path)
		if v.Type == gjson.Null {
			v = f.fallback
		}
		var data []byte
		if !v.Exists() {
			err = status.Errorf(status.InvalidArg, "the document has nothing at '%s', expected output '%s' of type %s", f.path, f.name, f.dtype)
		} else if data, err = f.append(c.data, v); err == nil {
			c.data = data
			switch {
			case f.count >= 0:
				c.count += f.count
			case v.IsArray():
				c.count += len(v.Array())
			default:
				c.count++
			}
			return nil
		}
	}
	for range max(f.count, 0) {
		if c.count++; f.dtype == tensor.Bytes {
			c.data = tensor.AppendBytes(c.data, "")
		} else {
			c.data = append(c.data, make([]byte, f.dtype.Size())...)
		}
	}
	return err
}

// append appends the elements of v.
func (f *field) append(dst []byte, v gjson.Result) ([]byte, error) {
	if f.count == 1 && (!v.IsArray() || f.dtype == tensor.Bytes) {
		return f.element(dst, v)
	}
	if !v.IsArray() {
		return dst, f.errType(v, "an array")
	}
	n := 0
	var err error
	v.ForEach(func(_, e gjson.Result) bool {
		n++
		dst, err = f.element(dst, e)
		return err == nil
	})
	if err == nil && f.count >= 0 && n != f.count {
		err = status.Errorf(status.InvalidArg, "the array at '%s' has %d elements, expected %d for output '%s'", f.path, n, f.count, f.name)
	}
	return dst, err
}

func (f *field) errType(v gjson.Result, want string) error {
	return status.Errorf(status.InvalidArg, "the value at '%s' is %.40s, expected %s for output '%s'", f.path, v.Raw, want, f.name)
}

// element appends one value in the field's type.
func (f *field) element(dst []byte, v gjson.Result) ([]byte, error) {
	switch f.dtype {
	case tensor.Bytes:
		if v.Type == gjson.String {
			return tensor.AppendBytes(dst, v.Str), nil
		}
		return tensor.AppendBytes(dst, v.Raw), nil
	case tensor.Bool:
		switch v.Type {
		case gjson.True:
			return append(dst, 1), nil
		case gjson.False:
			return append(dst, 0), nil
		default:
			return dst, f.errType(v, "true or false")
		}
	default:
		return f.number(dst, v)
	}
}

// number appends a number. JSON writes an integer without a fraction or exponent: 3, but not 3.0 or 3e1.
func (f *field) number(dst []byte, v gjson.Result) ([]byte, error) {
	size, want := f.dtype.Size(), "an integer in the range of "
	var bits uint64
	var err error
	switch f.dtype {
	case tensor.FP32, tensor.FP64:
		var x float64
		x, err = strconv.ParseFloat(v.Raw, 8*size)
		if bits, want = math.Float64bits(x), "a number in the range of "; size == 4 {
			bits = uint64(math.Float32bits(float32(x)))
		}
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		bits, err = strconv.ParseUint(v.Raw, 10, 8*size)
	default:
		var n int64
		n, err = strconv.ParseInt(v.Raw, 10, 8*size)
		bits = uint64(n)
	}
	if v.Type != gjson.Number || err != nil {
		return dst, f.errType(v, want+f.dtype.String())
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	return append(dst, b[:size]...), nil
}
