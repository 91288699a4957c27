package audio

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const windowsName = "windows"

// NewFrameFactory declares the step frame_audio.
//
// Input samples is FP32 [frames]. Output windows is FP32 [N, context + window_size], where N is frames / window_size, rounded up.
func NewFrameFactory() steps.Factory {
	return steps.Factory{
		Name: "frame_audio",
		Doc: "Cuts samples into windows for models that see a recording piece by piece. Each window follows the one before and begins with the last samples of that, " +
			"its context; the first has zeros there. Zeros fill up the last window.",
		Params: []steps.Param{
			{Key: "window_size", Doc: "New samples of a window.", Default: "512"},
			{Key: "context", Doc: "Samples of the window before.", Default: "64"},
			{Key: "max_windows", Doc: "Most windows of a recording.", Default: "100000"},
		},
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("max_batch_size: 8", "frame_audio", "window_size", "3", "context", "1"),
			Request: `{"inputs": [{"name": "samples", "datatype": "FP32", "shape": [1, 5], "data": [1, 2, 3, 4, 5]}]}`,
		}},
		Inline: true,
		Signature: func(s *steps.Settings) (*config.Signature, error) {
			f, err := parseFrame(s)
			return &config.Signature{
				Inputs:  []config.Port{samplesPort(false)},
				Outputs: []config.Port{{Name: windowsName, DType: tensor.FP32, Dims: tensor.Of(-1, int64(f.context+f.size))}},
			}, err
		},
		New: func(s *steps.Settings) (steps.Step, error) { return parseFrame(s) },
	}
}

// frameStep is frame_audio.
type frameStep struct {
	size, context, most int
	batched             bool
}

var _ steps.Step = (*frameStep)(nil)

func parseFrame(s *steps.Settings) (*frameStep, error) {
	r := steps.Reader{Settings: s}
	f := &frameStep{size: r.Int("window_size", 1, 1<<20), most: r.Int("max_windows", 1, 1<<30), batched: s.MaxBatch > 0}
	f.context = r.Int("context", 0, max(f.size, 0))
	return f, r.Err
}

// Run cuts each row.
//
// hot: only the output is allocated.
func (s *frameStep) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	frames := int(in.Shape.Dim(in.Shape.Rank() - 1))
	n, width := (frames+s.size-1)/s.size, s.context+s.size
	if n > s.most {
		return status.Errorf(status.InvalidArg, "input '%s': expected at most %d windows (max_windows), found %d samples, which have %d", samplesName, s.most, frames, n)
	}
	out, err := b.Alloc(0, tensor.FP32, steps.Shape(b, s.batched, int64(n), int64(width)))
	if err != nil {
		return err
	}
	dst, src := tensor.Slice[float32](out), tensor.Slice[float32](in)
	for range b.Rows {
		for i := range n {
			from, window := i*s.size-s.context, dst[:width]
			if from < 0 { // only of the first window: context is at most size
				clear(window[:-from])
				window, from = window[-from:], 0
			}
			clear(window[copy(window, src[from:frames]):])
			dst = dst[width:]
		}
		src = src[frames:]
	}
	return nil
}
