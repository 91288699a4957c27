package condition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/condition"
	"github.com/tutti-server/tutti/core/tensor"
)

// texts returns a BYTES tensor.
func texts(tb testing.TB, shape tensor.Shape, list ...string) tensor.Tensor {
	tb.Helper()
	var b []byte
	for _, s := range list {
		b = tensor.AppendBytes(b, s)
	}
	x, err := tensor.NewBytes(tensor.NewPool(), shape, len(b))
	if err != nil {
		tb.Fatal(err)
	}
	copy(x.Bytes(), b)
	tb.Cleanup(x.Release)
	return x
}

// numbers returns a tensor of numbers.
func numbers[T tensor.Number](tb testing.TB, d tensor.DType, shape tensor.Shape, list ...T) tensor.Tensor {
	tb.Helper()
	x, err := tensor.New(tensor.NewPool(), d, shape)
	if err != nil {
		tb.Fatal(err)
	}
	copy(tensor.Slice[T](&x), list)
	tb.Cleanup(x.Release)
	return x
}

// batch has three rows of every data type.
func batch(tb testing.TB) map[string]tensor.Tensor {
	tb.Helper()
	return map[string]tensor.Tensor{
		"score": numbers[float32](tb, tensor.FP32, tensor.Of(3, 2), 0.9, 0.1, 0.2, 0.8, 0.5, 0.5),
		"f64":   numbers(tb, tensor.FP64, tensor.Of(3, 1), 1.5, 2.5, 3.5),
		"f16":   numbers(tb, tensor.FP16, tensor.Of(3, 1), tensor.Float32ToFP16(1), tensor.Float32ToFP16(2), tensor.Float32ToFP16(3)),
		"bf16":  numbers(tb, tensor.BF16, tensor.Of(3, 1), tensor.Float32ToBF16(1), tensor.Float32ToBF16(2), tensor.Float32ToBF16(3)),
		"i64":   numbers[int64](tb, tensor.Int64, tensor.Of(3, 1), -1, 0, 1),
		"i32":   numbers[int32](tb, tensor.Int32, tensor.Of(3, 1), -1, 0, 1),
		"i16":   numbers[int16](tb, tensor.Int16, tensor.Of(3, 1), -1, 0, 1),
		"i8":    numbers[int8](tb, tensor.Int8, tensor.Of(3, 1), -1, 0, 1),
		"u64":   numbers[uint64](tb, tensor.Uint64, tensor.Of(3, 1), 1, 2, 1<<63),
		"u32":   numbers[uint32](tb, tensor.Uint32, tensor.Of(3, 1), 1, 2, 1<<31),
		"u16":   numbers[uint16](tb, tensor.Uint16, tensor.Of(3, 1), 1, 2, 1<<15),
		"u8":    numbers[uint8](tb, tensor.Uint8, tensor.Of(3, 1), 1, 2, 255),
		"flag":  numbers[uint8](tb, tensor.Bool, tensor.Of(3, 1), 1, 0, 1),
		"text":  texts(tb, tensor.Of(3, 2), "a", "", "b", "bb", "c", "ccc"),
	}
}

// rows compiles an expression for the tensors of a batch and evaluates it.
func rows(tb testing.TB, text string, all map[string]tensor.Tensor, batched bool, n int, params map[string]any) ([]int32, error) {
	tb.Helper()
	p, err := condition.Parse(text)
	if err != nil {
		return nil, err
	}
	var vars []condition.Variable
	var in []tensor.Tensor
	for _, name := range p.Names() {
		x, known := all[name]
		if !known {
			tb.Fatalf("no tensor %q", name)
		}
		dims := x.Shape
		if batched {
			dims = dims.Tail()
		}
		vars, in = append(vars, condition.Variable{Name: name, DType: x.DType, Dims: dims}), append(in, x)
	}
	c, err := p.Compile(vars)
	if err != nil {
		return nil, err
	}
	return c.Rows(nil, in, batched, n, params)
}

