package tokenize_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/tokenize"
)

func TestStep(t *testing.T) {
	t.Parallel()
	plain := map[string][]byte{"tokenizer.json": tokenizertest.Small(t, tokenizertest.NoLimits())}
	text := func(s ...string) []steptest.Value {
		return []steptest.Value{steptest.Text([]int64{int64(len(s)), 1}, s...)}
	}
	one := func(ids ...int64) []steptest.Value {
		n := []int64{1, int64(len(ids))}
		mask := make([]int64, len(ids))
		for i := range mask {
			mask[i] = 1
		}
		return []steptest.Value{steptest.I64(n, ids...), steptest.I64(n, mask...), steptest.I64(n, make([]int64, len(ids))...)}
	}
	steptest.Run(t, tokenize.NewFactory(),
		steptest.Case{Name: "rows", MaxBatch: 8, Files: plain, Requests: []steptest.Request{
			{Inputs: text("hello world"), Want: one(101, 7592, 2088, 102)},
			{Inputs: text("bad \xff"), WantErr: "input 'TEXT': text is not valid UTF-8: byte 4"},
			{Inputs: text(""), Want: one(101, 102)},
			{Inputs: text("hello", "hello world"), Want: []steptest.Value{
				steptest.I64([]int64{2, 4}, 101, 7592, 102, 0, 101, 7592, 2088, 102),
				steptest.I64([]int64{2, 4}, 1, 1, 1, 0, 1, 1, 1, 1),
				steptest.I64([]int64{2, 4}, 0, 0, 0, 0, 0, 0, 0, 0),
			}},
		}},
		steptest.Case{Name: "pairs", MaxBatch: 2, Files: plain, Requests: []steptest.Request{
			{
				Inputs: append(text("hello"), text("world")...),
				Want: []steptest.Value{
					steptest.I64([]int64{1, 5}, 101, 7592, 102, 2088, 102), steptest.I64([]int64{1, 5}, 1, 1, 1, 1, 1),
					steptest.I64([]int64{1, 5}, 0, 0, 0, 1, 1),
				},
			},
			{Inputs: append(text("hello"), text("\xc0")...), WantErr: "second text"},
		}},
		steptest.Case{Name: "no batch", Files: plain, Requests: []steptest.Request{{
			Inputs: []steptest.Value{steptest.Text([]int64{1}, "hello")},
			Want: []steptest.Value{
				steptest.I64([]int64{3}, 101, 7592, 102), steptest.I64([]int64{3}, 1, 1, 1), steptest.I64([]int64{3}, 0, 0, 0),
			},
		}}},
		steptest.Case{
			Name: "limits", MaxBatch: 4, Files: plain,
			Params: map[string]string{"max_length": "4", "truncate": "false", "max_bytes": "20"},
			Requests: []steptest.Request{
				{Inputs: text("hello world"), Want: one(101, 7592, 2088, 102)},
				{Inputs: text("hello hello world"), WantErr: "input 'TEXT' has 5 tokens, expected at most 4"},
				{Inputs: text(strings.Repeat("a", 21)), WantErr: "has a text of 21 bytes, expected at most 20 (parameter 'max_bytes')"},
				{Inputs: append(text("a"), text(strings.Repeat("a", 21))...), WantErr: "input 'TEXT_PAIR' has a text of 21 bytes"},
			},
		},
		steptest.Case{
			Name: "cut", MaxBatch: 4, Files: plain, Params: map[string]string{"max_length": "4"},
			Requests: []steptest.Request{{Inputs: text("hello world hello"), Want: one(101, 7592, 2088, 102)}},
		},
		steptest.Case{
			Name: "count", MaxBatch: 4, Files: plain, Params: map[string]string{"max_length": "3"},
			Outputs: []config.Port{{Name: "token_count", DType: tensor.Int64, Dims: tensor.Of(1)}},
			Requests: []steptest.Request{
				{Inputs: text("hello world hello", ""), Want: []steptest.Value{
					steptest.I64([]int64{2, 3}, 101, 7592, 102, 101, 102, 0), steptest.I64([]int64{2, 3}, 1, 1, 1, 1, 1, 0),
					steptest.I64([]int64{2, 3}, 0, 0, 0, 0, 0, 0), steptest.I64([]int64{2, 1}, 5, 2),
				}},
				{Inputs: text("\xff"), WantErr: "text is not valid UTF-8"},
			},
		},
		steptest.Case{
			Name: "more outputs", MaxBatch: 4, Files: plain, Outputs: moreOutputs(),
			Requests: []steptest.Request{
				{
					Inputs: append(text("hello"), text("漢 world")...),
					Want: append(
						values([]int64{1, 6}, []int64{101, 7592, 102, 100, 2088, 102}, []int64{1, 1, 1, 1, 1, 1}, []int64{0, 0, 0, 1, 1, 1}),
						steptest.I64([]int64{1, 6, 2}, 0, 0, 0, 5, 0, 0, 0, 1, 2, 7, 0, 0),
						steptest.I64([]int64{1, 6}, -1, 0, -1, 0, 1, -1),
						steptest.I64([]int64{1, 6}, 1, 0, 1, 0, 0, 1),
						steptest.I64([]int64{1, 6}, -1, 0, -1, 1, 1, -1),
					),
				},
				{Inputs: append(text("a"), text("\xc0")...), WantErr: "second text"},
			},
		},
		steptest.Case{
			Name: "byte offsets", Files: plain, Outputs: moreOutputs()[:1], Params: map[string]string{"offsets": "bytes"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.Text([]int64{1}, "漢 world")},
				Want: append(values([]int64{4}, []int64{101, 100, 2088, 102}, []int64{1, 1, 1, 1}, []int64{0, 0, 0, 0}),
					steptest.I64([]int64{4, 2}, 0, 0, 0, 3, 4, 9, 0, 0)),
			}},
		},
		steptest.Case{Name: "left", MaxBatch: 4, Files: map[string][]byte{"tokenizer.json": leftPadded(t)}, Outputs: moreOutputs()[1:2], Requests: []steptest.Request{{
			Inputs: text("hello", "hello world"), Want: append(
				values([]int64{2, 4}, []int64{7, 101, 7592, 102, 101, 7592, 2088, 102}, []int64{0, 1, 1, 1, 1, 1, 1, 1}, []int64{3, 0, 0, 0, 0, 0, 0, 0}),
				steptest.I64([]int64{2, 4}, -1, -1, 0, -1, -1, 0, 1, -1)),
		}}},
		steptest.Case{
			Name: "windows", MaxBatch: 4, Files: plain, Outputs: moreOutputs()[:2],
			Params: map[string]string{"max_length": "5", "stride": "1", "return_overflowing_tokens": "true", "max_windows": "3"},
			Requests: []steptest.Request{
				{
					Inputs: text("hello", "hello world hello world hello", "é"),
					Want: append(
						values([]int64{4, 5}, []int64{101, 7592, 102, 0, 0, 101, 7592, 2088, 7592, 102, 101, 7592, 2088, 7592, 102, 101, 100, 102, 0, 0},
							[]int64{1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, make([]int64, 20)),
						steptest.I64([]int64{4, 1}, 0, 1, 1, 2),
						steptest.I64([]int64{4, 5, 2}, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 11, 12, 17, 0, 0,
							0, 0, 12, 17, 18, 23, 24, 29, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0),
						steptest.I64([]int64{4, 5}, -1, 0, -1, -1, -1, -1, 0, 1, 2, -1, -1, 2, 3, 4, -1, -1, 0, -1, -1, -1),
					),
				},
				{Inputs: text("world"), Want: one(101, 2088, 102)},
				{Inputs: text("a", "bad \xff"), WantErr: "not valid UTF-8"},
				{Inputs: text(strings.Repeat("hello ", 8)), WantErr: "truncation cuts it into 4 windows, expected at most 3"},
			},
		},
		steptest.Case{
			Name: "windows of pairs", MaxBatch: 4, Files: plain,
			Params: map[string]string{"max_length": "6", "truncate": "only_second", "stride": "1", "return_overflowing_tokens": "true"},
			Requests: []steptest.Request{
				{
					Inputs: append(text("hello"), text("world hello world")...),
					Want: append(values([]int64{2, 6}, []int64{101, 7592, 102, 2088, 7592, 102, 101, 7592, 102, 7592, 2088, 102},
						[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int64{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}), steptest.I64([]int64{2, 1}, 0, 0)),
				},
				{Inputs: append(text("hello hello hello hello hello"), text("world")...), WantErr: "the sequence to truncate is too short"},
			},
		},
		steptest.Case{
			Name: "windows without batches", Files: plain, Params: map[string]string{"max_length": "4", "return_overflowing_tokens": "true"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.Text([]int64{1}, "hello world hello")},
				Want: append(values([]int64{2, 4}, []int64{101, 7592, 2088, 102, 101, 7592, 102, 0}, []int64{1, 1, 1, 1, 1, 1, 1, 0}, make([]int64, 8)),
					steptest.I64([]int64{2, 1}, 0, 0)),
			}},
		},
		steptest.Case{
			Name: "windows without limit", Files: plain, Params: map[string]string{"return_overflowing_tokens": "true"},
			WantNewErr: "expected 'false' without truncation to a max_length",
		},
		steptest.Case{
			Name: "long stride", Files: plain, Params: map[string]string{"max_length": "5", "stride": "3"},
			WantNewErr: "stride 3 is not less than the 3 tokens that max_length 5 leaves for a text",
		},
		steptest.Case{Name: "strategy without limit", Files: plain, Params: map[string]string{"truncate": "only_first"}, WantNewErr: "there is no max_length"},
		steptest.Case{Name: "no file", WantNewErr: "tokenizer.json"},
		steptest.Case{Name: "unsupported", WantNewErr: "'Magic' is not supported", Files: map[string][]byte{
			"tokenizer.json": tokenizertest.Small(t, map[string]json.RawMessage{"model": json.RawMessage(`{"type":"Magic"}`)}),
		}},
		steptest.Case{Name: "bad length", Files: plain, Params: map[string]string{"max_length": "-1"}, WantNewErr: "max_length"},
		steptest.Case{Name: "short length", Files: plain, Params: map[string]string{"max_length": "2"}, WantNewErr: "no room"},
		steptest.Case{Name: "bad flag", Files: plain, Params: map[string]string{"truncate": "maybe"}, WantNewErr: "true, false"},
	)
}

