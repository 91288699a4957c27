//go:build cgo

package tensorflow_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/tensorflow"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

func options(tb testing.TB) backends.Options {
	tb.Helper()
	return backends.Options{Log: slog.New(slog.DiscardHandler), Config: map[string]string{"library-path": preparedtest.Runtime(tb, "tensorflow")}}
}

func copyFolder(tb testing.TB, to, from string) {
	tb.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		tb.Fatal(err)
	}
}

// settings returns the settings of a model in testdata: a SavedModel, or a graph if the name ends in .graphdef.
func settings(tb testing.TB, model, pbtxt string) backends.Settings {
	tb.Helper()
	dir := tb.TempDir()
	if name, graph := strings.CutSuffix(model, ".graphdef"); graph {
		data, err := os.ReadFile(filepath.Join("testdata", name+".graphdef"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "model.graphdef"), data, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	} else {
		copyFolder(tb, filepath.Join(dir, "model.savedmodel"), filepath.Join("testdata", model+".savedmodel"))
	}
	return at(tb, dir, model, pbtxt)
}

func at(tb testing.TB, dir, model, pbtxt string) backends.Settings {
	tb.Helper()
	cfg := &modelconfig.ModelConfig{}
	if err := prototext.Unmarshal([]byte(pbtxt), cfg); err != nil {
		tb.Fatal(err)
	}
	cfg.Name = model
	return backends.Settings{
		Model: model, Version: 3, Dir: dir, ModelDir: filepath.Dir(dir), Config: cfg, Instances: 1,
		Alloc: tensor.NewPool(), Log: slog.New(slog.DiscardHandler),
	}
}

// example returns the settings of one of the two models in the example repository.
func example(tb testing.TB, name string) backends.Settings {
	tb.Helper()
	dir := filepath.Join("..", "..", "examples", "backends", "tensorflow", name)
	data, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	if err != nil {
		tb.Fatal(err)
	}
	return at(tb, filepath.Join(dir, "1"), name, string(data))
}

// load loads a model, which the test closes.
func load(tb testing.TB, s backends.Settings) (backends.Model, error) {
	tb.Helper()
	b, err := tensorflow.NewFactory().New(options(tb))
	if err != nil {
		tb.Fatal(err)
	}
	m, err := b.Load(tb.Context(), s)
	tb.Cleanup(func() {
		if m != nil {
			_ = m.Close()
		}
		_ = b.Close()
	})
	return m, err
}

// run executes an instance once.
func run(tb testing.TB, m backends.Model, x backends.Instance, in ...backendtest.Value) ([]backendtest.Value, error) {
	tb.Helper()
	a := tensor.NewPool()
	b := &backends.Batch{Requests: make([]backends.Request, 1), Rows: 1, Out: make([]tensor.Tensor, len(m.Signature().Outputs)), Allocator: a}
	for _, v := range in {
		b.In = append(b.In, v.Tensor(tb, a))
	}
	err := x.Execute(tb.Context(), b)
	var out []backendtest.Value
	for i := range b.Out {
		out = append(out, backendtest.ValueOf(&b.Out[i]))
		b.Out[i].Release()
	}
	tensor.ReleaseAll(b.In)
	return out, err
}

func instance(tb testing.TB, m backends.Model) backends.Instance {
	tb.Helper()
	x, err := m.NewInstance(tb.Context(), tensor.Place{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = x.Close() })
	return x
}

// reference is a request with the response of TensorFlow's Python interface.
type reference struct {
	Name, Ensemble  string
	Inputs, Outputs []struct {
		Name, Datatype string
		Shape          []int64
		Data           []float64
	}
}

func expected(tb testing.TB) (list []reference) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "backends", "tensorflow", "expected.json"))
	if err != nil {
		tb.Fatal(err)
	}
	file := struct{ Requests any }{&list}
	if err := json.Unmarshal(data, &file); err != nil {
		tb.Fatal(err)
	}
	return list
}

func numbers[T tensor.Number](list []float64) []T {
	out := make([]T, len(list))
	for i, v := range list {
		out[i] = T(v)
	}
	return out
}

