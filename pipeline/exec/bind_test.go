package exec_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// given is one input of a request.
type given struct {
	name  string
	dtype tensor.DType
	shape []int64
	size  int // in bytes; 0: computed from the shape
}

// TestRefusals pins the errors of invalid requests, in Triton's words.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const note = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
	good := given{"INPUT0", tensor.FP32, []int64{1, 2}, 0}
	second := given{"INPUT1", tensor.FP32, []int64{1, 3}, 0}
	for _, tc := range []struct {
		name     string
		maxBatch int
		optional bool // INPUT1 is optional
		in       []given
		outputs  []string
		want     string
	}{
		{"missing", 8, false, []given{good}, nil, "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required input(s)."},
		{"none", 8, false, nil, nil, "expected 2 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['INPUT0','INPUT1']. Please provide all required input(s)."},
		{"missing beside an optional one", 8, true, []given{second}, nil, "expected number of inputs between 1 and 2 but got 1 inputs for model 'm'. Got input(s) ['INPUT1'], but missing required input(s) ['INPUT0']. Please provide all required input(s)."},
		{"another instead", 8, false, []given{good, {"other", tensor.FP32, []int64{1, 3}, 0}}, nil, "unexpected inference input 'other' for model 'm'"},
		{"two others", 8, true, []given{{"a", tensor.FP32, []int64{1, 3}, 0}, {"b", tensor.FP32, []int64{1, 3}, 0}}, nil, "unexpected inference input 'b' for model 'm'"},
		{"unknown", 8, true, []given{good, {"other", tensor.FP32, []int64{1, 2}, 0}}, nil, "unexpected inference input 'other' for model 'm'"},
		{"unknown besides all", 8, false, []given{good, second, {"other", tensor.FP32, []int64{1, 2}, 0}}, nil, "unexpected inference input 'other' for model 'm'"},
		{"twice", 8, true, []given{good, good}, nil, "duplicate inference input for model 'm'"},
		{"type", 8, true, []given{{"INPUT0", tensor.Int32, []int64{1, 2}, 0}}, nil, "inference input 'INPUT0' data-type is 'INT32', but model 'm' expects 'FP32'"},
		{"extent", 8, true, []given{{"INPUT0", tensor.FP32, []int64{1, 3}, 0}}, nil, "unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,2], got [1,3]. " + note},
		{"rank", 8, true, []given{{"INPUT0", tensor.FP32, []int64{2}, 0}}, nil, "unexpected shape for input 'INPUT0' for model 'm'. Expected [-1,2], got [2]. " + note},
		{"no rank", 8, true, []given{{"INPUT0", tensor.FP32, nil, 0}}, nil, "input 'INPUT0' has no shape but model requires batch dimension for 'm'"},
		{"extent without batching", 0, true, []given{{"INPUT0", tensor.FP32, []int64{3}, 0}}, nil, "unexpected shape for input 'INPUT0' for model 'm'. Expected [2], got [3]. "},
		{"negative", 8, true, []given{{"INPUT0", tensor.FP32, []int64{-1, 2}, 8}}, nil, "invalid shape for input 'INPUT0': shape [-1,2] contains one or more invalid dimensions"},
		{"beyond int64", 8, false, []given{good, {"INPUT1", tensor.FP32, []int64{1, 1 << 62}, 8}}, nil, "byte size overflow for input 'INPUT1': shape [1,4611686018427387904] of FP32"},
		{"batch sizes", 8, false, []given{good, {"INPUT1", tensor.FP32, []int64{2, 3}, 0}}, nil, "input 'INPUT0' batch size does not match other inputs for 'm'"},
		{"batch sizes and type", 8, false, []given{{"INPUT0", tensor.Int32, []int64{1, 2}, 0}, {"INPUT1", tensor.FP32, []int64{2, 3}, 0}}, nil, "input 'INPUT0' batch size does not match other inputs for 'm'"},
		{"batch too large and extent", 8, false, []given{{"INPUT1", tensor.FP32, []int64{9, 3}, 0}, {"INPUT0", tensor.FP32, []int64{9, 3}, 0}}, nil, "inference request batch-size must be <= 8 for 'm'"},
		{"both types", 8, false, []given{{"INPUT1", tensor.Int32, []int64{1, 3}, 0}, {"INPUT0", tensor.Int32, []int64{1, 2}, 0}}, nil, "inference input 'INPUT0' data-type is 'INT32', but model 'm' expects 'FP32'"},
		{"both extents", 8, false, []given{{"INPUT0", tensor.FP32, []int64{1, 9}, 0}, {"INPUT1", tensor.FP32, []int64{1}, 0}}, nil, "unexpected shape for input 'INPUT1' for model 'm'. Expected [-1,-1], got [1]. " + note},
		{"type of one, bytes of the other", 8, false, []given{{"INPUT0", tensor.Int32, []int64{1, 2}, 0}, {"INPUT1", tensor.FP32, []int64{1, 3}, 8}}, nil, "input byte size mismatch for input 'INPUT1' for model 'm'. Expected 12, got 8"},
		{"batch too large", 8, true, []given{{"INPUT0", tensor.FP32, []int64{9, 2}, 0}}, nil, "inference request batch-size must be <= 8 for 'm'"},
		{"too few bytes", 8, true, []given{{"INPUT0", tensor.FP32, []int64{1, 2}, 4}}, nil, "input byte size mismatch for input 'INPUT0' for model 'm'. Expected 8, got 4"},
		{"too many bytes", 8, true, []given{{"INPUT0", tensor.FP32, []int64{1, 2}, 12}}, nil, "input byte size mismatch for input 'INPUT0' for model 'm'. Expected 8, got 12"},
		{"unknown output", 8, true, []given{good}, []string{"OUTPUT0", "other"}, "unexpected inference output 'other' for model 'm'"},
		{"output twice", 8, true, []given{good}, []string{"OUTPUT1", "OUTPUT0", "OUTPUT1"}, "output 'OUTPUT1' already exists in request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sig := signature("m", 2, tc.maxBatch)
			sig.Inputs[0].Dims, sig.Inputs[1].Optional = tensor.Of(2), tc.optional
			x := b.executor(plan.Single(sig), b.inline(sig, share))
			for id, prefix := range map[string]string{"": "[request id: <id_unknown>] ", "9": "[request id: 9] "} {
				if strings.HasPrefix(tc.want, "unexpected inference") { // Triton's only text without the request's ID
					prefix = ""
				}
				a := submit(t.Context(), x, b.newRequest(id, tc.in, tc.outputs))
				if a.err == nil || a.err.Error() != prefix+tc.want || status.CodeOf(a.err) != status.InvalidArg {
					t.Errorf("got error %v (%v)\nwant %s", a.err, status.CodeOf(a.err), prefix+tc.want)
				}
			}
			// The next request on the same run must succeed.
			fine := []given{{"INPUT0", tensor.FP32, []int64{1, 2}, 0}, second}
			if tc.maxBatch == 0 {
				fine = []given{{"INPUT0", tensor.FP32, []int64{2}, 0}, {"INPUT1", tensor.FP32, []int64{3}, 0}}
			}
			a := submit(t.Context(), x, b.newRequest("", fine, nil))
			if a.err != nil || len(a.resp.Outputs) != 2 {
				t.Fatalf("a good request after a refused one: %v", a.err)
			}
			a.resp.Release()
		})
	}
}