// moreOutputs are those that a configuration has to declare.
func moreOutputs() []config.Port {
	n := tensor.Of(-1)
	return []config.Port{
		{Name: "offset_mapping", DType: tensor.Int64, Dims: tensor.Of(-1, 2)},
		{Name: "word_ids", DType: tensor.Int64, Dims: n},
		{Name: "special_tokens_mask", DType: tensor.Int64, Dims: n},
		{Name: "sequence_ids", DType: tensor.Int64, Dims: n},
	}
}

// values are the first outputs, of one shape.
func values(shape []int64, outputs ...[]int64) []steptest.Value {
	var out []steptest.Value
	for _, v := range outputs {
		out = append(out, steptest.I64(shape, v...))
	}
	return out
}

func leftPadded(t *testing.T) []byte {
	t.Helper()
	return tokenizertest.Small(t, map[string]json.RawMessage{"truncation": nil, "padding": json.RawMessage(
		`{"strategy":"BatchLongest","direction":"Left","pad_to_multiple_of":null,"pad_id":7,"pad_type_id":3,"pad_token":"[PAD]"}`)})
}

// TestLargeBatch encodes the same texts in one batch, which is divided, and in small ones.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	s, _ := usualBatch(t)
	var texts []string
	for i, entry := range tokenizertest.Corpus(t) {
		if i%5 == 0 && len(entry) == 1 {
			texts = append(texts, entry[0])
		}
	}
	whole := rowsOf(t, s, texts)
	for i := 0; i < len(texts); i += 7 {
		one := rowsOf(t, s, texts[i:i+1])[0]
		if got := whole[i]; !slices.Equal(got[:len(one)], one) || slices.ContainsFunc(got[len(one):], func(v int64) bool { return v != 0 }) {
			t.Fatalf("row %d of a large batch is %v, alone %v", i, got, one)
		}
	}
}