// TestContract runs the contract suite for backends, with the responses of the framework itself.
func TestContract(t *testing.T) {
	t.Parallel()
	o := options(t)
	var fixtures []backendtest.Fixture
	for _, e := range expected(t) {
		f := backendtest.Fixture{Name: e.Name, Rows: int(e.Inputs[0].Shape[0]), Settings: example(t, e.Ensemble)}
		x := numbers[float32](e.Inputs[0].Data)
		f.In = []backendtest.Value{
			backendtest.Of(tensor.FP32, e.Inputs[0].Shape, x...),
			backendtest.Of(tensor.Int64, e.Inputs[1].Shape, numbers[int64](e.Inputs[1].Data)...),
		}
		for _, v := range e.Outputs {
			f.Want = append(f.Want, backendtest.Of(tensor.FP32, v.Shape, numbers[float32](v.Data)...))
		}
		outside := append([]int64{100}, numbers[int64](e.Inputs[1].Data)[1:]...)
		f.Bad = []backendtest.Bad{
			{Name: "dtype", In: []backendtest.Value{backendtest.Of(tensor.Int32, e.Inputs[0].Shape, numbers[int32](e.Inputs[0].Data)...), f.In[1]}, Code: status.InvalidArg},
			{Name: "short", In: []backendtest.Value{backendtest.Of(tensor.FP32, e.Inputs[0].Shape, x[1:]...), f.In[1]}, Code: status.InvalidArg},
			{Name: "outside", In: []backendtest.Value{f.In[0], backendtest.Of(tensor.Int64, e.Inputs[1].Shape, outside...)}, Code: status.Internal},
			{Name: "absent", In: []backendtest.Value{f.In[0], {}}, Code: status.Internal},
			{Name: "count", In: f.In[:1], Code: status.Internal},
		}
		fixtures = append(fixtures, f)
	}
	backendtest.Run(t, tensorflow.NewFactory(), o, append(fixtures,
		backendtest.Fixture{
			Name: "strings", Rows: 2, Settings: settings(t, "strings", "max_batch_size: 2"),
			In: []backendtest.Value{backendtest.Strings([]int64{2, 2}, "a", "", "a string that fits no short one", "\xff\x00z")},
			Want: []backendtest.Value{
				backendtest.Of(tensor.Int32, []int64{2, 2}, int32(1), 0, 31, 3),
				backendtest.Strings([]int64{2, 2}, "a", "", "a string that fits no short one", "\xff\x00z"),
				backendtest.Strings([]int64{2, 2}, "aa", "", strings.Repeat("a string that fits no short one", 2), "\xff\x00z\xff\x00z"),
			},
			Bad: []backendtest.Bad{
				{Name: "too few", In: []backendtest.Value{backendtest.Strings([]int64{2, 2}, "a", "b", "c")}, Code: status.InvalidArg},
				{Name: "too many", In: []backendtest.Value{backendtest.Strings([]int64{2, 1}, "a", "b", "c")}, Code: status.InvalidArg},
				{Name: "cut off", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1, 1}, Data: []byte{9, 0, 0, 0, 'x'}}}, Code: status.InvalidArg},
				{Name: "huge", In: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{1 << 40, 1}, Data: []byte{0, 0, 0, 0}}}, Code: status.InvalidArg},
			},
		},
		backendtest.Fixture{
			Name: "zero rows", Settings: settings(t, "strings", `input { name: "x" data_type: TYPE_STRING dims: [-1, -1] }
				output { name: "same" data_type: TYPE_STRING dims: [-1, -1] } output { name: "length" data_type: TYPE_INT32 dims: [-1, -1] }`),
			In:   []backendtest.Value{backendtest.Strings([]int64{0, 3})},
			Want: []backendtest.Value{{DType: tensor.Bytes, Dims: []int64{0, 3}}, {DType: tensor.Int32, Dims: []int64{0, 3}}},
		},
		backendtest.Fixture{
			Name: "scalar", Settings: settings(t, "scalar", ""),
			In:   []backendtest.Value{backendtest.Of(tensor.FP32, []int64{1}, float32(2))},
			Want: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{1}, float32(3))},
		},
		backendtest.Fixture{
			Name: "constant", Settings: settings(t, "fixed", ""),
			In: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 3}, float32(1), 2, 3, 4, 5, 6)},
			Want: []backendtest.Value{
				backendtest.Of(tensor.FP32, []int64{2}, float32(1), 2),
				backendtest.Of(tensor.FP32, []int64{2, 3}, float32(2), 4, 6, 8, 10, 12),
			},
		},
		backendtest.Fixture{
			Name: "any rank", Settings: settings(t, "anyrank", `input { name: "x" data_type: TYPE_FP32 dims: [2, -1] } output { name: "y" data_type: TYPE_FP32 dims: [2, -1] }`),
			In:   []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 1}, float32(1), 2)},
			Want: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 1}, float32(2), 3)},
		},
		backendtest.Fixture{
			Name: "overflow", Settings: settings(t, "anyrank", `input { name: "x" data_type: TYPE_FP32 dims: [-1, -1, -1] } output { name: "y" data_type: TYPE_FP32 dims: [-1, -1, -1] }`),
			In:   []backendtest.Value{backendtest.Of[float32](tensor.FP32, []int64{5, 0, 7})},
			Want: []backendtest.Value{{DType: tensor.FP32, Dims: []int64{5, 0, 7}}},
			Bad: []backendtest.Bad{
				{Name: "empty", In: []backendtest.Value{backendtest.Of[float32](tensor.FP32, []int64{1 << 40, 1 << 40, 0})}, Code: status.InvalidArg},
				{Name: "full", In: []backendtest.Value{backendtest.Of[float32](tensor.FP32, []int64{1 << 40, 1 << 40, 4})}, Code: status.InvalidArg},
				{Name: "wide", In: []backendtest.Value{backendtest.Of[float32](tensor.FP32, []int64{0, 1 << 62, 1})}, Code: status.InvalidArg},
			},
		},
		backendtest.Fixture{
			Name: "ones", Rows: 2, Settings: settings(t, "two", `max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [1, 2] reshape { shape: 2 } }
				output { name: "y" data_type: TYPE_FP32 dims: [2, 1] reshape { shape: 2 } }`),
			In:   []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 2}, float32(1), 2, 3, 4)},
			Want: []backendtest.Value{backendtest.Of(tensor.FP32, []int64{2, 2}, float32(2), 4, 6, 8)},
		},
		allTypes(t),
	)...)
}

