package config_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestReshaping checks which dims may reshape to others, and the shapes of tensors to the model and back.
func TestReshaping(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		api, model []int64
		batches    bool
		from, to   []int64 // nil when the reshape is invalid
	}{
		{"image", []int64{3, 8, 8}, []int64{1, 3, 8, 8}, false, []int64{3, 8, 8}, []int64{1, 3, 8, 8}},
		{"empty", []int64{1}, nil, true, []int64{5, 1}, []int64{5}},
		{"from empty", nil, []int64{1}, true, []int64{5}, []int64{5, 1}},
		{"between", []int64{2, 4, -1, 6}, []int64{8, -1, 1, 6}, false, []int64{2, 4, 9, 6}, []int64{8, 9, 1, 6}},
		{"two", []int64{-1, 4, -1}, []int64{1, -1, 2, 2, -1}, true, []int64{3, 5, 4, 0}, []int64{3, 1, 5, 2, 2, 0}},
		{"elements", []int64{2, 3}, []int64{5}, false, nil, nil},
		{"moved", []int64{-1, 6}, []int64{2, -1, 3}, false, nil, nil},
		{"one more", []int64{-1, -1}, []int64{-1}, false, nil, nil},
		{"wild", []int64{1 << 40, 1 << 40}, []int64{1 << 40, 1 << 40, 1}, false, nil, nil},
		{"negative", []int64{-2}, []int64{-2}, false, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, ok := config.NewReshaping(tensor.Of(tc.api...), tensor.Of(tc.model...), tc.batches)
			if ok != (tc.from != nil) {
				t.Fatalf("reshape exists: %t", ok)
			}
			if !ok {
				return
			}
			s := tensor.Of(tc.from...)
			if r.ToModel(&s); !s.Equal(tensor.Of(tc.to...)) {
				t.Errorf("at the model %s, want %v", s, tc.to)
			}
			if r.ToRequest(&s); !s.Equal(tensor.Of(tc.from...)) {
				t.Errorf("for the request %s, want %v", s, tc.from)
			}
		})
	}
}

// TestAgreeReshapes checks that the model's dims are compared with the reshaped ones, and that dims which the model
// narrows are narrowed for requests.
func TestAgreeReshapes(t *testing.T) {
	t.Parallel()
	model := &config.Signature{Inputs: []config.Port{port("X", tensor.FP32, 1, 128)}, Outputs: []config.Port{port("Y", tensor.FP32, 1, 10)}}
	cfg := parse(t, `name: "m" max_batch_size: 4
		input { name: "X" data_type: TYPE_FP32 dims: -1 reshape { shape: [ 1, -1 ] } }
		output { name: "Y" data_type: TYPE_FP32 dims: [ 2, 5 ] reshape { shape: [ 1, 10 ] } }`)
	sig, err := config.Agree(cfg, model)
	if err != nil {
		t.Fatal(err)
	}
	if d := sig.Inputs[0].Dims; !d.Equal(tensor.Of(128)) || !sig.Inputs[0].ModelDims().Equal(tensor.Of(1, 128)) {
		t.Errorf("dims %s, want [128]", d)
	}
	s := tensor.Of(4, 1, 10)
	if sig.Outputs[0].Reshape.ToRequest(&s); !s.Equal(tensor.Of(4, 2, 5)) {
		t.Errorf("output %s, want [4,2,5]", s)
	}
	if at := sig.AtModel(); at.Inputs[0].Reshape != nil || !at.Outputs[0].Dims.Equal(tensor.Of(1, 10)) {
		t.Errorf("at the model: %+v", at)
	}
}

// TestAgreeOverBatch checks the errors about inputs and outputs of a whole batch when a backend has none, or
// others.
func TestAgreeOverBatch(t *testing.T) {
	t.Parallel()
	whole := func(p config.Port) config.Port {
		p.Unbatched = true
		return p
	}
	const in = `name: "m" max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: [ -1, 2 ] allow_ragged_batch: true } `
	const plain = `name: "m" max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: -1 } `
	const count = `batch_input { target_name: "N" data_type: TYPE_INT32 source_input: "X" } `
	const split = `output { name: "Y" data_type: TYPE_FP32 dims: -1 } batch_output { target_name: "Y" source_input: "X" } `
	ragged, rows := whole(port("X", tensor.FP32, -1)), port("X", tensor.FP32, -1)
	for _, tc := range []struct {
		name, config string
		in           []config.Port
		out          config.Port
		want         string
		code         status.Code
	}{
		{"good", in + count + split, []config.Port{whole(port("N", tensor.Int32, -1)), ragged}, whole(port("Y", tensor.FP32, -1)), "", 0},
		{"ragged", in, []config.Port{rows}, config.Port{}, "unable to load model 'm', allow_ragged_batch of input 'X' is not supported by its backend", status.Unsupported},
		{"not ragged", plain, []config.Port{ragged}, config.Port{}, "unable to load model 'm', input 'X' expects allow_ragged_batch", status.InvalidArg},
		{"no input", plain + count, []config.Port{rows}, config.Port{}, "unable to load model 'm', unexpected inference input 'N', allowed inputs are: X", status.InvalidArg},
		{
			"input of rows", plain + count,
			[]config.Port{rows, port("N", tensor.Int32, -1)},
			config.Port{},
			"unable to load model 'm', batch_input of input 'N' is not supported by its backend", status.Unsupported,
		},
		{
			"type", plain + count,
			[]config.Port{rows, whole(port("N", tensor.FP32, -1))},
			config.Port{},
			"unable to load model 'm', unexpected datatype TYPE_INT32 for inference input 'N', expecting TYPE_FP32", status.InvalidArg,
		},
		{"output of rows", plain + split, []config.Port{rows}, port("Y", tensor.FP32, -1), "unable to load model 'm', batch_output of output 'Y' is not supported by its backend", status.Unsupported},
		{
			"dims", plain + `output { name: "Y" data_type: TYPE_FP32 dims: [ 2, -1 ] } batch_output { target_name: "Y" source_input: "X" }`,
			[]config.Port{rows},
			whole(port("Y", tensor.FP32, -1)),
			"unable to load model 'm', batch output 'Y' has variable dimension 1, which its source input 'X' with dims [-1] does not have", status.InvalidArg,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			model := &config.Signature{Inputs: tc.in}
			if tc.out.Name != "" {
				model.Outputs = []config.Port{tc.out}
			}
			sig, err := config.Agree(parse(t, tc.config), model)
			if tc.want != "" {
				if err == nil || err.Error() != tc.want || status.CodeOf(err) != tc.code {
					t.Errorf("got error %v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(sig.Inputs) != 1 || !sig.Inputs[0].Unbatched || !sig.Inputs[0].Dims.Equal(tensor.Of(-1, 2)) {
				t.Errorf("inputs %+v", sig.Inputs)
			}
			if len(sig.Computed) != 1 || sig.Computed[0].At != 0 || sig.Computed[0].Source != 0 || len(sig.Scattered) != 1 || !sig.Outputs[0].Unbatched {
				t.Errorf("computed %+v, scattered %+v", sig.Computed, sig.Scattered)
			}
		})
	}
}
