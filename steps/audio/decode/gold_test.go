package decode_test

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/audio/decode"
)

// files returns the files of testdata/gold.zip, which testdata/make_gold.py writes.
func files(tb testing.TB) map[string][]byte {
	tb.Helper()
	z, err := zip.OpenReader("testdata/gold.zip")
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	all := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			tb.Fatal(err)
		}
		if all[f.Name], err = io.ReadAll(r); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// limits are large enough for every file.
var limits = decode.Options{MaxBytes: 1 << 26, MaxSamples: 1 << 22}

// decodeFile decodes a file with a new decoder.
func decodeFile(data []byte, o decode.Options) (*decode.Audio, error) {
	h, err := o.Check(data)
	if err != nil {
		return nil, err
	}
	var d decode.Decoder
	return d.Decode(data, h, o.MaxSamples)
}

// tolerance is the largest difference from libsndfile: none for formats without loss, and for the others that of their decoders. That of MP3
// gives 16 bits, without rounding. Of Opus, the part for speech (SILK) is defined in integers, which libopus rounds in other places; the part
// for music (CELT) is not.
func tolerance(name string) float64 {
	switch {
	case strings.HasSuffix(name, ".mp3"):
		return 1.5 / (1 << 15)
	case strings.HasSuffix(name, ".ogg"):
		return 2e-6
	case strings.HasSuffix(name, ".opus"):
		if strings.HasPrefix(name, "mono") { // speech
			return 2e-3
		}
		return 1e-5
	}
	return 0
}

// TestSoundfile compares the samples of every format with those of libsndfile.
func TestSoundfile(t *testing.T) {
	t.Parallel()
	all := files(t)
	for name, data := range all {
		want, ok := all[name+".f32"]
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := decodeFile(data, limits)
			if err != nil {
				t.Fatal(err)
			}
			number := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(want[4*i:])) }
			if a.Rate != int(number(0)) || a.Channels != int(number(1)) || len(a.Samples) != len(want)/4-2 {
				t.Fatalf("%d Hz, %d channels, %d samples, want %v, %v, %d", a.Rate, a.Channels, len(a.Samples), number(0), number(1), len(want)/4-2)
			}
			worst := 0.0
			for i, v := range a.Samples {
				worst = max(worst, math.Abs(float64(v)-float64(number(2+i))))
			}
			t.Logf("largest difference %.2g", worst)
			if worst > tolerance(name) {
				t.Errorf("a sample differs by %v, more than %v", worst, tolerance(name))
			}
		})
	}
}
