// Package audio holds the steps that prepare audio for models: decode_audio for audio files, resample_audio for samples at another rate,
// and log_mel for spectrograms. Package ctc, below it, turns the scores of a speech recogniser into text, and package speech turns those
// of a voice activity detector into segments.
//
// The samples are those of other libraries, because models were trained behind them:
//
//   - decode_audio gives the samples of soundfile and librosa. Files of WAV and FLAC have the same bits; MP3, Ogg Vorbis and Ogg Opus are
//     decoded by other programs, whose results differ by rounding. Damaged files are refused where libsndfile gives what it can.
//   - resample_audio gives the samples of torchaudio.transforms.Resample. librosa's default, soxr, has another filter.
//   - log_mel gives the spectrograms of Whisper and of librosa.
//
// A file goes through these packages:
//
//	audio      parameters, batches, channels
//	decode     bytes to samples: the header and its limits, then the decoder of the format
//	resample   another sampling rate
//	mel        windows, spectra, filters, logarithms
package audio

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/audio/resample"
)

const (
	fileName    = "AUDIO"
	samplesName = "samples"
	lengthName  = "length"
	rateName    = "sample_rate"
	melName     = "mel"
)

// The values of parameters.
const (
	yes    = "true"
	mono   = "mono"
	all    = "all"
	kaiser = "kaiser"
)

// channelsParam declares how many channels samples have.
func channelsParam(doc string) steps.Param {
	return steps.Param{Key: "channels", Doc: doc, Default: mono, Values: []string{mono, all}}
}

// filterParams declare the filter of a resampler.
func filterParams() []steps.Param {
	return []steps.Param{
		{Key: "window", Doc: "Window of the resampling filter, as torchaudio's sinc_interp_hann or sinc_interp_kaiser.", Default: "hann", Values: []string{"hann", kaiser}},
		{Key: "filter_width", Doc: "Width of the resampling filter in zero crossings, torchaudio's lowpass_filter_width.", Default: "6"},
		{Key: "rolloff", Doc: "Cut-off frequency of the resampling filter, as a fraction of half the lower rate.", Default: "0.99"},
		{Key: "beta", Doc: "Parameter of the window kaiser.", Default: "14.769656459379492"},
	}
}

// maxFilterWidth keeps the filter from being longer than most recordings.
const maxFilterWidth = 1024

// parseFilter reads filterParams.
func parseFilter(r *steps.Reader) resample.Options {
	s := r.Settings
	o := resample.Options{
		Width: r.Int("filter_width", 1, maxFilterWidth), Kaiser: s.Params["window"] == kaiser,
		Rolloff: r.Float64("rolloff"), Beta: r.Float64("beta"),
	}
	switch {
	case r.Err != nil:
	case !(o.Rolloff > 0 && o.Rolloff <= 1):
		r.Err = s.Wrong("rolloff", "a number above 0 and at most 1")
	case !(o.Beta >= 0 && o.Beta <= 100):
		r.Err = s.Wrong("beta", "a number from 0 to 100")
	}
	return o
}

// samplesPort returns an input or output of samples: [frames], or [channels, frames].
func samplesPort(channels bool) config.Port {
	p := config.Port{Name: samplesName, DType: tensor.FP32, Dims: tensor.Of(-1)}
	if channels {
		p.Dims = tensor.Of(-1, -1)
	}
	return p
}

// outputs are the outputs of one request: those of the batch if it is the only one, else its own, since requests may differ in length.
type outputs struct {
	batch   *backends.Batch
	request *backends.Request
	own     []tensor.Tensor // nil for those of the batch
	batched bool
}

// begin returns the outputs of request i.
func begin(b *backends.Batch, i int, batched bool) outputs {
	o := outputs{batch: b, request: &b.Requests[i], batched: batched}
	if len(b.Requests) > 1 {
		o.own = make([]tensor.Tensor, len(b.Out))
	}
	return o
}

// alloc allocates output port. dims are those of a row.
func (o *outputs) alloc(port int, d tensor.DType, dims ...int64) (*tensor.Tensor, error) {
	shape := tensor.Of(dims...)
	if o.batched {
		shape = shape.Prepend(int64(o.request.Rows))
	}
	if o.own == nil {
		return o.batch.Alloc(port, d, shape)
	}
	t, err := tensor.New(o.batch.Allocator, d, shape)
	o.own[port] = t
	return &o.own[port], err
}

// end gives the outputs to the request, or releases them after an error, which it returns.
func (o *outputs) end(err error) error {
	switch {
	case o.own == nil:
	case err != nil || o.request.Err != nil:
		tensor.ReleaseAll(o.own)
	default:
		o.request.Out = o.own
	}
	return err
}
