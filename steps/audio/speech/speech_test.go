package speech_test

import (
	"encoding/base64"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/audio/speech"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestGold compares segments with those of Silero VAD's get_speech_timestamps: scripts/make_vad_example.py has stored them.
func TestGold(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Speech     string
		Samples    int64
		Options    map[string]float64
		Start, End []int64
	}
	steptest.ReadGold(t, "gold.json.gz", &cases)
	keys := map[string]string{
		"threshold": "threshold", "neg_threshold": "threshold_end", "min_speech_duration_ms": "min_speech_ms", "min_silence_duration_ms": "min_silence_ms",
		"speech_pad_ms": "pad_ms", "max_speech_duration_s": "max_speech_s", "min_silence_at_max_speech": "cut_silence_ms",
	}
	found := 0
	var list []steptest.Case
	for i, c := range cases {
		data, err := base64.StdEncoding.DecodeString(c.Speech)
		if err != nil {
			t.Fatal(err)
		}
		params := map[string]string{}
		for key, v := range c.Options {
			params[keys[key]] = strconv.FormatFloat(v, 'g', -1, 64)
		}
		n := int64(len(c.Start))
		found += len(c.Start)
		list = append(list, steptest.Case{
			Name: strconv.Itoa(i), MaxBatch: 2, Params: params,
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{{DType: tensor.FP32, Dims: []int64{1, int64(len(data) / 4)}, Data: data}, steptest.I64([]int64{1, 1}, c.Samples)},
				Want:   []steptest.Value{steptest.I64([]int64{1, n}, c.Start...), steptest.I64([]int64{1, n}, c.End...), {}},
			}},
		})
	}
	if found < 100 {
		t.Errorf("the cases have %d segments, want more", found)
	}
	steptest.Run(t, speech.NewFactory(), list...)
}

// TestContract runs the suite on several rows, recordings that were filled up, and bad lengths.
func TestContract(t *testing.T) {
	t.Parallel()
	params := map[string]string{"min_speech_ms": "0", "min_silence_ms": "0", "pad_ms": "0"}
	length := func(n ...int64) steptest.Value { return steptest.I64([]int64{int64(len(n)), 1}, n...) }
	rows := func(n int64, v ...float32) steptest.Value { return steptest.F32([]int64{n, int64(len(v)) / n}, v...) }
	two := []int64{2, 2}
	steptest.Run(
		t, speech.NewFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 8, Params: params,
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{rows(2, 1, 0, 1, 0, 0, 1, 1, 1), length(2048, 1000)}, // the second one ends in its second window
					Want:   []steptest.Value{steptest.I64(two, 0, 1024, 512, 0), steptest.I64(two, 512, 1536, 1000, 0), {}},
				},
				{Inputs: []steptest.Value{rows(1, 0, 0, 0, 0), length(2049)}, WantErr: "input 'length': expected at most 4 windows of 512 samples, found 2049 samples"},
				{Inputs: []steptest.Value{rows(1, 0, 0, 0, 0), length(-1)}, WantErr: "found -1 samples"},
				{Inputs: []steptest.Value{rows(1, 0, 0, 0, 0), length(0)}},
			},
		},
		steptest.Case{
			Name: "unbatched", Params: params,
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.F32([]int64{1}, 1), steptest.I64([]int64{1}, 500)},
				Want:   []steptest.Value{steptest.I64([]int64{1}, 0), steptest.I64([]int64{1}, 500), {}},
			}},
		},
		steptest.Case{Name: "negative", Params: map[string]string{"pad_ms": "-1"}, WantNewErr: "parameter 'pad_ms' of model 'tested' is '-1', expected a number of at least 0"},
		steptest.Case{Name: "text", Params: map[string]string{"threshold": "x"}, WantNewErr: "parameter 'threshold' of model 'tested' is 'x'"},
	)
}
