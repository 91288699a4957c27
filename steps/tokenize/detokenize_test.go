package tokenize_test

import (
	"context"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/tokenize"
)

func TestDetokenize(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"tokenizer.json": tokenizertest.Small(t, tokenizertest.NoLimits())}
	ids := func(n int64, v ...int64) steptest.Value { return steptest.I64([]int64{int64(len(v)) / n, n}, v...) }
	text := func(s ...string) []steptest.Value {
		return []steptest.Value{steptest.Text([]int64{int64(len(s)), 1}, s...)}
	}
	none := steptest.Value{}
	steptest.Run(t, tokenize.NewDetokenizeFactory(),
		steptest.Case{Name: "rows", MaxBatch: 8, Files: files, Requests: []steptest.Request{
			{Inputs: []steptest.Value{ids(4, 101, 7592, 2088, 102), none}, Want: text("hello world")},
			{Inputs: []steptest.Value{ids(4, 101, 7592, 5, 102), none}, WantErr: "input 'ids': id 5 at 2 is not in the vocabulary"},
			{Inputs: []steptest.Value{ids(4, 7592, 0, 0, 0, 2773, 2088, 7592, 103), none}, Want: text("hello", "word world hello")},
		}},
		steptest.Case{
			Name: "masks", MaxBatch: 8, Files: files, Params: map[string]string{"skip_special_tokens": "false"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{ids(3, 101, 7592, -1), ids(3, 1, 1, 0)}, Want: text("[CLS] hello")},
				{Inputs: []steptest.Value{ids(3, 101, 7592, -1), ids(3, 1, 1, 1)}, WantErr: "id -1 at 2"},
			},
		},
		steptest.Case{
			Name: "padding", MaxBatch: 8, Files: files, Params: map[string]string{"pad_id": "-1"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{ids(4, -1, 7592, -1, 2088), none}, Want: text("hello world")}},
		},
		steptest.Case{Name: "no batch", Files: files, Requests: []steptest.Request{
			{Inputs: []steptest.Value{steptest.I64([]int64{2}, 7592, 2088), none}, Want: []steptest.Value{steptest.Text([]int64{1}, "hello world")}},
			{Inputs: []steptest.Value{steptest.I64([]int64{0}), none}, Want: []steptest.Value{steptest.Text([]int64{1}, "")}},
		}},
		steptest.Case{
			Name: "int32", Files: files, Params: map[string]string{"dtype": "int32"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{{DType: tensor.Int32, Dims: []int64{1}, Data: []byte{0xA8, 0x1D, 0, 0}}, none},
				Want:   []steptest.Value{steptest.Text([]int64{1}, "hello")},
			}},
		},
		steptest.Case{Name: "no file", WantNewErr: "tokenizer.json"},
		steptest.Case{Name: "bad pad", Files: files, Params: map[string]string{"pad_id": "x"}, WantNewErr: "expected an integer or none"},
		steptest.Case{Name: "bad dtype", Files: files, Params: map[string]string{"dtype": "fp32"}, WantNewErr: "int64, int32"},
	)
}

func TestDetokenizeAllocatesNothing(t *testing.T) {
	s, batch := usualIDs(t)
	run := func() {
		if err := s.Run(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(200, run); n >= 1 && !raceDetector() {
		t.Errorf("%v allocations per batch, expected none", n)
	}
}

func BenchmarkStepDetokenize(b *testing.B) {
	s, batch := usualIDs(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

// usualIDs is the step with a batch of eight short rows.
func usualIDs(tb testing.TB) (steps.Step, *backends.Batch) {
	tb.Helper()
	const rows, n = 8, 16
	dir := tb.TempDir()
	writeFile(tb, dir+"/tokenizer.json", tokenizertest.MiniLM(tb, tokenizertest.NoLimits()))
	f := tokenize.NewDetokenizeFactory()
	params, err := f.Resolve(nil)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := f.New(&steps.Settings{Model: "detokenizer", Dir: dir, ModelDir: dir, MaxBatch: rows, Params: params})
	if err != nil {
		tb.Fatal(err)
	}
	pool := tensor.NewPool()
	in, err := tensor.New(pool, tensor.Int64, tensor.Of(rows, n))
	if err != nil {
		tb.Fatal(err)
	}
	for i, ids := 0, tensor.Slice[int64](&in); i < len(ids); i++ {
		ids[i] = int64(2000 + i*37)
	}
	return s, &backends.Batch{
		Requests: []backends.Request{{Meta: &infer.Meta{}, Ctx: context.Background(), Rows: rows}},
		Rows:     rows, In: []tensor.Tensor{in, {}}, Out: make([]tensor.Tensor, 1), Allocator: pool,
	}
}
