package image_test

import (
	"bytes"
	stdimage "image"
	_ "image/jpeg"
	_ "image/png"
	"path/filepath"
	"testing"

	"tutti/core/tensor"
)

// FuzzDecode feeds the step arbitrary files. It must never panic, and it accepts
// a file only when the standard library sees an image of an allowed size.
func FuzzDecode(f *testing.F) {
	paths, err := filepath.Glob("testdata/in/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		f.Add(readFile(f, path))
	}
	const limit = 1 << 16
	step := mustStep(f, 5, 4, map[string]string{"max_pixels": "65536"})
	gray := mustStep(f, 5, 4, map[string]string{"max_pixels": "65536", "color": "gray"})
	f.Fuzz(func(t *testing.T, file []byte) {
		b := newBatch(t, tensor.NewPool(), file)
		defer release(b)
		if err := step.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		failed := b.Reqs[0].Err != nil
		if err := gray.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if failed {
			return
		}
		c, _, err := stdimage.DecodeConfig(bytes.NewReader(file))
		if err != nil || c.Width*c.Height > limit {
			t.Errorf("accepted a file of %d x %d pixels: %v", c.Width, c.Height, err)
		}
	})
}
