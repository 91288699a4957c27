package spans_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/spans"
	"github.com/tutti-server/tutti/steps/steptest"
)

func i32(dims []int64, v ...uint32) steptest.Value {
	out := steptest.Value{DType: tensor.Int32, Dims: dims}
	for _, x := range v {
		out.Data = binary.LittleEndian.AppendUint32(out.Data, x)
	}
	return out
}

// classes gives each token a score of 9 for one of so many classes, in one row.
func classes(n int, picks ...int) steptest.Value {
	v := make([]float32, n*len(picks))
	for i, p := range picks {
		v[i*n+p] = 9
	}
	return steptest.F32([]int64{1, int64(len(picks)), int64(n)}, v...)
}

func one(v ...string) []steptest.Value {
	out := make([]steptest.Value, len(v))
	for i, s := range v {
		out[i] = steptest.Text([]int64{1, 1}, s)
	}
	return out
}

const bilou = "O\nB-A\nI-A\nL-A\nU-A\nB-B\nL-B\n"

// sure is the score of a pick of classes with 7 of them.
const (
	sure  = 0.9992602
	score = "0.99926007"
)

func TestTokenContract(t *testing.T) {
	t.Parallel()
	four := []int64{1, 4}
	offsets := steptest.I64([]int64{1, 4, 2}, 0, 1, 1, 2, 3, 5, 5, 6)
	bad := steptest.I64([]int64{1, 4, 2}, 0, 1, 1, 2, 3, 5, 5, 7)
	none, ends := steptest.I64(four, 0, 0, 0, 0), steptest.I64(four, 1, 0, 0, 1)
	words := steptest.I64(four, 0, 0, 1, 1)
	in := func(logits, offsets, special steptest.Value, text string, more ...steptest.Value) []steptest.Value {
		all := []steptest.Value{logits, offsets, special, steptest.Text([]int64{1, 1}, text), {}, {}}
		copy(all[4:], more)
		return all
	}
	files := map[string][]byte{"l": []byte(bilou)}
	nan := classes(7, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(nan.Data[8:], math.Float32bits(float32(math.NaN())))
	steptest.Run(
		t, spans.NewTokenFactory(),
		steptest.Case{
			Name: "bilou", Params: map[string]string{"labels_file": "l", "scheme": "bilou", "offsets": "bytes"}, Files: files, MaxBatch: 4,
			Requests: []steptest.Request{
				{
					Inputs: in(classes(7, 1, 2, 3, 3), offsets, none, "ab äc"),
					Want:   one(`[{"label":"A","score":` + score + `,"text":"ab ä","start":0,"end":4},{"label":"A","score":` + score + `,"text":"c","start":4,"end":5}]`),
				},
				{
					Inputs: in(classes(7, 4, 4, 5, 6), offsets, ends, "ab äc"),
					Want:   one(`[{"label":"A","score":` + score + `,"text":"b","start":1,"end":2},{"label":"B","score":` + score + `,"text":"ä","start":3,"end":4}]`),
				},
				{Inputs: in(classes(7, 0, 0, 0, 0), offsets, none, "\"\\\n\t\x01 "), Want: one("[]")},
				{Inputs: in(classes(7, 0, 0, 4, 0), offsets, none, "\"\\\n\n\x01 "), Want: one(`[{"label":"A","score":` + score + `,"text":"\n\u0001","start":3,"end":5}]`)},
				{Inputs: in(classes(7, 0, 0, 0, 4), bad, none, "ab äc"), WantErr: "token 3 is at [5,7], expected a range of the text of 6 bytes"},
				{Inputs: in(classes(7, 0, 0, 0, 4), offsets, none, "ab \xffac"), WantErr: "not valid UTF-8"},
				{Inputs: in(nan, offsets, none, "ab äc"), WantErr: "expected finite numbers, the highest of token 0 is NaN"},
			},
		},
		steptest.Case{
			Name: "tensors", Params: map[string]string{"labels_file": "l", "aggregation": "first", "output": "tensors", "positions": "bytes", "offsets": "bytes"},
			Files: files, MaxBatch: 4, Tolerance: 1e-6,
			Requests: []steptest.Request{
				{
					Inputs: in(classes(7, 1, 0, 5, 0), offsets, none, "ab äc", steptest.Value{}, words),
					Want: []steptest.Value{
						i32([]int64{1, 1}, 2), steptest.Text([]int64{1, 2}, "ab", "äc"), i32([]int64{1, 2}, 0, 3), i32([]int64{1, 2}, 2, 6),
						steptest.F32([]int64{1, 2}, sure, sure), steptest.Text([]int64{1, 2}, "A", "B"),
					},
				},
				{
					Inputs: in(classes(7, 1, 0, 5, 0), offsets, none, "ab äc", ends, words),
					Want: []steptest.Value{
						i32([]int64{1, 1}, 1), steptest.Text([]int64{1, 1}, "a"), i32([]int64{1, 1}, 0), i32([]int64{1, 1}, 1),
						steptest.F32([]int64{1, 1}, sure), steptest.Text([]int64{1, 1}, "A"),
					},
				},
			},
		},
		steptest.Case{
			Name: "half, one row", Params: map[string]string{"labels_file": "l", "aggregation": "none", "ignore": "", "min_score": "0.5"},
			Files: map[string][]byte{"l": []byte("O\r\nB-A")}, Inputs: []config.Port{{Name: "logits", DType: tensor.FP16}},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{
					{DType: tensor.FP16, Dims: []int64{2, 2}, Data: []byte("\x00\x00\x00\x4a\x00\x00\x00\x00")},
					steptest.I64([]int64{2, 2}, 0, 1, 1, 2),
					steptest.I64([]int64{2}, 0, 0), steptest.Text([]int64{1}, "xy"),
					{},
					{},
				},
				Want: []steptest.Value{steptest.Text([]int64{1}, `[{"label":"B-A","score":0.99999386,"text":"x","start":0,"end":1},{"label":"O","score":0.5,"text":"y","start":1,"end":2}]`)},
			}},
		},
		steptest.Case{Name: "no file", Params: map[string]string{"labels_file": "none"}, WantNewErr: "file 'none'"},
		steptest.Case{Name: "bad label", Params: map[string]string{"labels_file": "l"}, Files: map[string][]byte{"l": []byte("O\n\xff")}, WantNewErr: "line 2: expected UTF-8"},
		steptest.Case{Name: "bad score", Params: map[string]string{"labels_file": "l", "min_score": "x"}, Files: files, WantNewErr: "min_score"},
	)
}

