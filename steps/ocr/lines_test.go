package ocr_test

import (
	"math"
	"testing"

	"github.com/tutti-server/tutti/steps/ocr"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestLinesContract runs the suite that every step passes.
func TestLinesContract(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	two := func(g0 float32, scores ...float32) []steptest.Value {
		return []steptest.Value{
			steptest.Text([]int64{1, 2, 1}, "a", ""), steptest.F32([]int64{1, int64(len(scores)), 1}, scores...),
			steptest.F32([]int64{1, 2, 4, 2}, 4, 9, 24, 9, 24, 17, -4, 17, 0, 0, 0, 0, 0, 0, 0, 0),
			steptest.F32([]int64{1, 6}, g0, 2, 0, 8, 10, 20),
		}
	}
	lines := func(text string, score float32) []steptest.Value {
		return []steptest.Value{
			steptest.Text([]int64{1, 1}, text), steptest.F32([]int64{1, 1}, score),
			steptest.F32([]int64{1, 1, 4, 2}, 2, 0.5, 10, 0.5, 10, 4.5, 0, 4.5), i32([]int64{1, 1}, 1),
		}
	}
	none := []steptest.Value{steptest.Text([]int64{1, 0}), steptest.F32([]int64{1, 0}), steptest.F32([]int64{1, 0, 4, 2}), i32([]int64{1, 1}, 0)}
	steptest.Run(
		t, ocr.NewLinesFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 8,
			Requests: []steptest.Request{
				{Inputs: two(2, 0.5, 1), Want: lines("a", 0.5)},
				{Inputs: two(2, 0.4, 1), Want: none},
				{Inputs: two(2, nan, 1), Want: none},
				{Inputs: two(nan, 1, 1), WantErr: "input 'geometry': expected scales above 0"},
			},
		},
		steptest.Case{
			Name: "empty", Params: map[string]string{"empty": "true", "score_threshold": "0"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.Text([]int64{1, 1}, ""), steptest.F32([]int64{1, 1}, 0), steptest.F32([]int64{1, 4, 2}, make([]float32, 8)...), steptest.F32([]int64{6}, 1, 1, 0, 0, 9, 9)},
				Want:   []steptest.Value{steptest.Text([]int64{1}, ""), steptest.F32([]int64{1}, 0), steptest.F32([]int64{1, 4, 2}, make([]float32, 8)...), i32([]int64{1}, 1)},
			}},
		},
		steptest.Case{
			Name: "scores", MaxBatch: 2,
			Requests: []steptest.Request{{Inputs: two(2, 1), WantErr: "input 'SCORES': expected 2, one for each text, found 1"}},
		},
		steptest.Case{
			Name: "boxes",
			Requests: []steptest.Request{{
				Inputs:  []steptest.Value{steptest.Text([]int64{1, 1}, ""), steptest.F32([]int64{1, 1}, 0), steptest.F32([]int64{0, 4, 2}), steptest.F32([]int64{6}, 1, 1, 0, 0, 9, 9)},
				WantErr: "input 'BOXES': expected at least 1, one for each text, found 0",
			}},
		},
		steptest.Case{Name: "threshold", Params: map[string]string{"score_threshold": "x"}, WantNewErr: "parameter 'score_threshold'"},
	)
}

// TestCTCContract runs the suite that every step passes.
func TestCTCContract(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	files := map[string][]byte{"c": []byte("a\nß\r\n")}
	scores := func(v ...float32) []steptest.Value {
		return []steptest.Value{steptest.F32([]int64{1, int64(len(v) / 4), 4}, v...)}
	}
	want := func(text string, score float32) []steptest.Value {
		return []steptest.Value{steptest.Text([]int64{1, 1}, text), steptest.F32([]int64{1, 1}, score)}
	}
	steptest.Run(
		t, ocr.NewCTCFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 16, Params: map[string]string{"characters_file": "c"}, Files: files, Tolerance: 1e-6,
			Requests: []steptest.Request{
				{Inputs: scores(0, 0.5, 0, 0, 0, 0.9, 0, 0, 0.5, 0, 0, 0, 0, 0.75, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1), Want: want("aaß ", 0.8125)},
				{Inputs: scores(1, 0, 0, 0), Want: want("", 0)},
				{Inputs: scores(0.5, 0.5, 0, 0), Want: want("", 0)}, // the first of equal ones
				{Inputs: scores(nan, nan, 0.25, nan), Want: want("ß", 0.25)},
				{Inputs: scores(), Want: want("", 0)},
			},
		},
		steptest.Case{
			Name: "last", MaxBatch: 4, Params: map[string]string{"characters_file": "c", "space": "false", "blank": "last", "softmax": "true"}, Files: files, Tolerance: 1e-6,
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.F32([]int64{1, 2, 3}, 1, 0, 0, 0, 0, 9)}, Want: want("a", 0.5761169)},
				{Inputs: []steptest.Value{steptest.F32([]int64{1, 1, 3}, float32(math.Inf(1)), nan, 0)}, Want: want("a", 1)},
			},
		},
		steptest.Case{
			Name: "classes", MaxBatch: 4, Params: map[string]string{"characters_file": "c"}, Files: files,
			Requests: []steptest.Request{{
				Inputs:  []steptest.Value{steptest.F32([]int64{1, 1, 3}, 0, 0, 0)},
				WantErr: "input 'scores': expected 4 classes, those of characters_file with the blank and with space true one more, found 3; change the parameter 'space'",
			}},
		},
		steptest.Case{Name: "file", Params: map[string]string{"characters_file": "d"}, Files: files, WantNewErr: "file 'd' of model 'tested'"},
	)
}
