package jsonvalue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewExtractFactory returns the step "json_extract".
//
// Input JSON is BYTES [1], one document. Outputs are those that config.pbtxt declares:
// BOOL, integers, FP32, FP64 or BYTES, of dims [1] for a single value, [n] for an array of n
// values, or [-1] for one of any length, which without a batch dimension only may differ
// between requests. A BYTES output takes any value: a string as its text, others as JSON.
// What is missing and has no default, is of another type or out of range fails its row.
func NewExtractFactory() steps.Factory {
	return steps.Factory{
		Name: "json_extract",
		Doc: "Takes values out of a JSON document: each output that config.pbtxt declares is the value at its path, in the syntax of GJSON " +
			"(`person.age`, `items.0.name`, `items.#.name`).",
		Params: []steps.Param{
			{Key: "paths", Doc: "A JSON object of the outputs' paths; an output that is not in it has its name as its path.", Default: "{}"},
			{Key: "defaults", Doc: "A JSON object of values for outputs whose path leads to nothing or null.", Default: "{}"},
		},
		Examples: []steps.Example{{
			Config: `output [ { name: "name" data_type: TYPE_STRING dims: [ 1 ] }, { name: "scores" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "age" data_type: TYPE_INT32 dims: [ 1 ] } ]
parameters { key: "step" value { string_value: "json_extract" } }
parameters { key: "paths" value { string_value: "{\"scores\": \"results.#.score\", \"name\": \"user.name\"}" } }
parameters { key: "defaults" value { string_value: "{\"age\": -1}" } }`,
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

// known refuses a type that has no form in JSON.
func known(p *config.Port, kind, model string) error {
	switch p.DType {
	case tensor.FP16, tensor.BF16, tensor.Invalid:
		return fmt.Errorf("%s '%s' of model '%s' is %s, which JSON values are not read from or written to: use TYPE_FP32", kind, p.Name, model, p.DType.ConfigName())
	default:
		return nil
	}
}

// extract is the step "json_extract".
type extract struct {
	batched bool
	out     []field
}

type field struct {
	name     string
	path     string
	dtype    tensor.DType
	count    int // negative for any
	fallback gjson.Result
}

var _ steps.Step = (*extract)(nil)

func newExtract(s *steps.Settings) (steps.Step, error) {
	sig, err := extractSignature(s)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	if err := json.Unmarshal([]byte(s.Params["paths"]), &paths); err != nil {
		return nil, fmt.Errorf("parameter 'paths' of model '%s' is '%s', expected a JSON object of strings: %w", s.Model, s.Params["paths"], err)
	}
	defaults := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(s.Params["defaults"]), &defaults); err != nil {
		return nil, fmt.Errorf("parameter 'defaults' of model '%s' is '%s', expected a JSON object: %w", s.Model, s.Params["defaults"], err)
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
		delete(paths, p.Name)
		delete(defaults, p.Name)
		x.out = append(x.out, f)
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		return nil, fmt.Errorf("parameter 'paths' of model '%s' names '%s', which is no output", s.Model, name)
	}
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		return nil, fmt.Errorf("parameter 'defaults' of model '%s' names '%s', which is no output", s.Model, name)
	}
	return x, nil
}

// Run reads the documents.
func (x *extract) Run(_ context.Context, b *backends.Batch) error {
	rows := 1
	if x.batched {
		rows = int(b.In[0].Shape.Dim(0))
	}
	data := make([][]byte, len(x.out))
	made := make([]int, len(x.out))
	rest := b.In[0].Bytes()
	for row := range rows {
		doc, after, ok := tensor.NextBytes(rest)
		if !ok {
			return status.Errorf(status.Internal, "input 'JSON' ends inside an element")
		}
		rest = after
		valid := json.Valid(doc) // which bounds the depth, where gjson does not
		if !valid {
			b.Fail(row, status.Errorf(status.InvalidArg, "input 'JSON' of row %d is no JSON document: %.40q", row, doc))
		}
		for i := range x.out {
			f, before := &x.out[i], len(data[i])
			var n int
			var err error
			if valid {
				data[i], n, err = f.read(data[i], doc)
			}
			if !valid || err != nil {
				data[i], n = f.nothing(data[i][:before])
			}
			if err != nil {
				b.Fail(row, err)
			}
			made[i] += n
		}
	}
	for i := range x.out {
		if err := x.put(b, i, rows, made[i], data[i]); err != nil {
			return err
		}
	}
	return nil
}

// put makes output i of what was read.
func (x *extract) put(b *backends.Batch, i, rows, made int, data []byte) error {
	shape := tensor.Of(int64(made))
	if x.batched {
		shape = tensor.Of(int64(rows), int64(x.out[i].count))
	}
	var t *tensor.Tensor
	var err error
	if x.out[i].dtype == tensor.Bytes {
		t, err = b.AllocBytes(i, shape, len(data))
	} else {
		t, err = b.Alloc(i, x.out[i].dtype, shape)
	}
	if err == nil {
		copy(t.Bytes(), data)
	}
	return err
}

// read appends the values at the path, and returns how many there are.
func (f *field) read(dst, doc []byte) ([]byte, int, error) {
	v := gjson.GetBytes(doc, f.path)
	if v.Type == gjson.Null {
		if v = f.fallback; !v.Exists() {
			return dst, 0, status.Errorf(status.InvalidArg, "the document has nothing at '%s', expected output '%s' of type %s", f.path, f.name, f.dtype)
		}
	}
	dst, err := f.append(dst, v)
	return dst, f.length(v), err
}

// length returns how many elements v is.
func (f *field) length(v gjson.Result) int {
	if f.count >= 0 {
		return f.count
	}
	if v.IsArray() {
		return len(v.Array())
	}
	return 1
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

// nothing appends what stands for a row that failed.
func (f *field) nothing(dst []byte) ([]byte, int) {
	for range max(f.count, 0) {
		if f.dtype == tensor.Bytes {
			dst = tensor.AppendBytes(dst, "")
		} else {
			dst = append(dst, make([]byte, f.dtype.Size())...)
		}
	}
	return dst, max(f.count, 0)
}

func (f *field) errType(v gjson.Result, want string) error {
	return status.Errorf(status.InvalidArg, "the value at '%s' is %.40s, expected %s for output '%s'", f.path, v.Raw, want, f.name)
}
