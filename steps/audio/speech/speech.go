// Package speech holds the step speech_segments, which turns the probabilities of a voice activity detector into segments of speech.
package speech

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	inSpeech = iota
	inLength
)

const (
	speechName = "speech"
	lengthName = "length"
)

// NewFactory declares the step speech_segments.
//
// Input speech is FP32 [N], the probability of speech in each window of window_size samples, and length INT64 [1], the samples of the
// recording. Outputs are START and END, INT64 [M], in samples, and COUNT, INT32 [1]; rows of a batch with fewer segments end with zeros.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "speech_segments",
		Doc: "Returns the segments of speech in a recording from the probabilities of a voice activity detector, with the rules of Silero VAD's get_speech_timestamps: " +
			"a segment begins at a probability of at least threshold and ends where probabilities stay below threshold_end for min_silence_ms. " +
			"Longer segments than max_speech_s end at their longest silence.",
		Params: []steps.Param{
			{Key: "sample_rate", Doc: "Sampling rate of the recording in Hz.", Default: "16000"},
			{Key: "window_size", Doc: "Samples of a window.", Default: "512"},
			{Key: "threshold", Doc: "Smallest probability of speech.", Default: "0.5"},
			{Key: "threshold_end", Doc: "Probability below which speech may have ended, or auto: 0.15 less than threshold, at least 0.01.", Default: "auto"},
			{Key: "min_speech_ms", Doc: "Segments that are not longer are dropped.", Default: "250"},
			{Key: "min_silence_ms", Doc: "Silence that ends a segment.", Default: "100"},
			{Key: "max_speech_s", Doc: "Longest segment in seconds, or none.", Default: "none"},
			{Key: "cut_silence_ms", Doc: "For max_speech_s: shortest silence at which a segment is cut.", Default: "98"},
			{Key: "pad_ms", Doc: "Added to each segment at both ends, at most to the middle of the silence between two.", Default: "30"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("max_batch_size: 8", "speech_segments", "min_speech_ms", "50", "min_silence_ms", "30", "pad_ms", "10"),
			Request: `{"inputs": [
    {"name": "speech", "datatype": "FP32", "shape": [1, 8], "data": [0.1, 0.9, 0.8, 0.9, 0.1, 0.1, 0.7, 0.6]},
    {"name": "length", "datatype": "INT64", "shape": [1, 1], "data": [4000]}]}`,
		}},
		Inline:    true,
		Signature: signature,
		New:       newStep,
	}
}

func signature(*steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs: []config.Port{
			inSpeech: {Name: speechName, DType: tensor.FP32, Dims: tensor.Of(-1)},
			inLength: {Name: lengthName, DType: tensor.Int64, Dims: tensor.Of(1)},
		},
		Outputs: []config.Port{
			{Name: "START", DType: tensor.Int64, Dims: tensor.Of(-1)},
			{Name: "END", DType: tensor.Int64, Dims: tensor.Of(-1)},
			{Name: "COUNT", DType: tensor.Int32, Dims: tensor.Of(1)},
		},
	}, nil
}

// options are the parameters. Durations are in samples, which need not be whole.
type options struct {
	window              int64
	start, end          float64 // thresholds
	minSpeech, minPause float64
	maxSpeech, cut, pad float64
	limited             bool // maxSpeech is set
}

func parse(s *steps.Settings) (o options, err error) {
	r := steps.Reader{Settings: s}
	rate := float64(r.Int("sample_rate", 1, 768000))
	o.window = int64(r.Int("window_size", 1, 1<<20))
	o.start = r.Float64("threshold")
	if o.end = max(o.start-0.15, 0.01); s.Params["threshold_end"] != "auto" {
		o.end = r.Float64("threshold_end")
	}
	ms := func(key string) float64 {
		v := r.Float64(key)
		if r.Err == nil && v < 0 {
			r.Err = s.Wrong(key, "a number of at least 0")
		}
		return rate * v / 1000
	}
	o.minSpeech, o.minPause, o.cut, o.pad = ms("min_speech_ms"), ms("min_silence_ms"), ms("cut_silence_ms"), ms("pad_ms")
	if s.Params["max_speech_s"] != "none" {
		o.limited = true
		o.maxSpeech = ms("max_speech_s")*1000 - float64(o.window) - 2*o.pad
	}
	return o, r.Err
}

// step is speech_segments.
type step struct {
	options
	batched bool
	workers pool.Of[worker]
}

var _ steps.Step = (*step)(nil)

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	return &step{options: o, batched: s.MaxBatch > 0}, err
}

// segment is a range of samples.
type segment struct{ start, end int64 }

// worker is the scratch memory of one batch in progress.
type worker struct {
	found []segment // of all rows
	ends  []int     // of each row, in found
	finder
}

// Run finds the segments of each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *step) Run(_ context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	w.found, w.ends = w.found[:0], w.ends[:0]
	in := &b.In[inSpeech]
	n, most := int(in.Shape.Dim(in.Shape.Rank()-1)), 0
	for row := range b.Rows {
		first, length := len(w.found), tensor.Slice[int64](&b.In[inLength])[row]
		if length < 0 || length > int64(n)*s.window {
			b.Fail(row, steps.InputError(b, lengthName, row, fmt.Errorf("expected at most %d windows of %d samples, found %d samples", n, s.window, length)))
		} else {
			used := (length + s.window - 1) / s.window // windows behind the end of a recording that was filled up do not count
			w.found = s.find(&w.finder, w.found, tensor.Slice[float32](in)[row*n:][:used], length)
			s.widen(w.found[first:], length)
		}
		w.ends = append(w.ends, len(w.found))
		most = max(most, len(w.found)-first)
	}
	return s.write(w, b, most)
}

// write allocates and fills the outputs.
func (s *step) write(w *worker, b *backends.Batch, n int) error {
	o := steps.Outputs{Batch: b}
	shape := steps.Shape(b, s.batched, int64(n))
	starts := steps.Alloc[int64](&o, 0, tensor.Int64, shape)
	ends := steps.Alloc[int64](&o, 1, tensor.Int64, shape)
	counts := steps.Alloc[int32](&o, 2, tensor.Int32, steps.Shape(b, s.batched, 1))
	if o.Err != nil {
		return o.Err
	}
	clear(starts)
	clear(ends)
	first := 0
	for row, end := range w.ends {
		for i, g := range w.found[first:end] {
			starts[row*n+i], ends[row*n+i] = g.start, g.end
		}
		counts[row] = int32(end - first)
		first = end
	}
	return nil
}
