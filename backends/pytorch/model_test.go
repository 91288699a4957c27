//go:build cgo

package pytorch_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// executeCase is one request to a model of testdata, and the outputs that PyTorch's Python interface gives for it.
type executeCase struct {
	model, pbtxt string
	in, want     []backendtest.Value
}

func executeCases() map[string]executeCase {
	int64s := func(dims []int64, elems ...int64) backendtest.Value {
		return backendtest.Of(tensor.Int64, dims, elems...)
	}
	one := func(elems ...float32) backendtest.Value { return fp32([]int64{int64(len(elems))}, elems...) }
	const in, out = `input { data_type: TYPE_FP32 dims: -1 name: "`, `output { data_type: TYPE_FP32 dims: -1 name: "`
	return map[string]executeCase{
		"arguments in another order": {
			"embed.pt", `input { name: "index" data_type: TYPE_INT64 dims: -1 } input { name: "x" data_type: TYPE_FP32 dims: -1 }
				output { name: "O__1" data_type: TYPE_FP32 dims: [ -1, 2 ] } output { name: "O__0" data_type: TYPE_FP32 dims: -1 }`,
			[]backendtest.Value{int64s([]int64{1}, 3), one(4)},
			[]backendtest.Value{fp32([]int64{1, 2}, 6, 7), one(4)},
		},
		"indices in another order": {
			"embed.pt", `input { name: "I__1" data_type: TYPE_INT64 dims: -1 } input { name: "X__0" data_type: TYPE_FP32 dims: -1 } ` + out + `O__0" }`,
			[]backendtest.Value{int64s([]int64{1}, 3), one(4)},
			[]backendtest.Value{one(4)},
		},
		"strict order": {
			"embed.pt", in + `first" } input { name: "second" data_type: TYPE_INT64 dims: -1 } ` + out + `y" }`,
			[]backendtest.Value{one(4), int64s([]int64{1}, 3)},
			[]backendtest.Value{one(4)},
		},
		"dictionaries": {
			"dictionary.pt", in + `b" } ` + in + `a" } ` + out + `diff" } ` + out + `sum" }`,
			[]backendtest.Value{one(1), one(5)},
			[]backendtest.Value{one(4), one(6)},
		},
		"lists": {
			"lists.pt", in + `X__1" } ` + in + `X__0" } ` + out + `Y__0" } ` + out + `Y__1" }`,
			[]backendtest.Value{one(1), one(5, 6)},
			[]backendtest.Value{one(2), one(10, 12)},
		},
		"tuple and an argument left out": {
			"arguments.pt", in + `X__0" } ` + in + `X__1" } ` + out + `y" }`,
			[]backendtest.Value{one(5), one(2)},
			[]backendtest.Value{one(6)},
		},
		"optional input given": {
			"arguments.pt", in + `X__0" } ` + in + `X__1" } ` + in + `X__2" optional: true } ` + out + `y" }`,
			[]backendtest.Value{one(5), one(2), one(1)},
			[]backendtest.Value{one(7)},
		},
		"optional input absent": {
			"arguments.pt", in + `X__0" } ` + in + `X__1" } ` + in + `X__2" optional: true } ` + out + `y" }`,
			[]backendtest.Value{one(5), one(2), {}},
			[]backendtest.Value{one(6)},
		},
		"views, shapes known after a run, rank 0": {
			"shapes.pt", `input { name: "x" data_type: TYPE_FP32 dims: [ 2, 3 ] }
				output { name: "T__0" data_type: TYPE_FP32 dims: [ 3, 2 ] } output { name: "N__1" data_type: TYPE_INT64 dims: [ -1, 2 ] }
				output { name: "S__2" data_type: TYPE_FP32 dims: 1 }`,
			[]backendtest.Value{fp32([]int64{2, 3}, 1, 0, 0, 0, 0, 2)},
			[]backendtest.Value{fp32([]int64{3, 2}, 1, 0, 0, 0, 0, 2), int64s([]int64{2, 2}, 0, 0, 1, 2), one(3)},
		},
		"zero rows": {
			"embed.pt", embed,
			[]backendtest.Value{fp32([]int64{0, 3}), int64s([]int64{0, 1})},
			[]backendtest.Value{fp32([]int64{0, 3}), fp32([]int64{0, 1, 2})},
		},
		"zero rows handed through": {"identity.pt", in + `x" } ` + out + `y" }`, []backendtest.Value{one()}, []backendtest.Value{one()}},
		"scalar": {
			"identity.pt", `input { name: "x" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } } output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }`,
			[]backendtest.Value{fp32([]int64{}, 7)},
			[]backendtest.Value{fp32([]int64{}, 7)},
		},
		"strings with rows": {
			"strings.pt", `max_batch_size: 4 input { name: "text" data_type: TYPE_STRING dims: 1 reshape { shape: [] } }
				output { name: "U__0" data_type: TYPE_STRING dims: 1 reshape { shape: [] } }`,
			[]backendtest.Value{backendtest.Strings([]int64{2}, "a", "bc")},
			[]backendtest.Value{backendtest.Strings([]int64{2}, "A", "BC")},
		},
		"no strings": {
			"strings.pt", `input { name: "text" data_type: TYPE_STRING dims: -1 } output { name: "U__0" data_type: TYPE_STRING dims: -1 }`,
			[]backendtest.Value{backendtest.Strings([]int64{0})},
			[]backendtest.Value{backendtest.Strings([]int64{0})},
		},
	}
}

