package audio_test

import (
	"os"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/audio"
	"github.com/tutti-server/tutti/steps/steptest"
)

// BenchmarkPeer measures the CPU time of the cases of bench/peers/audio/audio.py.
func BenchmarkPeer(b *testing.B) {
	recording := func(name string) *backends.Batch {
		data, err := os.ReadFile("../../examples/ensembles/vad/" + name)
		if err != nil {
			b.Fatal(err)
		}
		return fileBatch(b, data)
	}
	for _, bc := range []struct {
		name   string
		step   steps.Factory
		params map[string]string
		batch  *backends.Batch
	}{
		{"two.flac", audio.NewDecodeFactory(), nil, recording("two.flac")},
		{"stereo.ogg", audio.NewDecodeFactory(), nil, recording("stereo.ogg")},
		{"call.mp3", audio.NewDecodeFactory(), nil, recording("call.mp3")},
		{"phone.wav", audio.NewDecodeFactory(), nil, recording("phone.wav")},
		{"10 s from 44100 to 16000", audio.NewResampleFactory(), map[string]string{"from": "44100", "to": "16000"}, sampleBatch(b, 441000)},
		{"30 s whisper", audio.NewMelFactory(), map[string]string{"preset": "whisper"}, sampleBatch(b, 480000)},
		{"30 s mel", audio.NewMelFactory(), map[string]string{"sample_rate": "16000"}, sampleBatch(b, 480000)},
	} {
		step := makeStep(b, bc.step, bc.params)
		steptest.Peer(b, bc.name, 1, func() {
			if err := step.Run(b.Context(), bc.batch); err != nil || bc.batch.Requests[0].Err != nil {
				b.Fatal(err, bc.batch.Requests[0].Err)
			}
		})
		release(bc.batch)
	}
}
