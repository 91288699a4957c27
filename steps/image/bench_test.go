package image_test

import (
	"bytes"
	stdimage "image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// screen is an image of 1920 x 1080: smooth colour with some texture.
func screen() *stdimage.RGBA {
	img := stdimage.NewRGBA(stdimage.Rect(0, 0, 1920, 1080))
	for y := range 1080 {
		for x := range 1920 {
			u, v := float64(x)/97, float64(y)/61
			img.SetRGBA(x, y, color.RGBA{
				R: byte(127 + 90*math.Sin(u)), G: byte(127 + 90*math.Cos(v-u)),
				B: byte(127 + 60*math.Sin(u*v)), A: 255,
			})
		}
	}
	return img
}

// BenchmarkDecodeResize is the whole step, 1080p to 224 x 224; compare it with its
// "decode only", the standard library's share.
func BenchmarkDecodeResize(b *testing.B) {
	var jpg, raw bytes.Buffer
	img := screen()
	if err := jpeg.Encode(&jpg, img, &jpeg.Options{Quality: 85}); err != nil {
		b.Fatal(err)
	}
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&raw, img); err != nil {
		b.Fatal(err)
	}
	for _, bc := range []struct {
		name string
		file []byte
	}{{"jpeg", jpg.Bytes()}, {"png", raw.Bytes()}} {
		b.Run(bc.name, func(b *testing.B) {
			step := mustStep(b, 224, 224, nil)
			batch := newBatch(b, tensor.NewPool(), bc.file)
			b.ReportAllocs()
			for b.Loop() {
				if err := step.Run(b.Context(), batch); err != nil || batch.Requests[0].Err != nil {
					b.Fatal(err, batch.Requests[0].Err)
				}
			}
		})
		b.Run(bc.name+"/decode only", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := stdimage.Decode(bytes.NewReader(bc.file)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
