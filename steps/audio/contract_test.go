package audio_test

import (
	"archive/zip"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/audio"
	"github.com/tutti-server/tutti/steps/steptest"
)

// files returns the audio files of package decode.
func files(tb testing.TB) map[string]string {
	tb.Helper()
	z, err := zip.OpenReader("decode/testdata/gold.zip")
	if err != nil {
		tb.Fatal(err)
	}
	defer z.Close()
	all := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			tb.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			tb.Fatal(err)
		}
		all[f.Name] = string(data)
	}
	return all
}

// wav returns a file of 16-bit PCM at 8 kHz.
func wav(channels int, samples ...int16) string {
	le := binary.LittleEndian
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00")
	b = le.AppendUint16(b, uint16(channels))
	b = le.AppendUint32(b, 8000)
	b = le.AppendUint32(b, uint32(16000*channels))
	b = le.AppendUint16(b, uint16(2*channels))
	b = append(b, "\x10\x00data"...)
	b = le.AppendUint32(b, uint32(2*len(samples)))
	for _, v := range samples {
		b = le.AppendUint16(b, uint16(v))
	}
	return string(b)
}

// TestDecodeContract runs the suite on files.
func TestDecodeContract(t *testing.T) {
	t.Parallel()
	all := files(t)
	stereo := wav(2, 0, 0, 16384, 8192, -32768, -16384)
	file, one := []int64{1, 1}, []int64{1, 1}
	const half = 1 << 14
	steptest.Run(
		t, audio.NewDecodeFactory(),
		steptest.Case{
			Name: "mono", MaxBatch: 8, Params: map[string]string{},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.Text(file, stereo)},
					Want:   []steptest.Value{steptest.F32([]int64{1, 3}, 0, 0.375, -0.75), steptest.I64(one, 3), steptest.I32(one, 8000)},
				},
				{Inputs: []steptest.Value{steptest.Text(file, "no audio")}, WantErr: `input 'AUDIO': expected WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus, found 8 bytes that begin with "no audio"`},
				{
					Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, wav(1, half), stereo)},
					Want:   []steptest.Value{steptest.F32([]int64{2, 3}, 0.5, 0, 0, 0, 0.375, -0.75), steptest.I64([]int64{2, 1}, 1, 3), steptest.I32([]int64{2, 1}, 8000, 8000)},
				},
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, stereo, stereo[:50])}, WantErr: "input 'AUDIO' row 1: expected WAV, FLAC, MP3, Ogg Vorbis or Ogg Opus, found a WAV that cannot be decoded: truncated"},
				{Inputs: []steptest.Value{steptest.Text(file, wav(1))}, Want: []steptest.Value{steptest.F32([]int64{1, 0}), steptest.I64(one, 0), steptest.I32(one, 8000)}},
			},
		},
		steptest.Case{
			Name: "all channels at another rate", MaxBatch: 8, Params: map[string]string{"channels": "all", "sample_rate": "16000"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.Text(file, all["stereo.flac"])}},
				{Inputs: []steptest.Value{steptest.Text(file, all["stereo.mp3"])}},
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, stereo, wav(1, half))}, WantErr: "row 1: expected files of as many channels as the first of the request, 2, found 1"},
				{Inputs: []steptest.Value{steptest.Text(file, all["stereo.ogg"])}},
				{Inputs: []steptest.Value{steptest.Text(file, all["mono.opus"])}},
			},
		},
		steptest.Case{
			Name: "unbatched", Params: map[string]string{"max_samples": "5", "max_bytes": "70"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.Text([]int64{1}, wav(1, half))}, Want: []steptest.Value{steptest.F32([]int64{1}, 0.5), steptest.I64([]int64{1}, 1), steptest.I32([]int64{1}, 8000)}},
				{Inputs: []steptest.Value{steptest.Text([]int64{1}, stereo)}, WantErr: "expected at most 5 samples (max_samples), found 3 frames of 2 channels"},
				{Inputs: []steptest.Value{steptest.Text([]int64{1}, wav(1, make([]int16, 14)...))}, WantErr: "expected at most 70 bytes (max_bytes), found 72"},
			},
		},
		steptest.Case{
			Name: "many files", MaxBatch: 8, Params: map[string]string{"max_samples": "5"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, wav(1, 1, 2, 3), wav(1, 1, 2, 3))}, WantErr: "row 1: expected at most 5 samples (max_samples) in all files of a request, found 6"},
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, wav(1, 1, 2, 3), wav(1, 1))}, WantErr: "expected at most 5 samples (max_samples) in all files of a request, found 6 with zeros behind the shorter ones"},
				{Inputs: []steptest.Value{steptest.Text(file, wav(1, 1, 2, 3))}},
			},
		},
		steptest.Case{
			Name: "too long at the output's rate", Params: map[string]string{"max_samples": "5", "sample_rate": "16000"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{steptest.Text([]int64{1}, wav(1, 1, 2, 3))}, WantErr: "expected at most 5 samples (max_samples), found 6 frames of 1 channels at 16000 Hz"}},
		},
		steptest.Case{Name: "rate", Params: map[string]string{"sample_rate": "1e3"}, WantNewErr: "parameter 'sample_rate'"},
		steptest.Case{Name: "rolloff", Params: map[string]string{"rolloff": "1.5"}, WantNewErr: "expected a number above 0 and at most 1"},
		steptest.Case{Name: "beta", Params: map[string]string{"beta": "-1"}, WantNewErr: "expected a number from 0 to 100"},
	)
}