func TestExecute(t *testing.T) {
	t.Parallel()
	for name, tc := range executeCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tc.model, tc.pbtxt))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // PyTorch profiles the first runs and optimizes the next
				got, err := run(t, m, tc.in...)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("outputs (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestEveryType(t *testing.T) {
	t.Parallel()
	for d := tensor.Bool; d <= tensor.BF16; d++ {
		if d == tensor.Bytes {
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, "identity.pt", `input { name: "x" data_type: `+d.ConfigName()+` dims: [ -1, 3 ] } output { name: "y" data_type: `+d.ConfigName()+` dims: [ -1, 3 ] }`))
			if err != nil {
				t.Fatal(err)
			}
			v := backendtest.Value{DType: d, Dims: []int64{2, 3}, Data: make([]byte, 6*d.Size())}
			for i := range v.Data {
				v.Data[i] = byte(i * 37)
				if d == tensor.Bool {
					v.Data[i] = byte(i % 2)
				}
			}
			got, err := run(t, m, v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]backendtest.Value{v}, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("testdata", "embed.pt"))
	if err != nil {
		t.Fatal(err)
	}
	const x, y = `input { name: "x" data_type: TYPE_FP32 dims: -1 } `, `output { name: "y" data_type: TYPE_FP32 dims: -1 }`
	const index = `input { name: "index" data_type: TYPE_INT64 dims: -1 } `
	for name, tc := range map[string]struct {
		file  string // in testdata, or the file name of data
		data  []byte
		pbtxt string
		want  string
		code  status.Code
	}{
		"nothing declared":     {"embed.pt", nil, "", "must specify at least one input and one output", status.InvalidArg},
		"text":                 {"model.pt", []byte("not a model"), x + y, "expected a TorchScript file at '", status.InvalidArg},
		"empty":                {"model.pt", []byte{}, x + y, "found an empty file", status.InvalidArg},
		"truncated":            {"model.pt", script[:len(script)/2], x + y, "found a damaged or truncated archive", status.InvalidArg},
		"weights":              {"weights.pt", nil, x + y, "found an archive without code", status.InvalidArg},
		"script as a package":  {"model.pt2", script, x + y, "expected a package of AOTInductor's at '", status.InvalidArg},
		"exported program":     {"exported.pt2", nil, x + y, "holds an exported program, expected a compiled one", status.Unsupported},
		"too many inputs":      {"identity.pt", nil, x + index + y, "configuration expects 2 inputs, model provides 1", status.InvalidArg},
		"too few inputs":       {"embed.pt", nil, x + y, "argument 'index' of forward has no input", status.InvalidArg},
		"input index":          {"embed.pt", nil, strings.ReplaceAll(x, `"x"`, `"x__5"`) + strings.ReplaceAll(index, "index", "i__1") + y, "input 'x__5' has index 5, expected one below 2", status.InvalidArg},
		"output index":         {"embed.pt", nil, x + index + strings.ReplaceAll(y, `"y"`, `"y__2"`), "output 'y__2' has index 2, expected one below 2", status.InvalidArg},
		"too many outputs":     {"identity.pt", nil, x + y + strings.ReplaceAll(y, `"y"`, `"z"`), "configuration expects 2 outputs, model provides 1", status.InvalidArg},
		"argument of a number": {"number.pt", nil, x + y, "argument 'n' of forward is of type int", status.Unsupported},
		"string for a tensor":  {"identity.pt", nil, `input { name: "x" data_type: TYPE_STRING dims: -1 } ` + y, "input 'x' is declared as TYPE_STRING, argument 'x' of forward is of type Tensor", status.InvalidArg},
		"strings of two dims":  {"strings.pt", nil, `input { name: "text" data_type: TYPE_STRING dims: [ -1, 1 ] } ` + y, "Triton only supports 1 dimensional List of String as input for 'text'", status.InvalidArg},
		"string output":        {"identity.pt", nil, x + `output { name: "y" data_type: TYPE_STRING dims: -1 }`, "output 'y' is declared as TYPE_STRING, forward makes Tensor", status.InvalidArg},
		"parameter's value":    {"identity.pt", nil, x + y + ` parameters { key: "INFERENCE_MODE" value { string_value: "maybe" } }`, "unexpected value 'maybe' of parameter 'INFERENCE_MODE'", status.InvalidArg},
		"other file":           {"identity.pt", nil, x + y + ` default_model_filename: "other.pt"`, "unable to find '", status.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s backends.Settings
			if tc.data == nil {
				s = settings(t, tc.file, tc.pbtxt)
			} else {
				s = settingsOf(t, tc.file, tc.data, tc.pbtxt)
			}
			_, err := load(t, s)
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code || !strings.HasPrefix(err.Error(), "unable to load model 'm': ") {
				t.Errorf("Load = %s error %v\nwant %s with %q", status.CodeOf(err), err, tc.code, tc.want)
			}
		})
	}
}

