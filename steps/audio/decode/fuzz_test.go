package decode_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/audio/decode"
)

// FuzzWAV decodes damaged files.
func FuzzWAV(f *testing.F) { fuzzFormat(f, ".wav") }

// FuzzFLAC is FuzzWAV for FLAC.
func FuzzFLAC(f *testing.F) { fuzzFormat(f, ".flac") }

// FuzzMP3 is FuzzWAV for MP3.
func FuzzMP3(f *testing.F) { fuzzFormat(f, ".mp3") }

// FuzzVorbis is FuzzWAV for Ogg Vorbis.
func FuzzVorbis(f *testing.F) { fuzzFormat(f, ".ogg") }

// FuzzOpus is FuzzWAV for Ogg Opus.
func FuzzOpus(f *testing.F) { fuzzFormat(f, ".opus") }

// fuzzFormat decodes arbitrary files, first those of a format. It must never panic or hang; what it accepts is within the limits, and a
// decoder that has decoded another file gives the same samples as a new one. Pages of Ogg get valid checksums, without which hardly any damage
// would reach the decoders.
func fuzzFormat(f *testing.F, suffix string) {
	f.Helper()
	const most = 1 << 16
	o := decode.Options{MaxBytes: 1 << 20, MaxSamples: most}
	for name, file := range files(f) {
		if strings.HasSuffix(name, suffix) {
			f.Add(file)
			f.Add(file[:len(file)/2])
		}
	}
	var used decode.Decoder
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		decode.FixOgg(file)
		h, err := o.Check(file)
		if err != nil {
			return
		}
		if n := h.Samples(); n < 0 {
			t.Fatalf("the header has %d samples", n)
		}
		var fresh decode.Decoder
		a, aErr := fresh.Decode(file, h, most)
		b, bErr := used.Decode(file, h, most)
		if (aErr == nil) != (bErr == nil) || errors.Is(aErr, decode.ErrMore) != errors.Is(bErr, decode.ErrMore) {
			t.Fatalf("a new decoder gives %v, a used one %v", aErr, bErr)
		}
		if aErr != nil {
			return
		}
		if len(a.Samples) > most || a.Rate < 1 || a.Rate > decode.MaxRate || a.Channels < 1 || a.Channels > decode.MaxChannels || len(a.Samples)%a.Channels != 0 {
			t.Fatalf("accepted %d samples of %d channels at %d Hz", len(a.Samples), a.Channels, a.Rate)
		}
		for i, v := range a.Samples {
			if math.Float32bits(v) != math.Float32bits(b.Samples[i]) {
				t.Fatalf("sample %d is %v, of a used decoder %v", i, v, b.Samples[i])
			}
		}
	})
}