func TestAnswerContract(t *testing.T) {
	t.Parallel()
	six := []int64{1, 6}
	starts, ends := steptest.F32(six, 0, 9, 0, 9, 7, 0), steptest.F32(six, 0, 9, 0, 5, 9, 0)
	offsets := steptest.I64([]int64{1, 6, 2}, 0, 0, 0, 1, 0, 0, 0, 2, 3, 5, 0, 0)
	special, types := steptest.I64(six, 1, 0, 1, 0, 0, 1), steptest.I64(six, 0, 0, 0, 1, 1, 1)
	in := func(text string, more ...steptest.Value) []steptest.Value {
		all := []steptest.Value{starts, ends, offsets, special, steptest.Text([]int64{1, 1}, text), {}, {}, {}}
		copy(all[5:], more)
		return all
	}
	nan := steptest.F32(six, 0, 0, 0, float32(math.Inf(1)), 0, 0)
	steptest.Run(
		t, spans.NewAnswerFactory(),
		steptest.Case{
			Name: "json", MaxBatch: 4, Params: map[string]string{"offsets": "bytes"}, Requests: []steptest.Request{
				{Inputs: in("Öl rinnt"), Want: one(`[{"score":0.86475605,"text":"Öl r","start":0,"end":4}]`)},
				{Inputs: in("Öl"), WantErr: "token 4 is at [3,5], expected a range of the text of 3 bytes"},
				{Inputs: append([]steptest.Value{nan}, in("Öl rinnt")[1:]...), WantErr: "input 'start_logits': expected finite numbers, token 3 is +Inf"},
			},
		},
		steptest.Case{
			Name: "tensors", MaxBatch: 4, Tolerance: 1e-6, Params: map[string]string{"output": "tensors", "top_k": "3", "max_answer_tokens": "1"},
			Requests: []steptest.Request{
				{
					Inputs: in("ab cd", steptest.Value{}, steptest.Value{}, types),
					Want: []steptest.Value{
						i32([]int64{1, 1}, 2), steptest.Text([]int64{1, 3}, "cd", "ab", ""), i32([]int64{1, 3}, 3, 0, 0), i32([]int64{1, 3}, 5, 2, 0),
						steptest.F32([]int64{1, 3}, 0.117032, 0.01583856, 0),
					},
				},
				{
					Inputs: in("ab AB", steptest.Value{}, steptest.Value{}, types),
					Want: []steptest.Value{
						i32([]int64{1, 1}, 1), steptest.Text([]int64{1, 3}, "AB", "", ""), i32([]int64{1, 3}, 3, 0, 0), i32([]int64{1, 3}, 5, 0, 0),
						steptest.F32([]int64{1, 3}, 0.13287057, 0, 0),
					},
				},
			},
		},
		steptest.Case{Name: "many", Params: map[string]string{"top_k": "1001"}, WantNewErr: "expected at most 1000"},
		steptest.Case{Name: "none", Params: map[string]string{"top_k": "0"}, WantNewErr: "parameter 'top_k'"},
		steptest.Case{Name: "no tokens", Params: map[string]string{"max_answer_tokens": "0"}, WantNewErr: "parameter 'max_answer_tokens'"},
	)
}
