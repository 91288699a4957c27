package spans_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/spans"
	"github.com/tutti-server/tutti/steps/steptest"
)

// passage is what the steps and the gold files have.
type passage struct {
	Label, Text string
	Score       float64
	Start, End  int
}

// gold is a case of the gold files.
type gold struct {
	Text, Strategy                     string
	Tokens                             int
	Logits, Start, End                 []byte
	Offsets, Special, Words, Sequences []byte
	TopK                               int `json:"top_k"`
	Longest                            int
	Empty                              bool
	Want                               []passage
}

// value makes a value of a row of numbers; without data it is one that is not given.
func value(d tensor.DType, data []byte, dims ...int64) steptest.Value {
	if data == nil {
		return steptest.Value{}
	}
	return steptest.Value{DType: d, Dims: dims, Data: data}
}

func (g *gold) common() []steptest.Value {
	n := int64(g.Tokens)
	return []steptest.Value{
		value(tensor.Int64, g.Offsets, 1, n, 2), value(tensor.Int64, g.Special, 1, n), steptest.Text([]int64{1, 1}, g.Text),
		{},
		value(tensor.Int64, g.Words, 1, n),
	}
}

func (g *gold) tokenInputs(labels int) []steptest.Value {
	return append([]steptest.Value{value(tensor.FP32, g.Logits, 1, int64(g.Tokens), int64(labels))}, g.common()...)
}

func (g *gold) answerInputs(sequences bool) []steptest.Value {
	n := int64(g.Tokens)
	in := append([]steptest.Value{value(tensor.FP32, g.Start, 1, n), value(tensor.FP32, g.End, 1, n)}, g.common()...)
	if sequences {
		return append(in, value(tensor.Int64, g.Sequences, 1, n))
	}
	return append(in, steptest.Value{})
}

// newStep makes a step with the given files in its version folder.
func newStep(tb testing.TB, f steps.Factory, params, files map[string]string) steps.Step {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	params, err := f.Resolve(params)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := f.New(&steps.Settings{Model: "m", Dir: dir, ModelDir: dir, MaxBatch: 8, Params: params})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// newBatch is a batch of one request, with so many outputs.
func newBatch(tb testing.TB, outputs int, in []steptest.Value) *backends.Batch {
	tb.Helper()
	p := tensor.NewPool()
	rows := int(in[0].Dims[0])
	b := &backends.Batch{
		Requests: []backends.Request{{Meta: &infer.Meta{}, Ctx: context.Background(), Rows: rows}}, Rows: rows, Out: make([]tensor.Tensor, outputs), Allocator: p,
	}
	for _, v := range in {
		var t tensor.Tensor
		if v.DType != tensor.Invalid {
			var err error
			if t, err = tensor.NewBytes(p, tensor.Of(v.Dims...), len(v.Data)); err != nil {
				tb.Fatal(err)
			}
			t.DType = v.DType
			copy(t.Bytes(), v.Data)
		}
		b.In = append(b.In, t)
	}
	return b
}

// ask runs a step whose output is JSON over a row.
func ask(tb testing.TB, s steps.Step, in []steptest.Value) []passage {
	tb.Helper()
	b := newBatch(tb, 1, in)
	if err := s.Run(tb.Context(), b); err != nil {
		tb.Fatal(err)
	}
	if b.Requests[0].Err != nil {
		tb.Fatal(b.Requests[0].Err)
	}
	text, _, ok := tensor.NextBytes(b.Out[0].Bytes())
	var out []passage
	if err := json.Unmarshal(text, &out); err != nil || !ok {
		tb.Fatalf("the answer %s is no JSON: %v", text, err)
	}
	return out
}

var near = cmp.Options{cmpopts.EquateApprox(0, 2e-6), cmpopts.EquateEmpty()}

// TestTokenGold compares with Hugging Face's token classification pipeline.
func TestTokenGold(t *testing.T) {
	t.Parallel()
	var file struct {
		Labels []string
		Cases  []gold
	}
	steptest.ReadGold(t, "tokens.json.gz", &file)
	files := map[string]string{"labels.txt": strings.Join(file.Labels, "\n") + "\n"}
	for i, g := range file.Cases {
		s := newStep(t, spans.NewTokenFactory(), map[string]string{
			"labels_file": "labels.txt", "aggregation": g.Strategy,
		}, files)
		if diff := cmp.Diff(g.Want, ask(t, s, g.tokenInputs(len(file.Labels))), near); diff != "" {
			t.Errorf("case %d, %s of %q, words %t: %s", i, g.Strategy, g.Text, g.Words != nil, diff)
		}
	}
}

// TestAnswerGold compares with Hugging Face's question answering pipeline.
func TestAnswerGold(t *testing.T) {
	t.Parallel()
	var cases []gold
	steptest.ReadGold(t, "answers.json.gz", &cases)
	for i, g := range cases {
		s := newStep(t, spans.NewAnswerFactory(), map[string]string{
			"top_k": strconv.Itoa(g.TopK), "max_answer_tokens": strconv.Itoa(g.Longest), "no_answer": strconv.FormatBool(g.Empty),
		}, nil)
		for _, sequences := range []bool{true, false} {
			got := ask(t, s, g.answerInputs(sequences))
			if diff := cmp.Diff(g.Want, got, near); diff != "" {
				t.Errorf("case %d, sequences %t, %q: %s", i, sequences, g.Text, diff)
			}
		}
	}
}
