package jsonvalue_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/jsonvalue"
	"github.com/tutti-server/tutti/steps/steptest"
)

func port(name string, d tensor.DType, dims ...int64) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(dims...)}
}

// doc is one document of a batch of one row.
func doc(text string) []steptest.Value { return []steptest.Value{steptest.Text([]int64{1, 1}, text)} }

func text(v ...string) steptest.Value { return steptest.Text([]int64{1, int64(len(v))}, v...) }

// raw is a row of little-endian elements.
func raw(d tensor.DType, elements ...uint64) steptest.Value {
	v := steptest.Value{DType: d, Dims: []int64{1, int64(len(elements))}}
	for _, e := range elements {
		var wide [8]byte
		binary.LittleEndian.PutUint64(wide[:], e)
		v.Data = append(v.Data, wide[:d.Size()]...)
	}
	return v
}

func TestExtract(t *testing.T) {
	t.Parallel()
	typed := func(name string, p config.Port, requests ...steptest.Request) steptest.Case {
		return steptest.Case{Name: name, MaxBatch: 8, Params: map[string]string{"paths": fmt.Sprintf(`{%q: "v"}`, p.Name)}, Outputs: []config.Port{p}, Requests: requests}
	}
	is := func(in string, want steptest.Value) steptest.Request {
		return steptest.Request{Inputs: doc(`{"v": ` + in + `}`), Want: []steptest.Value{want}}
	}
	fails := func(in, want string) steptest.Request { return steptest.Request{Inputs: doc(in), WantErr: want} }
	steptest.Run(
		t, jsonvalue.NewExtractFactory(),
		typed("text", port("T", tensor.Bytes, 1), is(`"aé\n"`, text("aé\n")), is(`[1, "x"]`, text(`[1, "x"]`)), is(`7`, text("7")), fails(`{"v": null}`, "nothing at 'v'"), fails(`{`, "no JSON document"), fails(``, "no JSON document")),
		typed("texts", port("T", tensor.Bytes, 2), is(`["a", {"b": 1}]`, text("a", `{"b": 1}`)), fails(`{"v": ["a"]}`, "has 1 elements, expected 2"), fails(`{"v": "a"}`, `is "a", expected an array`)),
		typed("int32", port("I", tensor.Int32, 1), is(`-5`, raw(tensor.Int32, uint64(1<<32-5))), fails(`{"v": 2147483648}`, "an integer in the range of INT32"), fails(`{"v": 1.5}`, "an integer"), fails(`{"v": "1"}`, "an integer")),
		typed("uint64", port("I", tensor.Uint64, 1), is(`18446744073709551615`, raw(tensor.Uint64, math.MaxUint64)), fails(`{"v": -1}`, "range of UINT64")),
		typed("bool", port("B", tensor.Bool, 2), is(`[true, false]`, raw(tensor.Bool, 1, 0)), fails(`{"v": [1, 0]}`, "expected true or false")),
		typed("fp32", port("F", tensor.FP32, 2), is(`[0.1, -1e3]`, raw(tensor.FP32, uint64(math.Float32bits(0.1)), uint64(math.Float32bits(-1000)))), fails(`{"v": [1e39, 0]}`, "range of FP32")),
		typed("fp64", port("F", tensor.FP64, 1), is(`0.1`, raw(tensor.FP64, math.Float64bits(0.1)))),
		steptest.Case{
			Name: "any length", Params: map[string]string{"paths": `{"NAMES": "items.#.name"}`, "defaults": `{"N": 3}`},
			Outputs: []config.Port{port("NAMES", tensor.Bytes, -1), port("N", tensor.Int64, 1)},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.Text([]int64{1}, `{"items": [{"name": "a"}, {"x": 1}, {"name": "b"}]}`)}, Want: []steptest.Value{steptest.Text([]int64{2}, "a", "b"), steptest.I64([]int64{1}, 3)}},
				{Inputs: []steptest.Value{steptest.Text([]int64{1}, `{"N": 4, "items": []}`)}, Want: []steptest.Value{steptest.Text([]int64{0}), steptest.I64([]int64{1}, 4)}},
			},
		},
		typed("deep", port("T", tensor.Bytes, 1), fails(strings.Repeat("[", 1<<20), "no JSON document")),
	)
}

