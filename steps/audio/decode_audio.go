package audio

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/audio/decode"
	"github.com/tutti-server/tutti/steps/audio/resample"
)

// The outputs of decode_audio.
const (
	outSamples = iota
	outLength
	outRate
)

// NewDecodeFactory declares the step decode_audio.
//
// Input AUDIO is BYTES [1]: a WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus file. Output samples is FP32 [frames], the mean of the channels, or
// with channels all [channels, frames]; full scale is from -1 to 1. Output length is INT64 [1], the frames of the file's own samples:
// shorter files of one request end with zeros in samples. Output sample_rate is INT32 [1], in Hz.
//
// A file that cannot be decoded fails its own request with an invalid-argument error that names the input, the expected formats and what
// was found.
func NewDecodeFactory() steps.Factory {
	return steps.Factory{
		Name: "decode_audio",
		Doc: "Decodes an audio file to FP32 samples with full scale from -1 to 1, and changes their sampling rate. WAV files may hold PCM of 8 to 32 bits, " +
			"floating point of 32 and 64 bits, A-law and mu-law; Ogg files Vorbis or Opus. The samples are those of soundfile and librosa.load with sr None: the " +
			"same bits for WAV and FLAC, within rounding for MP3, Vorbis and Opus. Another sampling rate is made as by torchaudio's Resample. Output length is the " +
			"number of frames; shorter files of one request are filled up with zeros. Opus files are decoded at the rate of what was encoded, at most 48000 Hz.",
		Params: slices.Concat([]steps.Param{
			{Key: rateName, Doc: "Sampling rate of the output in Hz; 0 is that of the file.", Default: "0"},
			channelsParam("Whether the output is the mean of the channels, [frames], or has all of them, [channels, frames]. All files of a request must then have the same number."),
			{Key: "max_bytes", Doc: "Largest file accepted.", Default: "67108864"},
			{Key: "max_samples", Doc: "Most samples of a file, and of all files of a request after they are filled up: frames times channels.", Default: "67108864"},
		}, filterParams()),
		Examples: []steps.Example{{ // four frames of stereo at 8 kHz: a file whose bytes can be written in JSON
			Config: steps.ExampleConfig("max_batch_size: 8", "decode_audio"),
			Request: `{"inputs": [{"name": "AUDIO", "datatype": "BYTES", "shape": [1, 1], "data": ["RIFF4\u0000\u0000\u0000WAVEfmt \u0010\u0000\u0000\u0000` +
				`\u0001\u0000\u0002\u0000@\u001f\u0000\u0000\u0000}\u0000\u0000\u0004\u0000\u0010\u0000data\u0010\u0000\u0000\u0000` +
				`\u0000\u0000\u0000\u0000\u0000@\u0000 \u0000@\u0000@\u0000\u0010\u0000\u0000"]}]}`,
		}},
		Signature: decodeSignature,
		New:       newDecode,
	}
}

func decodeSignature(s *steps.Settings) (*config.Signature, error) {
	return &config.Signature{
		Inputs: []config.Port{{Name: fileName, DType: tensor.Bytes, Dims: tensor.Of(1)}},
		Outputs: []config.Port{
			outSamples: samplesPort(s.Params["channels"] == all),
			outLength:  {Name: lengthName, DType: tensor.Int64, Dims: tensor.Of(1)},
			outRate:    {Name: rateName, DType: tensor.Int32, Dims: tensor.Of(1)},
		},
	}, nil
}

// decodeStep is decode_audio.
type decodeStep struct {
	limits  decode.Options
	cache   *resample.Cache // nil for the rate of the file
	mono    bool
	batched bool
	samples *semaphore.Weighted // of all files in progress
	workers pool.Of[decodeWorker]
}

var _ steps.Step = (*decodeStep)(nil)

// samplesPerCore is how many samples every core may have in progress: four minutes of mono at 16 kHz. A file of a few kilobytes can
// unpack to a quarter of a gigabyte, which must not happen on all cores at once.
const samplesPerCore = 4 << 20

// keep is the most bytes of samples that a worker keeps for the next batch.
const keep = 32 << 20