// TestDamaged checks that files with overwritten bytes yield an error and do not end the process.
func TestDamaged(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("testdata", "embed.pt"))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(script); at += 97 {
		data := append([]byte(nil), script...)
		data[at] ^= 0xff
		m, err := load(t, settingsOf(t, "model.pt", data, embed))
		if err == nil {
			_, _ = run(t, m, fp32([]int64{1, 3}, 1, 2, 3), backendtest.Of[int64](tensor.Int64, []int64{1, 1}, 3))
		}
	}
}

func TestOutputsRefused(t *testing.T) {
	t.Parallel()
	const x = `input { name: "x" data_type: TYPE_FP32 dims: -1 } `
	for name, tc := range map[string]struct{ model, pbtxt, want string }{
		"datatype": {"identity.pt", x + `output { name: "y" data_type: TYPE_INT64 dims: -1 }`, "unexpected datatype TYPE_FP32 for inference output 'y', expecting TYPE_INT64"},
		"shape":    {"identity.pt", x + `output { name: "y" data_type: TYPE_FP32 dims: 5 }`, "model 'm', output 'y': expected shape [5], the model made [2]"},
		"rank":     {"identity.pt", x + `output { name: "y" data_type: TYPE_FP32 dims: [ -1, 1 ] }`, "the model made [2]"},
		"key":      {"dictionary.pt", strings.ReplaceAll(x, `"x"`, `"a"`) + `output { name: "y" data_type: TYPE_FP32 dims: -1 }`, "model 'm': PyTorch: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, tc.model, tc.pbtxt))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run(t, m, fp32([]int64{2}, 1, 2)); err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != status.Internal {
				t.Errorf("Execute = %v, want an internal error with %q", err, tc.want)
			}
		})
	}
}

// TestWeights checks, with a model that counts in a buffer, which instances share weights.
func TestWeights(t *testing.T) {
	t.Parallel()
	const io = `input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 } `
	for value, want := range map[string]float32{"true": 2, "false": 1} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			m, err := load(t, settings(t, "count.pt", io+`parameters { key: "ENABLE_WEIGHT_SHARING" value { string_value: "`+value+`" } }`))
			if err != nil {
				t.Fatal(err)
			}
			first, err := m.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			second, err := m.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			defer second.Close()
			if _, err := execute(t.Context(), t, first, m, fp32([]int64{1}, 0)); err != nil {
				t.Fatal(err)
			}
			last, err := execute(t.Context(), t, second, m, fp32([]int64{1}, 0))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]backendtest.Value{fp32([]int64{1}, want)}, last); diff != "" {
				t.Errorf("the second instance's response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(`input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 } `)
	for key, value := range map[string]string{
		"INFERENCE_MODE": "false", "DISABLE_OPTIMIZED_EXECUTION": "true", "ENABLE_WEIGHT_SHARING": "1", "ENABLE_CACHE_CLEANING": "TRUE",
		"ENABLE_TENSOR_FUSER": "false", "ENABLE_JIT_EXECUTOR": "true", "ENABLE_JIT_PROFILING": "true",
		"DISABLE_CUDNN": "false", "ENABLE_NVFUSER": "true", "INTRA_OP_THREAD_COUNT": "1", "INTER_OP_THREAD_COUNT": "0", "mine": "yes",
	} {
		text.WriteString(`parameters { key: "` + key + `" value { string_value: "` + value + `" } } `)
	}
	m, err := load(t, settings(t, "identity.pt", text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, m, fp32([]int64{1}, 0)); err != nil {
		t.Error(err)
	}
}

// TestSequence checks the signature of a model with controls and states.
func TestSequence(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "embed.pt", `input { name: "X__0" data_type: TYPE_FP32 dims: 3 } output { name: "Y__0" data_type: TYPE_FP32 dims: 3 }
		sequence_batching { state { input_name: "S__1" output_name: "T__1" data_type: TYPE_INT64 dims: 1 } }`))
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Signature{
		Model: "m", Version: 3,
		Inputs:  []config.Port{{Name: "X__0", DType: tensor.FP32, Dims: tensor.Of(3)}, {Name: "S__1", DType: tensor.Int64, Dims: tensor.Of(1)}},
		Outputs: []config.Port{{Name: "Y__0", DType: tensor.FP32, Dims: tensor.Of(3)}, {Name: "T__1", DType: tensor.Int64, Dims: tensor.Of(1)}},
	}
	if diff := cmp.Diff(want, m.Signature()); diff != "" {
		t.Errorf("signature (-want +got):\n%s", diff)
	}
}

