package stringop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/stringop"
)

func text(v ...string) steptest.Value { return steptest.Text([]int64{int64(len(v))}, v...) }

func rows(v ...string) steptest.Value { return steptest.Text([]int64{int64(len(v)), 1}, v...) }

func i32(v ...int32) steptest.Value { return steptest.I32([]int64{int64(len(v))}, v...) }

func bools(v ...byte) steptest.Value {
	return steptest.Value{DType: tensor.Bool, Dims: []int64{int64(len(v))}, Data: v}
}

func port(name string, dims ...int64) config.Port {
	return config.Port{Name: name, DType: tensor.Bytes, Dims: tensor.Of(dims...)}
}

// simple is a case of one input without a batch dimension.
func simple(name string, in, want steptest.Value, params ...string) steptest.Case {
	c := steptest.Case{Name: name, Params: map[string]string{}, Requests: []steptest.Request{{Inputs: []steptest.Value{in}, Want: []steptest.Value{want}}}}
	for i := 0; i < len(params); i += 2 {
		c.Params[params[i]] = params[i+1]
	}
	return c
}

// batch is a case of requests of one row each.
func batch(name string, requests []steptest.Request, params ...string) steptest.Case {
	c := simple(name, steptest.Value{}, steptest.Value{}, params...)
	c.MaxBatch, c.Requests = 8, requests
	return c
}

func one(in, want steptest.Value) steptest.Request {
	return steptest.Request{Inputs: []steptest.Value{in}, Want: []steptest.Value{want}}
}

func fails(in steptest.Value, want string) steptest.Request {
	return steptest.Request{Inputs: []steptest.Value{in}, WantErr: want}
}

