package encode

import (
	"image"
	"image/jpeg"
	"image/png"
	"math"

	"github.com/HugoSmits86/nativewebp"
)

// encode writes h x w pixels to wk.out as a file of the configured format. PNG and WebP
// are lossless: a decoder returns the same samples, those under transparent pixels too.
func (wk *worker) encode(o *options, samples []byte, h, w int) error {
	img := wk.image(o, samples, h, w)
	switch o.format {
	case "png":
		return png.Encode(&wk.out, img)
	case "webp":
		return nativewebp.Encode(&wk.out, img, nil)
	default:
		return jpeg.Encode(&wk.out, img, &jpeg.Options{Quality: o.quality})
	}
}

// image wraps the samples of h x w pixels as an image. Grey and packed RGBA samples are
// used in place, other layouts are copied to wk.pix as four bytes per pixel.
func (wk *worker) image(o *options, samples []byte, h, w int) image.Image {
	rect := image.Rect(0, 0, w, h)
	if o.channels == 1 {
		return &image.Gray{Pix: samples, Stride: w, Rect: rect}
	}
	pix := samples
	if o.planes || o.channels == 3 {
		wk.pix = sized(wk.pix, 4*w*h)
		pix = wk.pix
		if o.planes {
			interleave(pix, samples, w*h)
		} else {
			widen(pix, samples)
		}
	}
	if o.channels == 4 {
		return &image.NRGBA{Pix: pix, Stride: 4 * w, Rect: rect}
	}
	return &image.RGBA{Pix: pix, Stride: 4 * w, Rect: rect}
}

// interleave packs planes of n samples into pixels of four bytes. Three planes give
// opaque pixels.
func interleave(dst, src []byte, n int) {
	for i := range n {
		p := dst[4*i : 4*i+4 : 4*i+4]
		p[0], p[1], p[2], p[3] = src[i], src[n+i], src[2*n+i], 255
		if len(src) > 3*n {
			p[3] = src[3*n+i]
		}
	}
}

// widen copies pixels of three bytes to opaque pixels of four bytes.
func widen(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 3 {
		dst[0], dst[1], dst[2], dst[3] = src[0], src[1], src[2], 255
		dst, src = dst[4:], src[3:]
	}
}

// quantise multiplies by scale, rounds to the nearest integer (ties to even) and clamps to
// 0 to 255. It returns the index of the first element that is not finite, or -1.
// For example, 0.5 at scale 255 gives 128.
func quantise(dst []byte, src []float32, scale float32) int {
	for i, v := range src {
		if v-v != 0 { // NaN or an infinity
			return i
		}
		dst[i] = byte(min(max(math.RoundToEven(float64(v*scale)), 0), 255))
	}
	return -1
}

// sized returns s with n elements, grown if needed. The contents are unspecified.
func sized(s []byte, n int) []byte {
	if cap(s) < n {
		return make([]byte, n)
	}
	return s[:n]
}
