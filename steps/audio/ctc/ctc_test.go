package ctc_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/audio/ctc"
	"github.com/tutti-server/tutti/steps/steptest"
)

// golden is testdata/gold.json.gz.
type golden struct {
	Tokens []string
	Cases  []struct {
		Logits  string
		Windows int
		Greedy  string
		Beams   []struct {
			Width  int
			Texts  []string
			Scores []float32
		}
	}
}

// TestGold compares texts with those of Wav2Vec2CTCTokenizer and of pyctcdecode. Its scores are sums of float32.
func TestGold(t *testing.T) {
	t.Parallel()
	var g golden
	steptest.ReadGold(t, "gold.json.gz", &g)
	indices := map[string]int{}
	for i, token := range g.Tokens {
		indices[token] = i
	}
	file, err := json.Marshal(indices)
	if err != nil {
		t.Fatal(err)
	}
	// Cases are of one width and number of texts.
	byWidth := map[string]*steptest.Case{}
	add := func(width, best int, q steptest.Request) {
		key := fmt.Sprintf("width %d, %d texts", width, best)
		c := byWidth[key]
		if c == nil {
			c = &steptest.Case{
				Name: key, MaxBatch: 8, Tolerance: 2e-3, Files: map[string][]byte{"vocab.json": file},
				Params: map[string]string{"vocabulary_file": "vocab.json", "beam_width": strconv.Itoa(width), "n_best": strconv.Itoa(best)},
			}
			byWidth[key] = c
		}
		c.Requests = append(c.Requests, q)
	}
	for _, c := range g.Cases {
		data, err := base64.StdEncoding.DecodeString(c.Logits)
		if err != nil {
			t.Fatal(err)
		}
		in := []steptest.Value{{DType: tensor.FP32, Dims: []int64{1, int64(c.Windows), int64(len(g.Tokens))}, Data: data}}
		add(1, 1, steptest.Request{Inputs: in, Want: []steptest.Value{steptest.Text([]int64{1, 1}, c.Greedy), {}}})
		for _, b := range c.Beams {
			n := len(b.Texts)
			dims := []int64{1, int64(n)}
			add(b.Width, n, steptest.Request{Inputs: in, Want: []steptest.Value{steptest.Text(dims, b.Texts...), steptest.F32(dims, b.Scores...)}})
		}
	}
	var cases []steptest.Case
	for _, c := range byWidth {
		cases = append(cases, *c)
	}
	steptest.Run(t, ctc.NewFactory(), cases...)
}

// TestContract runs the suite on vocabularies, blanks and bad input.
func TestContract(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"tokens.txt": []byte("-\na\nb\n"), "bad.json": []byte(`{"a": 1}`), "words.txt": []byte("▁a\nb\n▁c\n_\n")}
	with := func(params ...string) map[string]string {
		p := map[string]string{"vocabulary_file": "tokens.txt", "blank": "-", "scores": "probs"}
		for i := 0; i < len(params); i += 2 {
			p[params[i]] = params[i+1]
		}
		return p
	}
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	log := func(p float64) float32 { return float32(math.Log(p)) }
	one := []int64{1, 1}
	window := func(v ...float32) steptest.Value { return steptest.F32([]int64{1, int64(len(v) / 3), 3}, v...) }
	steptest.Run(
		t, ctc.NewFactory(),
		steptest.Case{
			Name: "greedy", MaxBatch: 4, Params: with(), Files: files, Tolerance: 1e-6,
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{window(0.6, 0.4, 0, 0.6, 0.4, 0)}, Want: []steptest.Value{steptest.Text(one, ""), steptest.F32(one, log(0.36))}},
				{Inputs: []steptest.Value{window(nan, 0.4, 0, 0.6, 0.4, 0)}, WantErr: "input 'logits': expected numbers, found NaN for token 0"},
				{Inputs: []steptest.Value{window(0.1, 0.9, 0, 0.2, 0, 0.8)}, Want: []steptest.Value{steptest.Text(one, "ab"), steptest.F32(one, log(0.72))}},
				{Inputs: []steptest.Value{steptest.F32([]int64{1, 1, 2}, 0, 1)}, WantErr: "expected 3 scores in a window, one for each token of vocabulary_file, found 2"},
				{Inputs: []steptest.Value{window()}, Want: []steptest.Value{steptest.Text(one, ""), steptest.F32(one, 0)}},
			},
		},
		steptest.Case{ // a, a-, -a and aa are one text, which is likelier than none
			Name: "beam", Params: with("beam_width", "8", "n_best", "3"), Files: files, Tolerance: 1e-6,
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.F32([]int64{2, 3}, 0.6, 0.4, 0, 0.6, 0.4, 0)},
				Want:   []steptest.Value{steptest.Text([]int64{3}, "a", "", ""), steptest.F32([]int64{3}, log(0.64), log(0.36), inf)},
			}},
		},
		steptest.Case{
			Name: "lengths", MaxBatch: 4, Params: with("lengths", "true", "scores", "log_probs"), Files: files,
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{window(-9, 0, -9, -9, -9, 0), steptest.I64(one, 1)}, Want: []steptest.Value{steptest.Text(one, "a"), {}}},
				{Inputs: []steptest.Value{window(-9, 0, -9, -9, -9, 0), steptest.I64(one, 3)}, WantErr: "input 'length': expected 0 to 2 windows, found 3"},
				{Inputs: []steptest.Value{window(inf, inf, inf, 0, 0, 0), steptest.I64(one, 2)}, WantErr: "expected a finite score in each window"},
			},
		},
		steptest.Case{
			Name: "words", Params: with("vocabulary_file", "words.txt", "blank", "#3", "beam_width", "4"), Files: files,
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.F32([]int64{3, 4}, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0)},
				Want:   []steptest.Value{steptest.Text([]int64{1}, "ab c"), {}},
			}},
		},
		steptest.Case{Name: "no blank", Params: with("blank", "x"), Files: files, WantNewErr: "parameter 'blank' of model 'tested' is 'x'"},
		steptest.Case{Name: "no file", Params: with("vocabulary_file", "none.txt"), Files: files, WantNewErr: "file 'none.txt' of model 'tested' is neither in"},
		steptest.Case{Name: "indices", Params: with("vocabulary_file", "bad.json"), Files: files, WantNewErr: "expected the indices 0 to 0, each once, found 1"},
		steptest.Case{Name: "best", Params: with("n_best", "2"), Files: files, WantNewErr: "parameter 'n_best' of model 'tested' is 2, expected at most 1"},
		steptest.Case{Name: "prune", Params: with("beam_prune_logp", "1"), Files: files, WantNewErr: "expected a number of at most 0"},
	)
}