// The wanted texts of lower, upper and title are those of Python's str.
func TestContract(t *testing.T) {
	t.Parallel()
	several := steptest.Case{
		Name: "concat", Params: map[string]string{"op": "concat", "separator": "-"}, MaxBatch: 4,
		Inputs: []config.Port{port("A", -1), port("B", 1)}, Outputs: []config.Port{port("AB", -1)},
		Requests: []steptest.Request{
			{Inputs: []steptest.Value{steptest.Text([]int64{1, 2}, "a", "b"), rows("x")}, Want: []steptest.Value{steptest.Text([]int64{1, 2}, "a-x", "b-x")}},
			{Inputs: []steptest.Value{steptest.Text([]int64{2, 2}, "a", "", "ü", "d"), rows("", "y")}, Want: []steptest.Value{steptest.Text([]int64{2, 2}, "a-", "-", "ü-y", "d-y")}},
		},
	}
	template := steptest.Case{
		Name: "template", Params: map[string]string{"op": "template", "template": "{{{Q}}}: {C} ({Q})", "separator": ", "}, MaxBatch: 4,
		Inputs: []config.Port{port("Q", 1), port("C", -1)},
		Requests: []steptest.Request{
			{Inputs: []steptest.Value{rows("why"), steptest.Text([]int64{1, 2}, "one", "two")}, Want: []steptest.Value{rows("{why}: one, two (why)")}},
			{Inputs: []steptest.Value{rows("a", "b"), steptest.Text([]int64{2, 1}, "c", "d")}, Want: []steptest.Value{rows("{a}: c (a)", "{b}: d (b)")}},
		},
	}
	steptest.Run(
		t, stringop.NewFactory(), several, template,
		simple("lower", text("ÄB", "ΟΔΥΣΣΕΥΣ", "İ", ""), text("äb", "οδυσσευς", "i̇", ""), "op", "lower"),
		simple("upper", text("straße", "ﬁn", "ǆ"), text("STRASSE", "FIN", "Ǆ"), "op", "upper"),
		simple("title", text("they're ÉTÉ 3d", "ǆ"), text("They'Re Été 3D", "ǅ"), "op", "title"),
		simple("strip", text(" \u3000a b\t", ""), text("a b", ""), "op", "strip"),
		simple("strip chars", text("..a.b!"), text("a.b"), "op", "strip", "chars", ".!"),
		simple("replace", text("2024-05-01", "none"), text("01.05.2024", "none"), "op", "replace", "pattern", `(\d+)-(\d+)-(\d+)`, "with", "$3.$2.$1"),
		simple("match", text("ab", "xab", ""), bools(1, 0, 0), "op", "match", "pattern", "^ab"),
		simple("extract", text("id=42;", "id=", "none"), text("42", "", ""), "op", "extract", "pattern", `id=(?P<n>\d+)?`, "group", "n"),
		simple("length", text("añ", "👍🏽", ""), i32(2, 2, 0), "op", "length"),
		simple("join", text("a", "b", ""), text("a b "), "op", "join", "separator", " "),
		simple("split", text(" a  b\tc "), text("a", "b", "c"), "op", "split"),
		simple("split by", text("a,,b,"), text("a", "", "b", ""), "op", "split", "separator", ","),
		simple("split nothing", text(""), steptest.Text([]int64{0}), "op", "split"),
		batch("split batch", []steptest.Request{
			one(rows("a,b,c"), steptest.Text([]int64{1, 2}, "a", "b")),
			one(rows("x", ""), steptest.Text([]int64{2, 2}, "x", "", "", "")),
		}, "op", "split", "separator", ",", "fields", "2"),
		simple("encode", text("a\x00\xff", ""), text("YQD_", ""), "op", "base64_encode", "alphabet", "url"),
		batch("decode", []steptest.Request{
			one(rows("YQA="), rows("a\x00")), fails(rows("YQ"), "is not base64"), one(rows(""), rows("")),
		}, "op", "base64_decode"),
		batch("refuse", []steptest.Request{one(rows("a"), rows("A")), fails(rows("a\xffb"), "not UTF-8")}, "op", "upper", "invalid", "refuse"),
		simple("invalid", text("a\xff\xfeB"), text("a\ufffd\ufffdb"), "op", "lower"),
		simple("keep", text("A\xffB"), text("A\xffB"), "op", "strip", "invalid", "keep"),
	)
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]steptest.Case{
		"needs parameter 'op'":               {},
		"expected one of lower":              {Params: map[string]string{"op": "shout"}},
		"needs parameter 'pattern'":          {Params: map[string]string{"op": "match"}},
		"missing closing ]":                  {Params: map[string]string{"op": "match", "pattern": "["}},
		"a number up to 1":                   {Params: map[string]string{"op": "extract", "pattern": "(a)", "group": "2"}},
		"every row of a batch is split":      {Params: map[string]string{"op": "split"}, MaxBatch: 2},
		"needs parameter 'template'":         {Params: map[string]string{"op": "template"}},
		"template has '{X}', expected":       {Params: map[string]string{"op": "template", "template": "a {X}"}},
		"template has '} {INPUT}', expected": {Params: map[string]string{"op": "template", "template": "} {INPUT}"}},
		"template does not name input 'B'":   {Params: map[string]string{"op": "template", "template": "{A}"}, Inputs: []config.Port{port("A", 1), port("B", 1)}},
		"declares 2 inputs, but operation":   {Params: map[string]string{"op": "lower"}, Inputs: []config.Port{port("A", 1), port("B", 1)}},
		"is TYPE_INT32, but step 'string'":   {Params: map[string]string{"op": "lower"}, Inputs: []config.Port{{Name: "A", DType: tensor.Int32, Dims: tensor.Of(1)}}},
		"declares 2 outputs":                 {Params: map[string]string{"op": "lower"}, Outputs: []config.Port{port("A", 1), port("B", 1)}},
		"input 'A' of model 'tested' is opt": {Params: map[string]string{"op": "lower"}, Inputs: []config.Port{{Name: "A", DType: tensor.Bytes, Dims: tensor.Of(1), Optional: true}}},
	} {
		c.Name, c.WantNewErr = want, want
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			f := stringop.NewFactory()
			params, err := f.Resolve(c.Params)
			if err == nil {
				_, err = f.New(&steps.Settings{Model: "tested", MaxBatch: c.MaxBatch, Params: params, Inputs: c.Inputs, Outputs: c.Outputs})
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

// run makes a step of one input and returns what calls it with texts.
func run(tb testing.TB, params map[string]string, texts ...string) func() {
	tb.Helper()
	f := stringop.NewFactory()
	all, err := f.Resolve(params)
	if err != nil {
		tb.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "tested", MaxBatch: 1 << 10, Params: all})
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	var data []byte
	for _, s := range texts {
		data = tensor.AppendBytes(data, s)
	}
	in, err := tensor.NewBytes(pool, tensor.Of(int64(len(texts)), 1), len(data))
	if err != nil {
		tb.Fatal(err)
	}
	copy(in.Bytes(), data)
	b := &backends.Batch{Rows: len(texts), In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: pool}
	for i := range texts {
		b.Requests = append(b.Requests, backends.Request{First: i, Rows: 1})
	}
	return func() {
		if err := step.Run(context.Background(), b); err != nil {
			tb.Fatal(err)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a b", "(a+)+$", "$1")
	f.Add("\xff{", "[", "")
	f.Fuzz(func(t *testing.T, text, pattern, with string) {
		for _, op := range []string{"lower", "upper", "title", "strip", "length", "join", "base64_encode", "base64_decode"} {
			run(t, map[string]string{"op": op}, text, with)()
		}
		run(t, map[string]string{"op": "split", "fields": "3", "separator": with}, text)()
		step := stringop.NewFactory()
		for _, op := range []string{"replace", "match", "extract"} {
			params, err := step.Resolve(map[string]string{"op": op, "pattern": pattern, "with": with})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := step.New(&steps.Settings{Model: "m", Params: params}); err == nil {
				run(t, params, text)()
			}
		}
	})
}

func BenchmarkPeer(b *testing.B) {
	var texts []string
	for i := range 64 {
		texts = append(texts, strings.Repeat("The Quick brown Fox, ", 1+i%4))
	}
	steptest.Peer(b, "lower", len(texts), run(b, map[string]string{"op": "lower"}, texts...))
	steptest.Peer(b, "replace", len(texts), run(b, map[string]string{"op": "replace", "pattern": `[^a-zA-Z ]+`, "with": ""}, texts...))
	steptest.Peer(b, "split", len(texts), run(b, map[string]string{"op": "split", "fields": "4"}, texts...))
}