func newDecode(s *steps.Settings) (steps.Step, error) {
	r := steps.Reader{Settings: s}
	filter := parseFilter(&r)
	d := &decodeStep{mono: s.Params["channels"] == mono, batched: s.MaxBatch > 0}
	if rate := r.Int(rateName, 0, decode.MaxRate); rate > 0 {
		d.cache = &resample.Cache{To: rate, Options: filter}
	}
	const most = 1 << 31
	d.limits = decode.Options{MaxBytes: int64(r.Int("max_bytes", 1, most)), MaxSamples: int64(r.Int("max_samples", 1, most))}
	d.samples = semaphore.NewWeighted(max(d.limits.MaxSamples, int64(runtime.GOMAXPROCS(0))*samplesPerCore))
	return d, r.Err
}

// decodeWorker is the scratch memory of one batch in progress.
type decodeWorker struct {
	decoder decode.Decoder
	mixed   []float32 // of a file of several channels: their mean, or one after the other
	data    []float32 // the output of the rows of a request, one after the other
	rows    []decodedRow
	rest    []byte // the input after the current row
}

// decodedRow is a row whose samples are in decodeWorker.data.
type decodedRow struct {
	channels, frames, rate int
}

// Run decodes each row.
//
// hot: once the scratch has grown, only the outputs are allocated, a slice for each request of several, and what the decoders of MP3, Vorbis
// and Opus need.
func (s *decodeStep) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.done(w)
	w.rest = b.In[0].Bytes()
	for i := range b.Requests {
		o := begin(b, i, s.batched)
		if err := o.end(s.request(ctx, w, &o)); err != nil {
			return err
		}
	}
	return nil
}

// done drops what belongs to the requests, and memory that is large.
func (s *decodeStep) done(w *decodeWorker) {
	w.rest = nil
	w.decoder.Forget(keep)
	if 4*cap(w.data) > keep {
		w.data = nil
	}
	if 4*cap(w.mixed) > keep {
		w.mixed = nil
	}
	s.workers.Put(w)
}

// request decodes the rows of a request and writes its outputs, unless a row fails.
func (s *decodeStep) request(ctx context.Context, w *decodeWorker, o *outputs) error {
	w.data, w.rows = w.data[:0], w.rows[:0]
	first := o.request.First
	for row := first; row < first+o.request.Rows; row++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, rest, ok := tensor.NextBytes(w.rest)
		if w.rest = rest; !ok {
			return status.Errorf(status.InvalidArg, "input '%s': expected %d files, found %d", fileName, o.batch.Rows, row)
		}
		if o.request.Err != nil {
			continue
		}
		if err := s.row(ctx, w, data); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o.batch.Fail(row, steps.InputError(o.batch, fileName, row, err))
		}
	}
	if o.request.Err == nil {
		return s.write(w, o)
	}
	return nil // the request has failed, not the batch
}

// row decodes a file and appends its samples to w.data. It waits while too many samples are in progress.
func (s *decodeStep) row(ctx context.Context, w *decodeWorker, data []byte) error {
	h, err := s.limits.Check(data)
	if err != nil {
		return err
	}
	n := min(max(h.Samples(), 1), s.limits.MaxSamples)
	err = s.decode(ctx, w, data, h, n)
	if errors.Is(err, decode.ErrMore) && n < s.limits.MaxSamples { // the estimate was too low
		err = s.decode(ctx, w, data, h, s.limits.MaxSamples)
	}
	if errors.Is(err, decode.ErrMore) {
		err = fmt.Errorf("expected at most %d samples (max_samples), found more", s.limits.MaxSamples)
	}
	return err
}

// decode is row for a file of at most n samples.
func (s *decodeStep) decode(ctx context.Context, w *decodeWorker, data []byte, h decode.Header, n int64) error {
	if err := s.samples.Acquire(ctx, n); err != nil {
		return err
	}
	defer s.samples.Release(n)
	a, err := w.decoder.Decode(data, h, n)
	if err != nil {
		return err
	}
	row := decodedRow{channels: a.Channels, frames: a.Frames(), rate: a.Rate}
	if s.mono {
		row.channels = 1
	}
	if len(w.rows) > 0 && w.rows[0].channels != row.channels {
		return fmt.Errorf("expected files of as many channels as the first of the request, %d, found %d", w.rows[0].channels, row.channels)
	}
	return s.convert(w, w.mix(a, row.channels), row)
}