// newRequest returns a request of zeroed tensors.
func (b *bench) newRequest(id string, in []given, outputs []string) *infer.Request {
	req := infer.NewRequest()
	req.ID, req.Model = id, "m"
	for _, g := range in {
		shape := tensor.Of(g.shape...)
		size := g.size
		if size == 0 {
			size = int(shape.Elements()) * g.dtype.Size()
		}
		v, err := tensor.NewBytes(b.alloc, shape, size)
		if err != nil {
			panic(err)
		}
		clear(v.Bytes())
		v.DType = g.dtype
		req.Inputs = append(req.Inputs, infer.Named{Name: g.name, Tensor: v})
	}
	req.Outputs = append(req.Outputs, outputs...)
	return req
}

// TestEnsembleRefusals pins the errors whose text differs for an ensemble.
func TestEnsembleRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one := signature("one", 1, 8)
	one.Inputs[0].Dims = tensor.Of(-1)
	narrow := signature("narrow", 1, 8)
	narrow.Inputs[0].Dims, narrow.Outputs[0].Dims = tensor.Of(2), tensor.Of(2)
	models := fakes{"one": {sig: one, run: share}, "narrow": {sig: narrow, run: share}}
	x, _ := b.ensemble(t, models, "A", "X", `
step { model_name: "one" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "narrow" model_version: -1 input_map { key: "INPUT0" value: "MID" } output_map { key: "OUTPUT0" value: "X" } }`)
	for _, tc := range []struct {
		in   []given
		want string
	}{
		{
			[]given{{"A", tensor.FP32, []int64{1, 2}, 0}, {"B", tensor.FP32, []int64{1, 2}, 0}},
			"unexpected inference input 'B' for model 'e'",
		},
		{[]given{{"A", tensor.FP32, []int64{9, 2}, 0}}, "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'e'"},
		{[]given{{"A", tensor.FP32, []int64{1, 3}, 0}}, "in ensemble 'e', [request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'narrow'. Expected [-1,2], got [1,3]. "},
	} {
		a := submit(t.Context(), x, b.newRequest("", tc.in, nil))
		if a.err == nil || !strings.HasPrefix(a.err.Error(), tc.want) {
			t.Errorf("got error %v\nwant %s", a.err, tc.want)
		}
	}
}

// TestBatchDimensions checks that the batch dimension is added and removed between steps of which only one batches.
func TestBatchDimensions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	single := &config.Signature{Model: "single", Version: 1, Inputs: []config.Port{{Name: "IN", DType: tensor.FP32, Dims: tensor.Of(-1)}}}
	single.Outputs = []config.Port{{Name: "OUT", DType: tensor.FP32, Dims: tensor.Of(-1)}}
	models := fakes{"many": {sig: signature("many", 1, 8), run: add(1)}, "single": {sig: single, run: add(10)}}
	x, _ := b.ensemble(t, models, "A", "X", `
step { model_name: "many" model_version: -1 input_map { key: "INPUT0" value: "A" } output_map { key: "OUTPUT0" value: "MID" } }
step { model_name: "single" model_version: -1 input_map { key: "IN" value: "MID" } output_map { key: "OUT" value: "X" } }`)
	a := submit(t.Context(), x, b.newRequest("", []given{{"A", tensor.FP32, []int64{1, 3}, 0}}, nil))
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := a.resp.Outputs[0].Tensor.Shape; !got.Equal(tensor.Of(1, 3)) {
		t.Errorf("output of shape %s, want [1,3]", got)
	}
	a.resp.Release()
	a = submit(t.Context(), x, b.newRequest("", []given{{"A", tensor.FP32, []int64{2, 3}, 0}}, nil))
	const want = "in ensemble 'e', tensor 'MID' of shape [2,3] cannot lose its batch dimension for input 'IN' of model 'single', which does not batch"
	if a.err == nil || a.err.Error() != want {
		t.Errorf("got error %v\nwant %s", a.err, want)
	}
}
