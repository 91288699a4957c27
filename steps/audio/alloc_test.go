package audio_test

import (
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/racetest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/audio"
)

// TestAllocsPerRow holds the steps to no allocation a row once their scratch has grown, for the formats that the program decodes itself.
func TestAllocsPerRow(t *testing.T) { //nolint:paralleltest // others would be counted
	if racetest.Enabled {
		t.Skip("pools drop at random under the race detector")
	}
	all := files(t)
	wav, flac := []byte(all["mono.wav"]), []byte(all["stereo.flac"])
	for _, tc := range []struct {
		name   string
		step   steps.Factory
		params map[string]string
		batch  *backends.Batch
		most   float64
	}{
		{"wav", audio.NewDecodeFactory(), nil, fileBatch(t, wav), 1},
		{"flac", audio.NewDecodeFactory(), map[string]string{"sample_rate": "16000"}, fileBatch(t, flac), 2},
		{"resample", audio.NewResampleFactory(), map[string]string{"from": "44100", "to": "16000"}, sampleBatch(t, 4410), 1},
		{"whisper", audio.NewMelFactory(), map[string]string{"preset": "whisper", "seconds": "1"}, sampleBatch(t, 16000), 1},
		{"windows", audio.NewFrameFactory(), nil, sampleBatch(t, 2000), 1},
	} {
		step := makeStep(t, tc.step, tc.params)
		run := func() {
			if err := step.Run(t.Context(), tc.batch); err != nil || tc.batch.Requests[0].Err != nil {
				t.Fatal(err, tc.batch.Requests[0].Err)
			}
		}
		run()
		if n := testing.AllocsPerRun(100, run); n > tc.most {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
		release(tc.batch)
	}
}
