// Package decode reads audio files: WAV, FLAC, MP3, Ogg Vorbis and Ogg Opus. The samples are those of libsndfile, which
// soundfile and librosa use: floating point numbers, full scale from -1 to 1.
//
// The bytes are hostile until proven otherwise. Options.Check reads the header only and refuses a file by its length and by what
// it claims to hold. Decoder.Decode then stops at a number of samples, whatever the header said.
//
// For example, a WAV file of one second of stereo at 8 kHz gives Audio{Rate: 8000, Channels: 2} with 16,000 samples.
package decode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Options are the limits of a file.
type Options struct {
	MaxBytes int64
	// MaxSamples is the most samples of all channels together.
	MaxSamples int64
}

// MaxRate is the highest sampling rate accepted, in Hz. MaxChannels is the largest number of channels.
const (
	MaxRate     = 768000
	MaxChannels = 64
)

// Audio is a decoded file.
type Audio struct {
	// Rate is the sampling rate in Hz.
	Rate, Channels int
	// Samples has the samples of each frame one after the other, one per channel.
	Samples []float32
}

// Frames returns the number of samples of each channel.
func (a *Audio) Frames() int { return len(a.Samples) / max(a.Channels, 1) }

// Header is what the first bytes of a file claim.
type Header struct {
	format         format
	rate, channels int
	frames         int64 // unknown if the format does not say
	likely         int64 // frames, where they are unknown; 0 if there is no hint
	bytes          int64
}

// unknown stands for a number of frames that only decoding shows.
const unknown = -1

// Samples returns the number of samples that the file claims to have. If it claims nothing, Samples estimates one: most files have
// fewer.
func (h Header) Samples() int64 {
	switch {
	case h.frames != unknown:
		return h.frames * int64(h.channels)
	case h.likely > 0 && h.likely < 1<<40:
		return h.likely * int64(h.channels)
	}
	return 4 * h.bytes // a FLAC file that does not say it
}

// Check reads the header of a file. It returns an error if the format is unknown or the file exceeds a limit.
func (o *Options) Check(data []byte) (Header, error) {
	if int64(len(data)) > o.MaxBytes {
		return Header{}, fmt.Errorf("expected at most %d bytes (max_bytes), found %d", o.MaxBytes, len(data))
	}
	f := sniff(data)
	if f == formatUnknown {
		return Header{}, errors.New(expectedFormats + ", found " + describe(data))
	}
	h, err := formats[f].header(data)
	if err == nil {
		err = h.check()
	}
	if err != nil {
		return Header{}, f.refuse(err)
	}
	h.format, h.bytes = f, int64(len(data))
	if h.frames != unknown && h.frames > o.MaxSamples/int64(h.channels) {
		return Header{}, fmt.Errorf("expected at most %d samples (max_samples), found %d frames of %d channels", o.MaxSamples, h.frames, h.channels)
	}
	return h, nil
}

// check compares the header with the limits of every file. A rate of 0 is not known yet.
func (h *Header) check() error {
	if h.rate < 0 || h.rate > MaxRate {
		return fmt.Errorf("expected a sampling rate of 1 to %d Hz, found %d", MaxRate, h.rate)
	}
	if h.channels < 1 || h.channels > MaxChannels {
		return fmt.Errorf("expected 1 to %d channels, found %d", MaxChannels, h.channels)
	}
	return nil
}

// Decoder decodes one file at a time and keeps its memory for the next one. The zero value is ready for use. It is not safe for
// concurrent use.
type Decoder struct {
	audio  Audio
	limit  int64
	reader bytes.Reader
	flac   flac
	ogg    oggReader
	chunk  []byte    // samples of MP3
	packet []float32 // of Vorbis or Opus
}

// ErrMore means that a file has more samples than the limit of Decode.
var ErrMore = errors.New("more samples than the limit")

// errDecoder replaces a panic of a decoder: hostile bytes must never stop the server, even where a library has a bug.
var errDecoder = errors.New("the decoder failed on malformed data")

// Decode decodes a file whose header h was returned by Options.Check. It returns ErrMore if the file has more than limit
// samples. The samples are valid until the next call of Decode or Forget; data is borrowed until Decode returns.
func (d *Decoder) Decode(data []byte, h Header, limit int64) (*Audio, error) {
	d.audio = Audio{Samples: d.audio.Samples[:0]}
	d.limit = limit
	err := d.run(data, h)
	d.reader.Reset(nil)
	d.ogg = oggReader{packet: d.ogg.packet[:0]}
	switch {
	case errors.Is(err, ErrMore):
		return nil, ErrMore
	case err != nil:
		return nil, h.format.refuse(err)
	}
	return &d.audio, nil
}

func (d *Decoder) run(data []byte, h Header) (err error) {
	defer func() {
		if recover() != nil {
			err = errDecoder
		}
	}()
	if err := formats[h.format].decode(d, data); err != nil {
		return err
	}
	got := Header{rate: d.audio.Rate, channels: d.audio.Channels}
	return got.check()
}

// Forget drops the samples if they take more than keep bytes.
func (d *Decoder) Forget(keep int) {
	if 4*cap(d.audio.Samples) > keep {
		d.audio.Samples = nil
	}
}

// extend adds n samples to the output and returns them, to be set.
func (d *Decoder) extend(n int) ([]float32, error) {
	at := len(d.audio.Samples)
	if int64(at)+int64(n) > d.limit {
		return nil, ErrMore
	}
	d.audio.Samples = slices.Grow(d.audio.Samples, n)[:at+n]
	return d.audio.Samples[at:], nil
}

// dropFirst removes frames from the front of the output.
func (d *Decoder) dropFirst(frames int) {
	n := min(frames*d.audio.Channels, len(d.audio.Samples))
	d.audio.Samples = d.audio.Samples[:copy(d.audio.Samples, d.audio.Samples[n:])]
}

// dropLast removes frames from the end of the output.
func (d *Decoder) dropLast(frames int) {
	n := min(frames*d.audio.Channels, len(d.audio.Samples))
	d.audio.Samples = d.audio.Samples[:len(d.audio.Samples)-n]
}
