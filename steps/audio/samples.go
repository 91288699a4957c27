package audio

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/audio/decode"
	"github.com/tutti-server/tutti/steps/audio/mel"
	"github.com/tutti-server/tutti/steps/audio/resample"
)

// NewResampleFactory declares the step resample_audio.
//
// Input and output samples are FP32 [frames] or, with channels all, [channels, frames]. The output has frames * to / from frames,
// rounded up.
func NewResampleFactory() steps.Factory {
	return steps.Factory{
		Name: "resample_audio",
		Doc: "Changes the sampling rate of samples as torchaudio.transforms.Resample does, within 1e-6 of full scale: band-limited sinc interpolation. librosa's " +
			"default, soxr, has another filter.",
		Params: slices.Concat([]steps.Param{
			{Key: "from", Doc: "Sampling rate of the input in Hz.", Required: true, Sample: "44100"},
			{Key: "to", Doc: "Sampling rate of the output in Hz.", Required: true, Sample: "16000"},
			channelsParam("Whether samples are [frames] or [channels, frames]."),
			{Key: "max_samples", Doc: "Most samples of a row of the input or of the output.", Default: "67108864"},
		}, filterParams()),
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("max_batch_size: 8", "resample_audio", "from", "8000", "to", "16000"),
			Request: `{"inputs": [{"name": "samples", "datatype": "FP32", "shape": [1, 4], "data": [0, 0.5, 0.25, -0.25]}]}`,
		}},
		Signature: func(s *steps.Settings) (*config.Signature, error) {
			p := []config.Port{samplesPort(s.Params["channels"] == all)}
			return &config.Signature{Inputs: p, Outputs: p}, nil
		},
		New: newResample,
	}
}

// resampleStep is resample_audio.
type resampleStep struct {
	resampler *resample.Resampler
	most      int
}

var _ steps.Step = (*resampleStep)(nil)

func newResample(s *steps.Settings) (steps.Step, error) {
	r := steps.Reader{Settings: s}
	filter := parseFilter(&r)
	from, to, most := r.Int("from", 1, decode.MaxRate), r.Int("to", 1, decode.MaxRate), r.Int("max_samples", 1, 1<<31)
	if r.Err != nil {
		return nil, r.Err
	}
	made, err := resample.New(from, to, filter)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", s.Model, err)
	}
	return &resampleStep{made, most}, nil
}

// Run resamples each channel of each row.
//
// hot: only the output is allocated.
func (s *resampleStep) Run(ctx context.Context, b *backends.Batch) error {
	in := &b.In[0]
	last := in.Shape.Rank() - 1
	frames := int(in.Shape.Dim(last))
	made := s.resampler.Len(frames)
	src := tensor.Slice[float32](in)
	lines := len(src) / max(frames, 1)
	if n := max(frames, made); n > s.most || n*(lines/max(b.Rows, 1)) > s.most {
		return status.Errorf(status.InvalidArg, "input '%s': expected at most %d samples (max_samples), found %d frames that become %d, of %d channels",
			samplesName, s.most, frames, made, lines/max(b.Rows, 1))
	}
	shape := in.Shape
	shape.SetDim(last, int64(made))
	out, err := b.Alloc(0, tensor.FP32, shape)
	if err != nil {
		return err
	}
	dst := tensor.Slice[float32](out)
	for range lines {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.resampler.Run(dst[:made], src[:frames])
		dst, src = dst[made:], src[frames:]
	}
	return nil
}

// NewMelFactory declares the step log_mel.
//
// Input samples is FP32 [frames]. Output mel is FP32 [n_mels, windows].
func NewMelFactory() steps.Factory {
	return steps.Factory{
		Name: "log_mel",
		Doc: "Computes the mel spectrogram of samples, with the defaults of librosa's feature.melspectrogram and power_to_db. The presets whisper and " +
			"whisper_large_v3 give the features of Whisper, with 80 and 128 filters: 30 seconds, to which recordings are filled up with zeros or cut. Results are " +
			"computed in float64 and rounded once.",
		Params: []steps.Param{
			{Key: steps.PresetKey, Doc: "Features of a well-known model: defaults for the other parameters.", Default: "none", Values: append([]string{"none"}, slices.Sorted(maps.Keys(melPresets))...)},
			{Key: rateName, Doc: "Sampling rate of the samples in Hz.", Default: "22050"},
			{Key: "n_fft", Doc: "Length of the transform in samples.", Default: "2048"},
			{Key: "win_length", Doc: "Length of the Hann window in samples; 0 is that of the transform.", Default: "0"},
			{Key: "hop_length", Doc: "Distance of windows in samples.", Default: "512"},
			{Key: "n_mels", Doc: "Number of filters.", Default: "128"},
			{Key: "fmin", Doc: "Lowest frequency in Hz.", Default: "0"},
			{Key: "fmax", Doc: "Highest frequency in Hz; 0 is half the sampling rate.", Default: "0"},
			{Key: "mel_scale", Doc: "Scale of the filters' frequencies.", Default: "slaney", Values: []string{"slaney", "htk"}},
			{Key: "norm", Doc: "Whether filters are scaled to equal area (slaney) or have a height of 1 (none).", Default: "slaney", Values: []string{"slaney", "none"}},
			{Key: "power", Doc: "Exponent of the magnitudes: 2 sums powers.", Default: "2", Values: []string{"1", "2"}},
			{Key: "center", Doc: "Whether the middle of the first window is at the first sample, with padding on both sides.", Default: yes, Values: []string{yes, "false"}},
			{Key: "pad_mode", Doc: "Padding of center: zeros, or mirrored samples.", Default: "constant", Values: []string{"constant", "reflect"}},
			{Key: "log", Doc: "Compression: librosa's power_to_db (db), Whisper's, the natural (ln) or decimal (log10) logarithm, or none.", Default: "db", Values: mel.LogNames},
			{Key: "amin", Doc: "Smallest energy before the logarithm; Whisper's is 1e-10.", Default: "1e-10"},
			{Key: "ref", Doc: "For db: the energy of 0 dB is 1, or the largest of the recording (max).", Default: "1", Values: []string{"1", "max"}},
			{Key: "top_db", Doc: "For db: the range below the largest value of the recording to which all are raised, or none.", Default: "80"},
			{Key: "seconds", Doc: "Length to which recordings are filled up with zeros or cut; 0 for none.", Default: "0"},
			{Key: "max_windows", Doc: "Most windows of a recording.", Default: "100000"},
		},
		Presets: melPresets,
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("max_batch_size: 8", "log_mel", "n_fft", "8", "hop_length", "4", "n_mels", "3", rateName, "8000"),
			Request: `{"inputs": [{"name": "samples", "datatype": "FP32", "shape": [1, 8], "data": [0, 1, 0, -1, 0, 1, 0, -1]}]}`,
		}},
		Signature: melSignature,
		New:       newMel,
	}
}