// allTypes passes a tensor of every element type through a model.
func allTypes(t *testing.T) backendtest.Fixture {
	t.Helper()
	f := backendtest.Fixture{Name: "types", Rows: 2, Settings: settings(t, "types", "max_batch_size: 2")}
	for _, d := range []tensor.DType{
		tensor.BF16, tensor.Bool, tensor.FP16, tensor.FP32, tensor.FP64, tensor.Int16, tensor.Int32, tensor.Int64, tensor.Int8,
		tensor.Bytes, tensor.Uint16, tensor.Uint32, tensor.Uint64, tensor.Uint8,
	} {
		v := backendtest.Value{DType: d, Dims: []int64{2, 1}, Data: make([]byte, 2*d.Size())}
		for i := range v.Data {
			v.Data[i] = byte(i) & 1
		}
		if d == tensor.Bytes {
			v = backendtest.Strings([]int64{2, 1}, "x", "")
		}
		f.In, f.Want = append(f.In, v), append(f.Want, v)
	}
	return f
}

func TestGraph(t *testing.T) {
	t.Parallel()
	const ports = `platform: "tensorflow_graphdef" max_batch_size: 4 input { name: "x:0" data_type: TYPE_FP32 dims: 2 }
		output { name: "y" data_type: TYPE_FP32 dims: 2 } `
	const file = `parameters { key: "TF_INIT_OPS_FILE" value { string_value: "init.json" } }`
	in := backendtest.Of(tensor.FP32, []int64{1, 2}, float32(1), 2)
	for name, tc := range map[string]struct{ pbtxt, init, want string }{
		"initialised":     {ports + file, `{"init_ops": ["fill"]}`, ""},
		"not initialised": {ports, "", "tensorflow error 9"},
		"no operation":    {ports + file, `{"init_ops": ["fil"]}`, "the graph has no operation 'fil', which the file of parameter 'TF_INIT_OPS_FILE' names"},
		"no list":         {ports + file, `{}`, `expected {"init_ops": ["name", ...]}`},
		"no file":         {ports + file, "", "which parameter 'TF_INIT_OPS_FILE' names"},
		"outside":         {strings.Replace(ports+file, "init.json", "../init.json", 1), "", "expected a file in the version folder"},
		"no ports":        {`platform: "tensorflow_graphdef"`, "", "the configuration must declare inputs and outputs"},
		"no tensor":       {strings.Replace(ports, `"y"`, `"z"`, 1), "", "unexpected inference output 'z', the graph has no tensor of that name"},
		"no result":       {strings.Replace(ports, `"y"`, `"y:1"`, 1), "", "unexpected inference output 'y:1', the graph has no tensor of that name"},
		"variant":         {strings.Replace(ports, `"y"`, `"list"`, 1), "", "unsupported datatype variant of output 'list'"},
		"datatype":        {strings.Replace(ports, "TYPE_FP32", "TYPE_FP64", 1), "", "configuration expects datatype TYPE_FP64 for input 'x:0', model provides TYPE_FP32"},
		"shape":           {strings.Replace(ports, "dims: 2", "dims: 3", 1), "", "tensor 'x:0': the model expects 2 dimensions (shape [-1,2])"},
		"no platform":     {strings.TrimPrefix(ports, `platform: "tensorflow_graphdef"`) + file, `{"init_ops": ["fill"]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings(t, "initialised.graphdef", tc.pbtxt)
			if tc.init != "" {
				if err := os.WriteFile(filepath.Join(s.Dir, "init.json"), []byte(tc.init), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := load(t, s)
			var got []backendtest.Value
			if err == nil {
				got, err = run(t, m, instance(t, m), in)
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]backendtest.Value{backendtest.Of(tensor.FP32, []int64{1, 2}, float32(11), 22)}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKeeper checks that the memory of inputs that a model retains in a variable is not reused.
func TestKeeper(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "keeper", `input { name: "x" data_type: TYPE_FP32 dims: -1 }
		output { name: "before" data_type: TYPE_FP32 dims: -1 } output { name: "runs" data_type: TYPE_INT64 reshape {} dims: 1 }`))
	if err != nil {
		t.Fatal(err)
	}
	x, other := instance(t, m), instance(t, m)
	before := []float32{0, 0}
	for n := range int64(20) {
		now := make([]float32, 1+n*100)
		for i := range now {
			now[i] = float32(n) + float32(i)/1024
		}
		got, err := run(t, m, x, backendtest.Of(tensor.FP32, []int64{int64(len(now))}, now...))
		if err != nil {
			t.Fatal(err)
		}
		want := []backendtest.Value{backendtest.Of(tensor.FP32, []int64{int64(len(before))}, before...), backendtest.Of(tensor.Int64, []int64{}, n+1)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("run %d (-want +got):\n%s", n, diff)
		}
		before = now
	}
	got, err := run(t, m, other, backendtest.Of(tensor.FP32, []int64{1}, float32(1)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(backendtest.Of(tensor.Int64, []int64{}, int64(1)), got[1]); diff != "" {
		t.Errorf("another instance has separate variables (-want +got):\n%s", diff)
	}
}

// TestShare checks, by counting runs, which instances share a session.
func TestShare(t *testing.T) {
	t.Parallel()
	m, err := load(t, settings(t, "keeper", `parameters { key: "MAX_SESSION_SHARE_COUNT" value { string_value: "2" } }
		parameters { key: "TF_USE_PER_SESSION_THREADS" value { string_value: "On" } }
		parameters { key: "TF_NUM_INTRA_THREADS" value { string_value: "1" } }
		parameters { key: "TF_NUM_INTER_THREADS" value { string_value: "1" } }`))
	if err != nil {
		t.Fatal(err)
	}
	if n := m.(backends.ThreadedModel).Threads(); n != 1 {
		t.Errorf("%d threads, want 1", n)
	}
	var runs []int64
	for range 3 {
		got, err := run(t, m, instance(t, m), backendtest.Of(tensor.FP32, []int64{1}, float32(1)))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, int64(got[1].Data[0]))
	}
	if diff := cmp.Diff([]int64{1, 2, 1}, runs); diff != "" {
		t.Errorf("runs of three instances (-want +got):\n%s", diff)
	}
}

// TestRagged checks a batch whose elements are joined in one dimension, as the scheduler does for ragged inputs.
func TestRagged(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"keeper", "anyrank"} {
		out := map[string]string{"keeper": "before", "anyrank": "y"}[model]
		m, err := load(t, settings(t, model, `max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
			output { name: "`+out+`" data_type: TYPE_FP32 dims: -1 }
			batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "`+out+`" source_input: "x" }`))
		if err != nil {
			t.Fatal(err)
		}
		if sig := m.Signature(); !sig.Inputs[0].Unbatched || !sig.Outputs[0].Unbatched {
			t.Errorf("%s: ports %+v, want complete ones", model, sig)
		}
		if got, err := run(t, m, instance(t, m), backendtest.Of(tensor.FP32, []int64{3}, float32(1), 2, 3)); err != nil || got[0].Dims == nil {
			t.Errorf("%s: %v %v", model, got, err)
		}
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]string{"": "y", "double": "y", "half": "z"} {
		pbtxt := ""
		if choice != "" {
			pbtxt = `parameters { key: "TF_SIGNATURE_DEF" value { string_value: "` + choice + `" } }`
		}
		m, err := load(t, settings(t, "two", pbtxt))
		if err != nil {
			t.Fatal(err)
		}
		sig := m.Signature()
		if len(sig.Outputs) != 1 || sig.Outputs[0].Name != want || sig.MaxBatch != 4 || !sig.Inputs[0].Dims.Equal(tensor.Of(2)) {
			t.Errorf("signature %q: %+v, want output %s", choice, sig, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	b, err := tensorflow.NewFactory().New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if text := b.(backends.Describer).Describe(); !strings.HasPrefix(text, "TensorFlow 2.") || !strings.Contains(text, "libtensorflow") {
		t.Errorf("Describe = %q", text)
	}
}
