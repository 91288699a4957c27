package spans_test

import (
	"encoding/binary"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/spans"
	"github.com/tutti-server/tutti/steps/steptest"
)

// ofBytes makes n INT64 elements of data, one byte each; those above 250 become large or negative.
func ofBytes(data []byte, n int, dims ...int64) steptest.Value {
	out := steptest.Value{DType: tensor.Int64, Dims: dims}
	for i := range n {
		v := int64(0)
		if len(data) > 0 {
			v = int64(data[i%len(data)])
		}
		if v > 250 {
			v = (v - 253) << 40
		}
		out.Data = binary.LittleEndian.AppendUint64(out.Data, uint64(v))
	}
	return out
}

// floatsOf makes n halves of data.
func floatsOf(data []byte, n int, dims ...int64) steptest.Value {
	v := make([]float32, n)
	for i := range v {
		if len(data) > 0 {
			v[i] = float32(int8(data[i%len(data)])) / 8
		}
	}
	return steptest.F32(dims, v...)
}

// check runs a step, which may fail the row, and compares its passages with the text: those are whole characters of
// it, and in order of their ends and beginnings.
func check(t *testing.T, s steps.Step, in []steptest.Value, text string) {
	t.Helper()
	b := newBatch(t, 1, in)
	if err := s.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	elem, _, ok := tensor.NextBytes(b.Out[0].Bytes())
	var got []passage
	if err := json.Unmarshal(elem, &got); !ok || err != nil {
		t.Fatalf("answer %q: %v", elem, err)
	}
	if b.Requests[0].Err != nil {
		if len(got) > 0 {
			t.Fatal("a failed row has passages")
		}
		return
	}
	runes := []rune(text)
	for _, p := range got {
		if !utf8.ValidString(text) || p.Start < 0 || p.End < p.Start || p.End > len(runes) || string(runes[p.Start:p.End]) != p.Text {
			t.Fatalf("passage %+v of %q", p, text)
		}
		if !(p.Score >= 0 && p.Score <= 1.0001) {
			t.Fatalf("score %v", p.Score)
		}
	}
}

// FuzzTokenSpans feeds arbitrary numbers and texts: passages are always parts of the text.
func FuzzTokenSpans(f *testing.F) {
	f.Add("Anna in Zürich", []byte{0, 2, 2, 4, 5, 7}, []byte{9, 0, 3}, []byte{0, 0, 1}, []byte{0, 0, 1}, uint8(3))
	f.Add("日本 \xff", []byte{0, 200, 255}, []byte{127}, []byte{1}, []byte{255, 252}, uint8(9))
	var all []steps.Step
	for _, strategy := range []string{"none", "simple", "first", "average", "max"} {
		for _, scheme := range []string{"bio", "bilou"} {
			for _, unit := range []string{"bytes", "characters"} {
				params := map[string]string{"labels_file": "l", "aggregation": strategy, "scheme": scheme, "offsets": unit}
				all = append(all, newStep(f, spans.NewTokenFactory(), params, map[string]string{"l": "O\nB-A\nI-A\nL-A\nU-B"}))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, offsets, logits, special, words []byte, which uint8) {
		n := min(max(len(offsets)/2, 1), 64)
		wide := int64(n)
		in := []steptest.Value{
			floatsOf(logits, 5*n, 1, wide, 5), ofBytes(offsets, 2*n, 1, wide, 2), ofBytes(special, n, 1, wide),
			steptest.Text([]int64{1, 1}, text),
			{},
			{},
		}
		if which >= 128 {
			in[4], in[5] = ofBytes(offsets, n, 1, wide), ofBytes(words, n, 1, wide)
		}
		check(t, all[int(which)%len(all)], in, text)
	})
}

// FuzzAnswerSpans feeds arbitrary numbers and texts: answers are always parts of the text.
func FuzzAnswerSpans(f *testing.F) {
	f.Add("Ada Byron wrote code", []byte{0, 0, 0, 3, 0, 0, 0, 3, 4, 8}, []byte{0, 9, 3, 7}, []byte{1, 0, 1, 0, 0}, []byte{0, 0, 0, 1, 1}, uint8(3))
	f.Add("é\xff", []byte{255, 254}, []byte{127}, []byte{0}, []byte{255, 252}, uint8(9))
	var all []steps.Step
	for _, k := range []string{"1", "4", "1000"} {
		for _, empty := range []string{"false", "true"} {
			for _, unit := range []string{"bytes", "characters"} {
				params := map[string]string{"top_k": k, "no_answer": empty, "offsets": unit}
				all = append(all, newStep(f, spans.NewAnswerFactory(), params, nil))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, offsets, logits, special, words []byte, which uint8) {
		n := min(max(len(offsets)/2, 1), 64)
		wide := int64(n)
		in := []steptest.Value{
			floatsOf(logits, n, 1, wide), floatsOf(append([]byte{1}, logits...), n, 1, wide), ofBytes(offsets, 2*n, 1, wide, 2),
			ofBytes(special, n, 1, wide), steptest.Text([]int64{1, 1}, text),
			{},
			{},
			{},
		}
		if which >= 64 {
			in[6] = ofBytes(words, n, 1, wide)
		}
		if which >= 128 {
			in[5], in[7] = ofBytes(offsets, n, 1, wide), ofBytes(words, n, 1, wide)
		}
		check(t, all[int(which)%len(all)], in, text)
	})
}