// rowsOf are the ids of texts as one batch.
func rowsOf(t *testing.T, s steps.Step, texts []string) [][]int64 {
	t.Helper()
	b := textBatch(t, texts...)
	if err := s.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	ids := tensor.Slice[int64](&b.Out[0])
	return slices.Collect(slices.Chunk(ids, len(ids)/len(texts)))
}

func TestStepAllocatesNothing(t *testing.T) {
	s, batch := usualBatch(t)
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

// raceDetector reports whether sync.Pool drops what it is given, as it does at random under the race detector.
func raceDetector() bool {
	var p sync.Pool
	for range 64 {
		p.Put(new(int))
		if p.Get() == nil {
			return true
		}
	}
	return false
}

func BenchmarkStep(b *testing.B) {
	s, batch := usualBatch(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

// usualBatch is the step with a batch of one short text.
func usualBatch(tb testing.TB) (steps.Step, *backends.Batch) {
	tb.Helper()
	dir := tb.TempDir()
	writeFile(tb, dir+"/tokenizer.json", tokenizertest.MiniLM(tb, tokenizertest.NoLimits()))
	f := tokenize.NewFactory()
	params, err := f.Resolve(nil)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := f.New(&steps.Settings{Model: "tokenizer", Dir: dir, ModelDir: dir, MaxBatch: 8, Params: params})
	if err != nil {
		tb.Fatal(err)
	}
	return s, textBatch(tb, "How do I reset the password of my second account?")
}

// textBatch is a batch of a request with a row per text.
func textBatch(tb testing.TB, texts ...string) *backends.Batch {
	tb.Helper()
	var data []byte
	for _, text := range texts {
		data = tensor.AppendBytes(data, text)
	}
	pool, rows := tensor.NewPool(), len(texts)
	in, err := tensor.NewBytes(pool, tensor.Of(int64(rows), 1), len(data))
	if err != nil {
		tb.Fatal(err)
	}
	copy(in.Bytes(), data)
	return &backends.Batch{
		Requests: []backends.Request{{Meta: &infer.Meta{}, Ctx: context.Background(), Rows: rows}},
		Rows:     rows, In: []tensor.Tensor{in, {}}, Out: make([]tensor.Tensor, 3), Allocator: pool,
	}
}

func writeFile(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}