// TestSamplesContract runs the suite on the steps after decoding.
func TestSamplesContract(t *testing.T) {
	t.Parallel()
	samples := func(n int64, v ...float32) steptest.Value { return steptest.F32([]int64{n, int64(len(v)) / n}, v...) }
	steptest.Run(
		t, audio.NewResampleFactory(),
		steptest.Case{
			Name: "rows", MaxBatch: 8, Params: map[string]string{"from": "16000", "to": "8000"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{samples(2, 1, 2, 3, 4, 5, 6)}}, {Inputs: []steptest.Value{samples(1, 1, 2, 3)}}},
		},
		steptest.Case{
			Name: "channels", Params: map[string]string{"from": "8000", "to": "8000", "channels": "all", "max_samples": "4"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{samples(2, 1, 2, 3, 4)}, Want: []steptest.Value{samples(2, 1, 2, 3, 4)}},
			},
		},
		steptest.Case{Name: "no rate", Params: map[string]string{"from": "8000"}, WantNewErr: "needs parameter 'to'"},
		steptest.Case{Name: "no filter", Params: map[string]string{"from": "767999", "to": "16000"}, WantNewErr: "model 'tested': no filter from 767999 Hz"},
	)
	steptest.Run(
		t, audio.NewFrameFactory(),
		steptest.Case{
			Name: "windows", MaxBatch: 8, Params: map[string]string{"window_size": "2", "context": "1", "max_windows": "3"},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{samples(2, 1, 2, 3, 4, 5, 6)},
					Want:   []steptest.Value{steptest.F32([]int64{2, 2, 3}, 0, 1, 2, 2, 3, 0, 0, 4, 5, 5, 6, 0)},
				},
				{Inputs: []steptest.Value{samples(1, 1, 2, 3)}},
			},
		},
		steptest.Case{Name: "context", Params: map[string]string{"window_size": "2", "context": "3"}, WantNewErr: "parameter 'context' of model 'tested' is 3, expected at most 2"},
	)
}

// TestMelContract runs the suite on spectrograms.
func TestMelContract(t *testing.T) {
	t.Parallel()
	tone := make([]float32, 1000)
	for i := range tone {
		tone[i] = float32(math.Sin(float64(i)))
	}
	in := func(n int) []steptest.Value { return []steptest.Value{steptest.F32([]int64{1, int64(n)}, tone[:n]...)} }
	steptest.Run(
		t, audio.NewMelFactory(),
		steptest.Case{
			Name: "whisper", MaxBatch: 2, Params: map[string]string{"preset": "whisper_large_v3", "seconds": "0.1"},
			Requests: []steptest.Request{{Inputs: in(1000)}, {Inputs: in(1000)}, {Inputs: in(10)}},
		},
		steptest.Case{
			Name: "no padding", MaxBatch: 2, Params: map[string]string{"center": "false", "n_fft": "64", "hop_length": "16", "n_mels": "5", "log": "ln"},
			Requests: []steptest.Request{{Inputs: in(70)}},
		},
		steptest.Case{Name: "window", Params: map[string]string{"n_fft": "64", "win_length": "65"}, WantNewErr: "model 'tested': the window of 65 samples is longer than the transform of 64"},
		steptest.Case{Name: "frequencies", Params: map[string]string{"fmax": "20000"}, WantNewErr: "expected frequencies from 0 to 11025 Hz"},
		steptest.Case{Name: "amin", Params: map[string]string{"amin": "0"}, WantNewErr: "expected a number above 0"},
		steptest.Case{Name: "seconds", Params: map[string]string{"seconds": "4000"}, WantNewErr: "expected at most 3600"},
		steptest.Case{Name: "negative", Params: map[string]string{"fmin": "-1"}, WantNewErr: "expected a number of at least 0"},
	)
}

// TestRefused checks errors that fail a whole batch.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		run        func() error
	}{
		{"mirror", "expected more than 1024 samples, which are mirrored at the ends, found 10", func() error {
			return runStep(t, audio.NewMelFactory(), map[string]string{"pad_mode": "reflect"}, 10)
		}},
		{"windows", "expected at most 3 windows (max_windows), found 2048 samples, which have 5", func() error {
			return runStep(t, audio.NewMelFactory(), map[string]string{"max_windows": "3"}, 2048)
		}},
		{"short", "expected at least 2048 samples, found 2047", func() error {
			return runStep(t, audio.NewMelFactory(), map[string]string{"center": "false"}, 2047)
		}},
		{"frames", "expected at most 1 windows (max_windows), found 513 samples, which have 2", func() error {
			return runStep(t, audio.NewFrameFactory(), map[string]string{"max_windows": "1"}, 513)
		}},
		{"samples", "expected at most 99 samples (max_samples), found 50 frames that become 100, of 1 channels", func() error {
			return runStep(t, audio.NewResampleFactory(), map[string]string{"from": "8000", "to": "16000", "max_samples": "99"}, 50)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.run(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