// TestPackage runs a compiled package if testdata/make.py has built one. None is committed because it contains
// machine code.
func TestPackage(t *testing.T) {
	t.Parallel()
	const file = "embed.pt2"
	if _, err := os.Stat(filepath.Join("testdata", file)); err != nil {
		t.Skip("no package: run 'python make.py package' in backends/pytorch/testdata")
	}
	m, err := load(t, settings(t, file, strings.ReplaceAll(strings.ReplaceAll(embed, `"x"`, `"I__0"`), `"index"`, `"I__1"`)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(t, m, fp32([]int64{2, 3}, 0, 1, 2, 3, 4, 5), backendtest.Of[int64](tensor.Int64, []int64{2, 1}, 9, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := []backendtest.Value{fp32([]int64{2, 3}, 2, 2.5, 3, 3.5, 4, 4.5), fp32([]int64{2, 1, 2}, 18, 19, 0, 1)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

func TestCancelledAndClosed(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "identity.pt", `input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 }`))
	if err != nil {
		t.Fatal(err)
	}
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := execute(ctx, t, x, m, fp32([]int64{1}, 1)); status.CodeOf(err) != status.Cancelled {
		t.Errorf("Execute with a cancelled context = %v", err)
	}
	_ = x.Close()
	if _, err := execute(t.Context(), t, x, m, fp32([]int64{1}, 1)); status.CodeOf(err) != status.Unavailable {
		t.Errorf("Execute of a closed instance = %v", err)
	}
	if x, err := m.NewInstance(t.Context(), tensor.Place{Kind: tensor.Device}); err == nil {
		t.Errorf("NewInstance on a device = %v, want an error", x)
	}
	_ = m.Close()
	if x, err := m.NewInstance(t.Context(), tensor.Place{}); err == nil {
		t.Errorf("a closed model makes instances: %v", x)
	}
}

func TestErrorNamesModel(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "embed.pt", embed))
	if err != nil {
		t.Fatal(err)
	}
	_, err = run(t, m, fp32([]int64{1, 3}, 0, 0, 0), backendtest.Of[int64](tensor.Int64, []int64{1, 1}, 10))
	if err == nil || !strings.HasPrefix(err.Error(), "model 'm': PyTorch: ") || !strings.HasSuffix(err.Error(), "index out of range in self") {
		t.Errorf("error of an index outside the table = %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lib := filepath.Join(dir, "libtorch_cpu.so")
	if err := os.WriteFile(lib, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := t.TempDir()
	for _, name := range []string{"libtorch_cpu.so", pytorch.ShimFile()} {
		if err := os.WriteFile(filepath.Join(old, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		config map[string]string
		want   string
		code   status.Code
	}{
		"no library": {map[string]string{"library-path": "/none/libtorch_cpu.so"}, "run 'tutti runtime fetch pytorch'", status.Unavailable},
		"no shim":    {map[string]string{"library-path": lib}, pytorch.ShimFile() + "', which is compiled for it and for this version of the program: run 'tutti runtime fetch pytorch'", status.Unavailable},
		"other shim": {map[string]string{"library-path": old}, "was compiled for another version of this program: run 'tutti runtime fetch pytorch'", status.Unavailable},
		"fraction":   {map[string]string{"gpu-memory-fraction": "1.5"}, "unexpected value '1.5' of pytorch setting 'gpu-memory-fraction': expected a number above 0 and at most 1", status.InvalidArg},
		"device":     {map[string]string{"device": "tpu"}, "unexpected value 'tpu' of pytorch setting 'device'", status.InvalidArg},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := pytorch.NewFactory().New(backends.Options{Config: tc.config})
			if err == nil || !strings.Contains(err.Error(), tc.want) || status.CodeOf(err) != tc.code {
				t.Errorf("New = %v, %v, want %s with %q", b, err, tc.code, tc.want)
			}
		})
	}
}