// TestRows checks the rows for which expressions over every data type hold.
func TestRows(t *testing.T) {
	t.Parallel()
	all := batch(t)
	params := map[string]any{"mode": "fast", "top": int64(3), "big": uint64(1 << 63), "share": 0.5, "on": true}
	for text, want := range map[string][]int32{
		"score[0] < 0.8":                                {1, 2},
		"score[0] < 1":                                  {0, 1, 2},
		"score.exists(x, x > 0.75)":                     {0, 1},
		"score.all(score, score >= 0.5)":                {2},
		"size(score) == 2 && score[1] == 0.5":           {2},
		"0.5 in score":                                  {2},
		"f64[0] > 2":                                    {1, 2},
		"f16[0] + bf16[0] == 4.0":                       {1},
		"i64[0] < 0 || i32[0] > 0":                      {0, 2},
		"i16[0] == i8[0]":                               {0, 1, 2},
		"u64[0] > 9223372036854775807":                  {2},
		"u32[0] + u16[0] + u8[0] > 6":                   {2},
		"flag[0]":                                       {0, 2},
		"!flag[0]":                                      {1},
		`text[0] == "b"`:                                {1},
		"text[1] != '' && size(text[1]) > 2":            {2},
		"text[1].startsWith('bb')":                      {1},
		"shape.score[0] == 2":                           {0, 1, 2},
		"size(shape.score) == 1 && shape.text == [2]":   {0, 1, 2},
		"params.mode == 'fast'":                         {0, 1, 2},
		"has(params.slow)":                              nil,
		"params.top == 3 && params.share < 1":           {0, 1, 2},
		"params.on && params.big > 1":                   {0, 1, 2},
		"int(score[0] * 10.0) == 8 || text[0] in ['c']": {0, 2},
		"true":  {0, 1, 2},
		"false": nil,
	} {
		got, err := rows(t, text, all, true, 3, params)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}

// TestWithoutBatch checks a tensor that is one row.
func TestWithoutBatch(t *testing.T) {
	t.Parallel()
	all := batch(t)
	for text, want := range map[string][]int32{"score[2] == score[2] && size(score) == 6": {0}, "shape.score == [3, 2]": {0}, "size(text) == 5": nil} {
		if got, err := rows(t, text, all, false, 1, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
}

// TestRefusals checks the errors of expressions: those at load, and those of single rows.
func TestRefusals(t *testing.T) {
	t.Parallel()
	all := batch(t)
	all["bad"] = texts(t, tensor.Of(3, 1), "a", "\xff", "b")
	all["long"] = numbers(t, tensor.Int64, tensor.Of(3, 100), make([]int64, 300)...)
	for text, want := range map[string]string{
		"":                    "the condition is empty",
		"score[0] <":          "the condition 'score[0] <' is not valid at character 11: ",
		"score[0]":            "is of type double, expected bool",
		"score < 1":           "not valid at character 7: found no matching overload for '_<_' applied to '(list(double), int)'",
		"text[0] > 1":         "found no matching overload",
		"score[3] > 1":        "row 0: index out of bounds: 3",
		"1 / i64[0] > 0":      "row 1: division by zero",
		"bad[0] == 'a'":       "row 1: element 0 of tensor 'bad' is not UTF-8, expected text",
		"params.missing == 1": "row 0: no such key: missing",
		"shape.score.x":       "not valid at character",
		"size(long.map(a, long.map(b, a + b))) > 0": "operations a row, expected at most 10000: compute the value in a step",
		strings.Repeat("!", 5000) + "true":          "has 5004 characters, expected at most 4096",
		"nosuch(score)":                             "undeclared reference to 'nosuch'",
	} {
		if _, err := rows(t, text, all, true, 3, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// TestCostOfARow checks that an expression whose cost depends on the size of a tensor is stopped, and that a small tensor passes.
func TestCostOfARow(t *testing.T) {
	t.Parallel()
	p, err := condition.Parse("x.all(a, x.all(b, a + b >= 0))")
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Compile([]condition.Variable{{Name: "x", DType: tensor.Int64, Dims: tensor.Of(-1)}})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int64]string{10: "", 1000: "operation cancelled: actual cost limit exceeded"} {
		x := numbers(t, tensor.Int64, tensor.Of(1, n), make([]int64, n)...)
		_, err := c.Rows(nil, []tensor.Tensor{x}, true, 1, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d elements: %v, want %q", n, err, want)
		}
	}
}

// TestWrongTensors checks tensors that are not what the configuration declares.
func TestWrongTensors(t *testing.T) {
	t.Parallel()
	p, err := condition.Parse("x[0] > 0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Compile([]condition.Variable{{Name: "x", DType: tensor.Int64, Dims: tensor.Of(1)}})
	if err != nil {
		t.Fatal(err)
	}
	for want, in := range map[string]tensor.Tensor{
		"tensor 'x' is absent":                                {},
		"tensor 'x' is of type INT32, expected INT64":         numbers[int32](t, tensor.Int32, tensor.Of(2, 1), 1, 2),
		"tensor 'x' has the shape [3,1], expected 2 rows":     numbers[int64](t, tensor.Int64, tensor.Of(3, 1), 1, 2, 3),
		"tensor 'x' has the shape [], expected 2 rows":        numbers[int64](t, tensor.Int64, tensor.Of(), 1),
		"condition 'x[0] > 0', row 0: index out of bounds: 0": numbers[int64](t, tensor.Int64, tensor.Of(2, 0)),
	} {
		if _, err := c.Rows(nil, []tensor.Tensor{in}, true, 2, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// FuzzParse checks that no expression panics or takes long, whatever its text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"score[0] < 0.8", "text.exists(t, t == 'a') && shape.score[0] > 1", "params.x in [1, 2u, 'a', null, {'a': 1}]", "a.b.c ? d : e[1u]", "((((("} {
		f.Add(s)
	}
	alloc := tensor.NewPool()
	f.Fuzz(func(t *testing.T, text string) {
		p, err := condition.Parse(text)
		if err != nil {
			return
		}
		var vars []condition.Variable
		var in []tensor.Tensor
		for _, name := range p.Names() {
			x, err := tensor.New(alloc, tensor.Int64, tensor.Of(2, 3))
			if err != nil {
				t.Fatal(err)
			}
			defer x.Release()
			clear(x.Bytes())
			vars, in = append(vars, condition.Variable{Name: name, DType: tensor.Int64, Dims: tensor.Of(3)}), append(in, x)
		}
		c, err := p.Compile(vars)
		if err != nil {
			return
		}
		got, err := c.Rows(nil, in, true, 2, nil)
		if err == nil && (len(got) > 2 || !slices.IsSorted(got)) {
			t.Errorf("rows %v of 2", got)
		}
	})
}

// BenchmarkRows measures the evaluation of a typical condition, per row.
func BenchmarkRows(b *testing.B) {
	for _, text := range []string{"score[0] < 0.8", "score[0] < 0.8 && params.mode == 'fast'", "text[0] == 'b'"} {
		b.Run(text, func(b *testing.B) {
			all := batch(b)
			p, err := condition.Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			var vars []condition.Variable
			var in []tensor.Tensor
			for _, name := range p.Names() {
				x := all[name]
				vars, in = append(vars, condition.Variable{Name: name, DType: x.DType, Dims: x.Shape.Tail()}), append(in, x)
			}
			c, err := p.Compile(vars)
			if err != nil {
				b.Fatal(err)
			}
			params := map[string]any{"mode": "fast"}
			var dst []int32
			b.ReportAllocs()
			for b.Loop() {
				if dst, err = c.Rows(dst[:0], in, true, 3, params); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3, "ns/row")
		})
	}
}

func ExampleCondition_Rows() {
	p, err := condition.Parse("score[0] < 0.8")
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := p.Compile([]condition.Variable{{Name: "score", DType: tensor.FP32, Dims: tensor.Of(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	score, err := tensor.New(tensor.NewPool(), tensor.FP32, tensor.Of(3, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer score.Release()
	copy(tensor.Slice[float32](&score), []float32{0.9, 0.1, 0.2})
	fmt.Println(c.Rows(nil, []tensor.Tensor{score}, true, 3, nil))
	// Output: [1 2] <nil>
}