// mix returns the samples of a by channel, or their mean for one channel, borrowed until the next call of mix or of the decoder. As in
// numpy's mean, sums are in float32.
func (w *decodeWorker) mix(a *decode.Audio, channels int) []float32 {
	if a.Channels == 1 {
		return a.Samples
	}
	frames := a.Frames()
	w.mixed = slices.Grow(w.mixed[:0], channels*frames)[:channels*frames]
	if channels == a.Channels {
		for c := range channels {
			for i := range frames {
				w.mixed[c*frames+i] = a.Samples[i*channels+c]
			}
		}
		return w.mixed
	}
	for i := range frames {
		sum := float32(0)
		for _, v := range a.Samples[i*a.Channels:][:a.Channels] {
			sum += v
		}
		w.mixed[i] = sum / float32(a.Channels)
	}
	return w.mixed
}

// convert appends mixed at the output's rate to w.data.
func (s *decodeStep) convert(w *decodeWorker, mixed []float32, row decodedRow) error {
	frames, at := row.frames, len(w.data)
	if n := int64(at + len(mixed)); n > s.limits.MaxSamples { // many small files of one request may unpack to much
		return fmt.Errorf("expected at most %d samples (max_samples) in all files of a request, found %d", s.limits.MaxSamples, n)
	}
	if s.cache == nil || row.rate == s.cache.To {
		w.data = append(w.data, mixed...)
	} else {
		r, err := s.cache.From(row.rate)
		if err != nil {
			return err
		}
		row.frames, row.rate = r.Len(frames), s.cache.To
		if int64(row.frames) > (s.limits.MaxSamples-int64(at))/int64(row.channels) {
			return fmt.Errorf("expected at most %d samples (max_samples), found %d frames of %d channels at %d Hz", s.limits.MaxSamples, row.frames, row.channels, row.rate)
		}
		n := row.frames * row.channels
		w.data = slices.Grow(w.data, n)[:at+n]
		for c := range row.channels {
			r.Run(w.data[at+c*row.frames:][:row.frames], mixed[c*frames:][:frames])
		}
	}
	w.rows = append(w.rows, row)
	return nil
}

// write allocates and fills the outputs of a request.
func (s *decodeStep) write(w *decodeWorker, o *outputs) error {
	channels, longest := 0, 0
	for _, r := range w.rows {
		channels, longest = r.channels, max(longest, r.frames)
	}
	if n := int64(longest) * int64(channels) * int64(len(w.rows)); n > s.limits.MaxSamples {
		o.batch.Fail(o.request.First, status.Errorf(status.InvalidArg, "input '%s': expected at most %d samples (max_samples) in all files of a request, found %d with zeros behind the shorter ones",
			fileName, s.limits.MaxSamples, n))
		return nil
	}
	dims := []int64{int64(longest)}
	if !s.mono {
		dims = []int64{int64(channels), int64(longest)}
	}
	samples, err := o.alloc(outSamples, tensor.FP32, dims...)
	if err != nil {
		return err
	}
	dst, src := tensor.Slice[float32](samples), w.data
	for _, r := range w.rows {
		for range r.channels {
			clear(dst[copy(dst[:longest], src[:r.frames]):longest])
			dst, src = dst[longest:], src[r.frames:]
		}
	}
	length, err := o.alloc(outLength, tensor.Int64, 1)
	if err != nil {
		return err
	}
	rate, err := o.alloc(outRate, tensor.Int32, 1)
	if err != nil {
		return err
	}
	for i, r := range w.rows {
		tensor.Slice[int64](length)[i], tensor.Slice[int32](rate)[i] = int64(r.frames), int32(r.rate)
	}
	return nil
}