// melPresets are the features of well-known models.
var melPresets = map[string]map[string]string{
	"whisper":          whisper("80"),
	"whisper_large_v3": whisper("128"),
}

func whisper(mels string) map[string]string {
	return map[string]string{
		rateName: "16000", "n_fft": "400", "hop_length": "160", "n_mels": mels, "pad_mode": "reflect", "log": "whisper", "seconds": "30",
	}
}

// parseMel reads the parameters of log_mel.
func parseMel(s *steps.Settings) (o mel.Options, err error) {
	r := steps.Reader{Settings: s}
	const most = 1 << 20
	o = mel.Options{
		Rate: r.Int(rateName, 1, decode.MaxRate), FFT: r.Int("n_fft", 2, most), Window: r.Int("win_length", 0, most), Hop: r.Int("hop_length", 1, most),
		Mels: r.Int("n_mels", 1, 4096), HTK: s.Params["mel_scale"] == "htk", Area: s.Params["norm"] == "slaney", Magnitude: s.Params["power"] == "1",
		Center: s.Params["center"] == yes, Reflect: s.Params["pad_mode"] == "reflect", RefMax: s.Params["ref"] == "max",
		Log: mel.Log(max(slices.Index(mel.LogNames, s.Params["log"]), 0)),
	}
	seconds := 0.0
	for _, p := range []struct {
		key  string
		into *float64
	}{{"fmin", &o.Lowest}, {"fmax", &o.High}, {"amin", &o.Floor}, {"top_db", &o.TopDB}, {"seconds", &seconds}} {
		if p.key == "top_db" && s.Params[p.key] == "none" || r.Err != nil {
			continue
		}
		if *p.into = r.Float64(p.key); r.Err == nil && *p.into < 0 {
			r.Err = s.Wrong(p.key, "a number of at least 0")
		}
	}
	switch o.Pad = int(seconds * float64(o.Rate)); {
	case r.Err != nil:
	case o.Floor == 0:
		r.Err = s.Wrong("amin", "a number above 0")
	case seconds > 3600:
		r.Err = s.Wrong("seconds", "at most 3600")
	}
	if o.Window == 0 {
		o.Window = o.FFT
	}
	if o.High == 0 {
		o.High = float64(o.Rate) / 2
	}
	return o, r.Err
}

func melSignature(s *steps.Settings) (*config.Signature, error) {
	o, err := parseMel(s)
	if err != nil {
		return nil, err
	}
	windows := int64(-1)
	if o.Pad > 0 {
		if m, err := mel.New(o); err == nil {
			if n, err := m.Frames(0); err == nil {
				windows = int64(n)
			}
		}
	}
	return &config.Signature{
		Inputs:  []config.Port{samplesPort(false)},
		Outputs: []config.Port{{Name: melName, DType: tensor.FP32, Dims: tensor.Of(int64(o.Mels), windows)}},
	}, nil
}

// melStep is log_mel.
type melStep struct {
	mel     *mel.Spectrogram
	most    int // windows
	batched bool
	workers pool.Of[mel.Scratch]
}

var _ steps.Step = (*melStep)(nil)

func newMel(s *steps.Settings) (steps.Step, error) {
	o, err := parseMel(s)
	if err != nil {
		return nil, err
	}
	most, err := s.Int("max_windows", 1)
	if err != nil {
		return nil, err
	}
	m, err := mel.New(o)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", s.Model, err)
	}
	return &melStep{mel: m, most: most, batched: s.MaxBatch > 0}, nil
}

// Run computes the spectrogram of each row.
//
// hot: once the scratch has grown, only the output is allocated.
func (s *melStep) Run(ctx context.Context, b *backends.Batch) error {
	in := &b.In[0]
	n := int(in.Shape.Dim(in.Shape.Rank() - 1))
	windows, err := s.mel.Frames(n)
	if err == nil && windows > s.most {
		err = fmt.Errorf("expected at most %d windows (max_windows), found %d samples, which have %d", s.most, n, windows)
	}
	if err != nil {
		return status.Errorf(status.InvalidArg, "input '%s': %w", samplesName, err)
	}
	out, err := b.Alloc(0, tensor.FP32, steps.Shape(b, s.batched, int64(s.mel.Mels()), int64(windows)))
	if err != nil {
		return err
	}
	w := s.workers.Get()
	defer s.workers.Put(w)
	dst, src := tensor.Slice[float32](out), tensor.Slice[float32](in)
	size := s.mel.Mels() * windows
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mel.Run(dst[row*size:][:size], w, src[row*n:][:n], windows)
	}
	w.Forget(keep)
	return nil
}