func TestBuild(t *testing.T) {
	t.Parallel()
	all := []config.Port{port("s", tensor.Bytes, 1), port("i", tensor.Int8, -1), port("f", tensor.FP32, 2, 2), port("b", tensor.Bool, 1), port("j", tensor.Bytes, 1)}
	all[3].Optional = true
	f32 := func(v ...float32) steptest.Value { return steptest.F32([]int64{1, 2, 2}, v...) }
	nan := float32(math.NaN())
	steptest.Run(
		t, jsonvalue.NewBuildFactory(),
		steptest.Case{
			Name: "object", MaxBatch: 8, Inputs: all, Params: map[string]string{"names": `{"s": "a \"b\""}`, "raw": `["j"]`},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{text("é\x01\"\n\xff"), raw(tensor.Int8, 255, 127), f32(0.1, 1e-7, -2, 1e21), raw(tensor.Bool, 1), text(`{"k": [1]}`)},
					Want:   []steptest.Value{text(`{"a \"b\"":"é\u0001\"\n` + "\ufffd" + `","i":[-1,127],"f":[[0.1,1e-07],[-2,1e+21]],"b":true,"j":{"k": [1]}}`)},
				},
				{Inputs: []steptest.Value{text(""), raw(tensor.Int8, 1, 2), f32(nan, 0, 0, 0), raw(tensor.Bool, 0), text("1")}, WantErr: "NaN, which JSON does not have"},
				{Inputs: []steptest.Value{text(""), raw(tensor.Int8, 1, 2), f32(0, 0, 0, 0), raw(tensor.Bool, 0), text("{")}, WantErr: "is no JSON"},
			},
		},
		steptest.Case{
			Name: "arrays", Inputs: []config.Port{port("x", tensor.Uint64, 1), port("y", tensor.FP64, 1)}, Params: map[string]string{"arrays": "true", "nan": "null"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{
					{DType: tensor.Uint64, Dims: []int64{1}, Data: raw(tensor.Uint64, math.MaxUint64).Data},
					{DType: tensor.FP64, Dims: []int64{1}, Data: raw(tensor.FP64, math.Float64bits(math.Inf(1))).Data},
				},
				Want: []steptest.Value{steptest.Text([]int64{1}, `{"x":[18446744073709551615],"y":[null]}`)},
			}},
		},
	)
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	half := []config.Port{port("H", tensor.FP16, 1)}
	for want, c := range map[string]struct {
		f      steps.Factory
		params map[string]string
		s      steps.Settings
	}{
		"is TYPE_FP16, which JSON":           {jsonvalue.NewExtractFactory(), nil, steps.Settings{Outputs: half}},
		"input 'H' of model 'm' is TYPE":     {jsonvalue.NewBuildFactory(), nil, steps.Settings{Inputs: half}},
		"expected one dimension":             {jsonvalue.NewExtractFactory(), nil, steps.Settings{MaxBatch: 2, Outputs: []config.Port{port("X", tensor.Int8, -1)}}},
		"expected a JSON object of strings":  {jsonvalue.NewExtractFactory(), map[string]string{"paths": "[]"}, steps.Settings{}},
		"'paths' of model 'm' names 'Y'":     {jsonvalue.NewExtractFactory(), map[string]string{"paths": `{"Y": "y"}`}, steps.Settings{}},
		"'defaults' of model 'm' names 'Y'":  {jsonvalue.NewExtractFactory(), map[string]string{"defaults": `{"Y": 1}`}, steps.Settings{}},
		"'defaults' of model 'm': the value": {jsonvalue.NewExtractFactory(), map[string]string{"defaults": `{"X": 1.5}`}, steps.Settings{Outputs: []config.Port{port("X", tensor.Int8, 1)}}},
		"has no input 'Q'":                   {jsonvalue.NewBuildFactory(), map[string]string{"names": `{"Q": "q"}`}, steps.Settings{}},
		"expected TYPE_STRING":               {jsonvalue.NewBuildFactory(), map[string]string{"raw": `["X"]`}, steps.Settings{Inputs: []config.Port{port("X", tensor.Int8, 1)}}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := c.s
			s.Model = "m"
			var err error
			if s.Params, err = c.f.Resolve(c.params); err == nil {
				_, err = c.f.New(&s)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

// FuzzRoundTrip writes a text and reads it back.
func FuzzRoundTrip(f *testing.F) {
	f.Add("a\"\\\x00é", int64(-7), 0.25)
	f.Fuzz(func(t *testing.T, s string, n int64, x float64) {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return
		}
		in := []config.Port{port("s", tensor.Bytes, 1), port("n", tensor.Int64, 1), port("x", tensor.FP64, 1)}
		out := ask(t, jsonvalue.NewBuildFactory(), steps.Settings{Inputs: in}, steptest.Text([]int64{1}, s), raw(tensor.Int64, uint64(n)), raw(tensor.FP64, math.Float64bits(x)))
		built, _, _ := tensor.NextBytes(out[0].Bytes())
		if !json.Valid(built) {
			t.Fatalf("%q is no JSON", built)
		}
		back := ask(t, jsonvalue.NewExtractFactory(), steps.Settings{Outputs: in}, steptest.Text([]int64{1}, string(built)))
		got, _, _ := tensor.NextBytes(back[0].Bytes())
		if string(got) != strings.ToValidUTF8(s, "\ufffd") && !strings.Contains(s, "\xff") && strings.ToValidUTF8(s, "") == s {
			t.Errorf("%q came back as %q", s, got)
		}
		if m := tensor.Slice[int64](&back[1])[0]; m != n {
			t.Errorf("%d came back as %d", n, m)
		}
		if y := tensor.Slice[float64](&back[2])[0]; y != x {
			t.Errorf("%v came back as %v", x, y)
		}
	})
}

// FuzzExtract reads any path of any document.
func FuzzExtract(f *testing.F) {
	f.Add(`{"a": [1, {"b": "c"}]}`, "a.#.b")
	f.Fuzz(func(t *testing.T, document, path string) {
		paths, err := json.Marshal(map[string]string{"X": path})
		if err != nil {
			t.Skip()
		}
		s := steps.Settings{Outputs: []config.Port{port("X", tensor.Bytes, -1)}, Params: map[string]string{"paths": string(paths), "defaults": "{}"}}
		ask(t, jsonvalue.NewExtractFactory(), s, steptest.Text([]int64{1}, document))
	})
}

// ask runs a step without a batch dimension.
func ask(tb testing.TB, f steps.Factory, s steps.Settings, in ...steptest.Value) []tensor.Tensor {
	tb.Helper()
	if s.Params == nil {
		s.Params, _ = f.Resolve(nil)
	}
	step, err := f.New(&s)
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	b := &backends.Batch{Rows: 1, Requests: []backends.Request{{Rows: 1}}, Out: make([]tensor.Tensor, max(1, len(s.Outputs))), Allocator: pool}
	for _, v := range in {
		t, err := tensor.NewBytes(pool, tensor.Of(1), len(v.Data))
		if err != nil {
			tb.Fatal(err)
		}
		t.DType = v.DType
		copy(t.Bytes(), v.Data)
		b.In = append(b.In, t)
	}
	if err := step.Run(tb.Context(), b); err != nil {
		tb.Fatal(err)
	}
	return b.Out
}

func BenchmarkPeer(b *testing.B) {
	const rows = 64
	document := `{"user": {"name": "Ada", "id": 17}, "items": [{"name": "x", "score": 0.25}, {"name": "y", "score": 0.5}], "text": "` + strings.Repeat("words ", 40) + `"}`
	f := jsonvalue.NewExtractFactory()
	params, err := f.Resolve(map[string]string{"paths": `{"ID": "user.id", "SCORES": "items.#.score"}`})
	if err != nil {
		b.Fatal(err)
	}
	step, err := f.New(&steps.Settings{MaxBatch: rows, Params: params, Outputs: []config.Port{port("ID", tensor.Int32, 1), port("SCORES", tensor.FP32, 2)}})
	if err != nil {
		b.Fatal(err)
	}
	pool := tensor.NewPool()
	var data []byte
	for range rows {
		data = tensor.AppendBytes(data, document)
	}
	in, err := tensor.NewBytes(pool, tensor.Of(rows, 1), len(data))
	if err != nil {
		b.Fatal(err)
	}
	copy(in.Bytes(), data)
	batch := &backends.Batch{Rows: rows, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 2), Allocator: pool}
	steptest.Peer(b, "extract", rows, func() {
		if err := step.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	})
}
