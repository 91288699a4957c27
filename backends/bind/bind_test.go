package bind_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

type (
	port  = bind.Port[string]
	model = bind.Model[string]
)

func in(name string, shape ...int64) port {
	return port{Name: name, DType: tensor.FP32, Shape: shape, Native: "own " + name}
}

// file returns a model with one input and one output of these shapes.
func file(x, y []int64) model {
	return model{Ins: []port{in("x", x...)}, Outs: []port{in("y", y...)}}
}

func bound(t *testing.T, text string, m *model) (*bind.Binding[string], error) {
	t.Helper()
	cfg, err := config.Parse("config.pbtxt", []byte("name: 'm' backend: 'b' "+text))
	if err != nil {
		t.Fatal(err)
	}
	size, err := m.MaxBatch(cfg, 4)
	if err != nil {
		return nil, err
	}
	return bind.Bind(cfg, m, size)
}

const fp32 = " data_type: TYPE_FP32 "

// rows declares x [2] and y [3].
const rows = "input { name: 'x'" + fp32 + "dims: 2 } output { name: 'y'" + fp32 + "dims: 3 }"

func TestBind(t *testing.T) {
	t.Parallel()
	batched, fixed := file([]int64{-1, 2}, []int64{-1, 3}), file([]int64{2}, []int64{3})
	bare, scalar := file([]int64{-1}, []int64{-1}), file(nil, nil)
	loose := file([]int64{-1, -1}, []int64{-1, 3})
	loose.LooseOutputs = true
	open := model{Ins: []port{{Name: "x", DType: tensor.FP32, AnyRank: true, Native: "own x"}}, Outs: []port{{Name: "y", DType: tensor.FP32, AnyRank: true}}}
	sized := file([]int64{8, 2}, []int64{8, 3})
	sized.FixedBatch = true
	alias := batched
	alias.FindAlias = func(name string, output bool) (port, bool) {
		return in(name, -1, 3), output && name == "other"
	}
	tests := map[string]struct {
		text     string
		model    model
		maxBatch int
		in, out  []int64 // dims of the signature
	}{
		"declared":        {"max_batch_size: 2 " + rows, batched, 2, []int64{2}, []int64{3}},
		"completed":       {"", batched, 4, []int64{2}, []int64{3}},
		"own batch size":  {"max_batch_size: 7", batched, 7, []int64{2}, []int64{3}},
		"cannot batch":    {"", fixed, 0, []int64{2}, []int64{3}},
		"no dimensions":   {"", scalar, 0, []int64{1}, []int64{1}},
		"only a batch":    {"", bare, 4, []int64{1}, []int64{1}},
		"ones":            {"input { name: 'x'" + fp32 + "dims: [1, 1] } output { name: 'y'" + fp32 + "dims: 1 }", scalar, 0, []int64{1, 1}, []int64{1}},
		"reshaped before": {"input { name: 'x'" + fp32 + "dims: [2, 1] reshape { shape: 2 } } output { name: 'y'" + fp32 + "dims: 3 }", fixed, 0, []int64{2}, []int64{3}},
		"outputs only":    {"output { name: 'y'" + fp32 + "dims: 3 }", batched, 4, []int64{2}, []int64{3}},
		"type left out":   {"max_batch_size: 4 input { name: 'x' dims: 2 }", batched, 4, []int64{2}, []int64{3}},
		"narrower input":  {"max_batch_size: 4 " + rows, loose, 4, []int64{2}, []int64{3}},
		"wider output": {
			"max_batch_size: 4 input { name: 'x'" + fp32 + "dims: 2 } output { name: 'y'" + fp32 + "dims: -1 }", loose, 4, []int64{2}, []int64{-1},
		},
		"any rank":    {rows, open, 0, []int64{2}, []int64{3}},
		"fixed batch": {"max_batch_size: 4 " + rows, sized, 4, []int64{2}, []int64{3}},
		"alias": {
			"max_batch_size: 4 input { name: 'x'" + fp32 + "dims: 2 } output { name: 'other'" + fp32 + "dims: 3 }", alias, 4, []int64{2}, []int64{3},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := bound(t, tt.text, &tt.model)
			if err != nil {
				t.Fatal(err)
			}
			if b.Sig.MaxBatch != tt.maxBatch {
				t.Errorf("max batch = %d, want %d", b.Sig.MaxBatch, tt.maxBatch)
			}
			got := [][]int64{b.Sig.Inputs[0].Dims.Dims(), b.Sig.Outputs[0].Dims.Dims()}
			if diff := cmp.Diff([][]int64{tt.in, tt.out}, got); diff != "" {
				t.Errorf("dims (-want +got):\n%s", diff)
			}
			if want := "own " + b.Sig.Inputs[0].Name; b.In[0].Native != want {
				t.Errorf("native = %q, want %q", b.In[0].Native, want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	two := "input { name: 'x'" + fp32 + "dims: 2 } "
	batched, fixed, wide := file([]int64{-1, 2}, []int64{-1, 3}), file([]int64{2}, []int64{3}), file([]int64{-1}, []int64{-1})
	tests := map[string]struct {
		text  string
		model model
		want  string
	}{
		"input's name": {
			"input { name: 'z'" + fp32 + "dims: 2 } output { name: 'y'" + fp32 + "dims: 3 }", fixed,
			"unable to load model 'm', unexpected inference input 'z', allowed inputs are: x",
		},
		"output's name": {
			two + "output { name: 'z'" + fp32 + "dims: 3 }", fixed, "unable to load model 'm', unexpected inference output 'z', allowed outputs are: y",
		},
		"type": {
			two + "output { name: 'y' data_type: TYPE_INT8 dims: 3 }", fixed,
			"unable to load model 'm', configuration expects datatype TYPE_INT8 for output 'y', model provides TYPE_FP32",
		},
		"count": {
			two + "input { name: 'z'" + fp32 + "dims: 2 } output { name: 'y'" + fp32 + "dims: 3 }", fixed,
			"unable to load model 'm', configuration expects 2 inputs, model provides 1",
		},
		"rank": {
			rows, batched, "model 'm', tensor 'x': the model expects 2 dimensions (shape [-1,2]) but the model configuration specifies 1 dimensions (shape [2])",
		},
		"extent": {
			"max_batch_size: 2 input { name: 'x'" + fp32 + "dims: 5 } output { name: 'y'" + fp32 + "dims: 3 }", batched,
			"model 'm', tensor 'x': the model expects 2 dimensions (shape [-1,2]) but the model configuration specifies 2 dimensions " +
				"(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape [-1,5])",
		},
		"narrower output": {
			"input { name: 'x'" + fp32 + "dims: 2 } output { name: 'y'" + fp32 + "dims: 3 }", wide,
			"model 'm', tensor 'y': the model expects 1 dimensions (shape [-1]) but the model configuration specifies 1 dimensions (shape [3])",
		},
		"no batch": {
			"max_batch_size: 2 " + rows, fixed,
			"the first dimension must be -1; but shape expected by the model is [2]",
		},
		"no batch to complete": {
			"max_batch_size: 2", fixed, "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bound(t, tt.text, &tt.model)
			if status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

const overBatch = `max_batch_size: 4
	input { name: 'x' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
	batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: 'n' data_type: TYPE_FP32 source_input: 'x' }
	output { name: 'y' data_type: TYPE_FP32 dims: -1 }
	batch_output { target_name: 'y' kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: 'x' }`

func TestWhole(t *testing.T) {
	t.Parallel()
	m := model{Ins: []port{in("n", -1), in("x", -1)}, Outs: []port{in("y", -1)}, WholeBatch: true}
	b, err := bound(t, overBatch, &m)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range b.Sig.Inputs {
		if names = append(names, p.Name); !p.Unbatched {
			t.Errorf("input '%s' is not over the whole batch", p.Name)
		}
	}
	if diff := cmp.Diff([]string{"x", "n"}, names); diff != "" || !b.Sig.Outputs[0].Unbatched {
		t.Errorf("inputs (-want +got):\n%s output %+v", diff, b.Sig.Outputs[0])
	}
	m.Ins[1].Shape = []int64{-1, 2}
	want := "model 'm', tensor 'x': the ragged input has shape [-1] over the batch, but shape expected by the model is [-1,2]"
	if _, err := bound(t, overBatch, &m); err == nil || err.Error() != want {
		t.Errorf("error = %v, want %q", err, want)
	}
	m.Ins[1].Shape, m.Ins[0].Shape = []int64{-1}, []int64{3}
	if _, err := bound(t, overBatch, &m); err == nil || !strings.Contains(err.Error(), "the batch input has shape [-1] over the batch") {
		t.Errorf("error = %v", err)
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	bare := file([]int64{-1}, []int64{-1})
	b, err := bound(t, "", &bare)
	if err != nil {
		t.Fatal(err)
	}
	var dst [3]int64
	tests := map[string]struct {
		r    bind.Extents
		dims []int64
		want []int64 // nil if it does not match
	}{
		"input":    {b.In[0].Reshape, []int64{5, 1}, []int64{5}},
		"output":   {b.Out[0].Reshape, []int64{5}, []int64{5, 1}},
		"short":    {b.Out[0].Reshape, nil, nil},
		"same":     {nil, []int64{1, 2, 3}, []int64{1, 2, 3}},
		"too long": {nil, []int64{1, 2, 3, 4}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dst := dst
			n, ok := tt.r.Apply(dst[:], tt.dims)
			if ok != (tt.want != nil) || ok && !cmp.Equal(dst[:n], tt.want) {
				t.Errorf("shape = %v, %v, want %v", dst[:n], ok, tt.want)
			}
		})
	}
}

func TestDefaultMaxBatch(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]int{"": 4, "0": 0, "9": 9, "-1": -1, "x": -1, "3000000000": -1} {
		values := map[string]string{bind.KeyMaxBatch: v}
		if v == "" {
			values = nil
		}
		got, err := bind.DefaultMaxBatch("b", &backends.Options{Config: values})
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("default-max-batch-size %q gives %d, %v, want %d", v, got, err, want)
		}
	}
}

func TestUnread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := map[string]struct {
		data []byte
		want string
	}{
		"text":   {[]byte("not a model, but text"), `found 21 bytes that begin with "not a model, but"`},
		"binary": {[]byte{8, 1, 2}, "found 3 bytes)"},
		"empty":  {[]byte{}, "found an empty file"},
		"none":   {nil, "found no file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, name)
			if tt.data != nil {
				if err := os.WriteFile(path, tt.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := bind.UnreadableFile(status.Errorf(status.Internal, "cannot parse"), "a model", path)
			if status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "cannot parse (expected a model, "+tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
	if err := bind.UnreadableFile(nil, "a model", dir); err != nil {
		t.Error(err)
	}
}
