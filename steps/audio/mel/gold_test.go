package mel_test

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"

	"github.com/tutti-server/tutti/steps/audio/mel"
	"github.com/tutti-server/tutti/steps/steptest"
)

// numbers is an array of float32 in JSON.
type numbers struct {
	Shape []int
	Data  string
}

func (n *numbers) floats(tb testing.TB) []float32 {
	tb.Helper()
	data, err := base64.StdEncoding.DecodeString(n.Data)
	if err != nil {
		tb.Fatal(err)
	}
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// golden is a case of testdata/gold.json.gz.
type golden struct {
	Name         string
	Samples, Mel numbers
	Last         *numbers // the last frames, of a spectrogram whose first ones are in Mel
	Frames       int
	Options      mel.Options
}

// TestGold compares spectrograms with those of librosa and transformers. Both compute in float32 at some point: the tolerance is 1e-6 of
// Whisper's features, whose values are around 1, 1e-4 dB, and of spectra without a logarithm 1e-6 of the largest.
func TestGold(t *testing.T) {
	t.Parallel()
	var cases []golden
	steptest.ReadGold(t, "gold.json.gz", &cases)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s, err := mel.New(c.Options)
			if err != nil {
				t.Fatal(err)
			}
			samples := c.Samples.floats(t)
			frames, err := s.Frames(len(samples))
			if err != nil || frames != c.Frames {
				t.Fatalf("%d frames, %v, want %d", frames, err, c.Frames)
			}
			var scratch mel.Scratch
			got := make([]float32, s.Mels()*frames)
			s.Run(got, &scratch, samples, frames)
			tolerance, want := 1e-6, c.Mel.floats(t)
			switch c.Options.Log {
			case mel.Decibel:
				tolerance = 1e-4
			case mel.None:
				most := float32(0)
				for _, v := range want {
					most = max(most, v)
				}
				tolerance *= float64(most)
			}
			compare(t, got, frames, 0, &c.Mel, tolerance)
			if c.Last != nil {
				compare(t, got, frames, frames-c.Last.Shape[1], c.Last, tolerance)
			}
		})
	}
}

// compare compares the frames from first on with want.
func compare(t *testing.T, got []float32, frames, first int, want *numbers, tolerance float64) {
	t.Helper()
	worst, width := 0.0, want.Shape[1]
	for i, v := range want.floats(t) {
		worst = max(worst, math.Abs(float64(got[i/width*frames+first+i%width])-float64(v)))
	}
	t.Logf("largest difference %.2g", worst)
	if !(worst <= tolerance) {
		t.Errorf("a value differs by %v, more than %v", worst, tolerance)
	}
}
