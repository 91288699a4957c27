package jpeg_test

import (
	"bytes"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"math"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/steps/image/jpeg"
)

// screen is an image of 1920 x 1080 with some texture, as a JPEG of 4:2:0.
func screen(tb testing.TB) []byte {
	tb.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 1920, 1080))
	for y := range 1080 {
		for x := range 1920 {
			u, v := float64(x)/97, float64(y)/61
			img.SetRGBA(x, y, color.RGBA{
				R: byte(127 + 90*math.Sin(u)), G: byte(127 + 90*math.Cos(v-u)),
				B: byte(127 + 60*math.Sin(u*v)), A: 255,
			})
		}
	}
	var out bytes.Buffer
	if err := stdjpeg.Encode(&out, img, &stdjpeg.Options{Quality: 85}); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// BenchmarkDecode decodes 1080p to rows at every scale, and to planes with the standard library.
func BenchmarkDecode(b *testing.B) {
	file := screen(b)
	var d jpeg.Decoder
	row := make([]byte, 3*1920)
	for _, scale := range []int{1, 2, 4, 8} {
		b.Run(strconv.Itoa(scale), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(file, scale); err != nil {
					b.Fatal(err)
				}
				_, h := d.Size()
				for y := range h {
					d.Row(row, y)
				}
			}
		})
	}
	b.Run("standard library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := stdjpeg.Decode(bytes.NewReader(file)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
