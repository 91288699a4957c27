package image_test

import (
	"bytes"
	"image/jpeg"
	"math"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// TestScaledFidelity checks how close images of 224 x 224 are that were decoded at a fraction of their size (jpeg_scale: auto) to those that
// were decoded whole. -v prints the figures that docs/performance.md quotes.
func TestScaledFidelity(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../bench/testdata/pictures/*.jpg")
	if err != nil || len(files) == 0 {
		t.Fatal("no photographs", err)
	}
	var smooth bytes.Buffer
	if err := jpeg.Encode(&smooth, screen(), &jpeg.Options{Quality: 85}); err != nil {
		t.Fatal(err)
	}
	cases := map[string][]byte{"1080p": smooth.Bytes()}
	for _, f := range files {
		cases[filepath.Base(f)] = readFile(t, f)
	}
	for name, file := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole, scaled := samples(t, file, "full"), samples(t, file, "auto")
			squares, sum := 0.0, 0.0
			for i, v := range whole {
				d := math.Abs(float64(v) - float64(scaled[i]))
				squares, sum = squares+d*d, sum+d
			}
			n := float64(len(whole))
			psnr, mean := 10*math.Log10(255*255*n/squares), sum/n
			t.Logf("PSNR %.1f dB, mean difference %.2f", psnr, mean)
			if squares == 0 {
				t.Error("expected another decoder, found equal samples")
			}
			if psnr < 40 || mean > 1 {
				t.Errorf("expected a PSNR of at least 40 dB and a mean difference of at most 1, found %.1f and %.2f", psnr, mean)
			}
		})
	}
}

// samples decodes a file to 224 x 224 by the step.
func samples(t *testing.T, file []byte, scale string) []byte {
	t.Helper()
	batch := newBatch(t, tensor.NewPool(), file)
	defer releaseAll(batch)
	step := mustStep(t, 224, 224, map[string]string{"jpeg_scale": scale, "dtype": "uint8"})
	if err := step.Run(t.Context(), batch); err != nil || batch.Requests[0].Err != nil {
		t.Fatal(err, batch.Requests[0].Err)
	}
	return bytes.Clone(batch.Out[0].Bytes())
}
