package image_test

import (
	"bytes"
	"image/jpeg"
	"maps"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/steptest"
)

// BenchmarkPeer is timed against Pillow and numpy by make bench-steps.
func BenchmarkPeer(b *testing.B) {
	img := screen()
	w, h := img.Rect.Dx(), img.Rect.Dy()
	rgb := make([]byte, 0, 3*w*h)
	for i := 0; i < len(img.Pix); i += 4 {
		rgb = append(rgb, img.Pix[i:i+3]...)
	}
	shape := []int64{int64(h), int64(w), 3}
	for _, filter := range []string{"nearest", "area", "bilinear", "bicubic", "lanczos"} {
		batch := pixelBatch(b, tensor.NewPool(), shape, rgb, nil)
		params := map[string]string{"width": "224", "height": "224", "dtype": "uint8", "layout": "nhwc", "resize": filter}
		peer(b, "1080p to 224 "+filter, image.NewResizeFactory(), params, batch)
	}
	for _, preset := range []string{"resnet50", "clip", "yolo"} {
		batch := pixelBatch(b, tensor.NewPool(), shape, rgb, nil)
		peer(b, "1080p pixels preset "+preset, image.NewResizeFactory(), map[string]string{"preset": preset}, batch)
	}
	var file bytes.Buffer
	if err := jpeg.Encode(&file, img, &jpeg.Options{Quality: 85}); err != nil {
		b.Fatal(err)
	}
	batch := newBatch(b, tensor.NewPool(), file.Bytes())
	peer(b, "1080p JPEG to 224", image.NewFactory(), map[string]string{"preset": "vit"}, batch)
	photo := newBatch(b, tensor.NewPool(), readFile(b, "../../bench/testdata/pictures/0.jpg"))
	peer(b, "640 x 480 JPEG to 224", image.NewFactory(), map[string]string{"preset": "vit"}, photo)
	for _, name := range []string{"1080p JPEG to 224 scaled", "1080p JPEG to 224 scaled, draft"} {
		batch := newBatch(b, tensor.NewPool(), file.Bytes())
		peer(b, name, image.NewFactory(), map[string]string{"preset": "vit", "jpeg_scale": "auto"}, batch)
	}
}

func peer(b *testing.B, name string, f steps.Factory, given map[string]string, batch *backends.Batch) {
	b.Helper()
	step := makeStep(b, &f, maps.Clone(given))
	steptest.Peer(b, name, 1, func() {
		if err := step.Run(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
			b.Fatal(err, batch.Requests[0].Err)
		}
	})
	releaseAll(batch)
}
