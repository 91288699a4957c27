package image_test

import (
	"bytes"
	stdjpeg "image/jpeg"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/steptest"
)

// BenchmarkPeer is timed against Pillow and numpy by make bench-steps, and against libjpeg-turbo by make bench-jpeg, which names
// a folder of files.
func BenchmarkPeer(b *testing.B) {
	if folder := os.Getenv("TUTTI_PEER_FILES"); folder != "" {
		peerFiles(b, folder)
		return
	}
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
	if err := stdjpeg.Encode(&file, img, &stdjpeg.Options{Quality: 85}); err != nil {
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

// peerFiles measures the JPEG files of a folder: the decoder alone, and the step.
func peerFiles(b *testing.B, folder string) {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.jpg"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no files in %s: %v", folder, err)
	}
	for _, path := range paths {
		name, file := strings.TrimSuffix(filepath.Base(path), ".jpg"), readFile(b, path)
		var d jpeg.Decoder
		var row []byte
		for scale, what := range map[int]string{1: " decoded whole", 4: " decoded at a quarter"} {
			steptest.Peer(b, name+what, 1, func() {
				if err := d.Decode(file, scale); err != nil {
					b.Fatal(err)
				}
				w, h := d.Size()
				row = raster.Sized(row, 3*w)
				for y := range h {
					d.Row(row, y)
				}
			})
		}
		batch := newBatch(b, tensor.NewPool(), file)
		peer(b, name+" to a tensor", image.NewFactory(), map[string]string{"preset": "vit", "jpeg_scale": "auto"}, batch)
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
