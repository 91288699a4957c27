package encode

import (
	"image"
	"image/jpeg"
	"image/png"
	"math"
)

// encode writes the file of h x w pixels to out.
func (wk *worker) encode(o *options, samples []byte, h, w int) error {
	switch o.format {
	case "png":
		return png.Encode(&wk.out, wk.image(o, samples, h, w))
	case "webp":
		var err error
		wk.file, err = wk.webp.Encode(wk.file[:0], wk.colors(o, samples, h*w), w, h)
		wk.out.Write(wk.file)
		return err
	default:
		return jpeg.Encode(&wk.out, wk.image(o, samples, h, w), &jpeg.Options{Quality: o.quality})
	}
}

// image makes the samples an image: grey in place, colours as four bytes a pixel.
func (wk *worker) image(o *options, samples []byte, h, w int) image.Image {
	rect := image.Rect(0, 0, w, h)
	if o.channels == 1 {
		return &image.Gray{Pix: samples, Stride: w, Rect: rect}
	}
	pix := wk.colors(o, samples, w*h)
	if o.channels == 4 {
		return &image.NRGBA{Pix: pix, Stride: 4 * w, Rect: rect}
	}
	return &image.RGBA{Pix: pix, Stride: 4 * w, Rect: rect}
}

// colors gives n pixels of four bytes; those that are so already, in place.
func (wk *worker) colors(o *options, samples []byte, n int) []byte {
	if o.channels == 4 && !o.planes {
		return samples
	}
	wk.pix = sized(wk.pix, 4*n)
	switch {
	case o.channels == 1:
		for i, v := range samples {
			p := wk.pix[4*i : 4*i+4 : 4*i+4]
			p[0], p[1], p[2], p[3] = v, v, v, 255
		}
	case o.planes:
		interleave(wk.pix, samples, n)
	default:
		widen(wk.pix, samples)
	}
	return wk.pix
}

// interleave makes planes of n samples pixels of four bytes, opaque where there are
// but three planes.
func interleave(dst, src []byte, n int) {
	for i := range n {
		p := dst[4*i : 4*i+4 : 4*i+4]
		p[0], p[1], p[2], p[3] = src[i], src[n+i], src[2*n+i], 255
		if len(src) > 3*n {
			p[3] = src[3*n+i]
		}
	}
}

// widen makes pixels of three bytes opaque ones of four.
func widen(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 3 {
		dst[0], dst[1], dst[2], dst[3] = src[0], src[1], src[2], 255
		dst, src = dst[4:], src[3:]
	}
}

// quantise scales, rounds to the nearest (ties to even) and limits; it returns the
// first index that holds no finite number, or -1.
func quantise(dst []byte, src []float32, scale float32) int {
	for i, v := range src {
		if v-v != 0 { // NaN and the infinities.
			return i
		}
		dst[i] = byte(min(max(math.RoundToEven(float64(v*scale)), 0), 255))
	}
	return -1
}

// sized gives s with n elements, its contents unspecified.
func sized(s []byte, n int) []byte {
	if cap(s) < n {
		return make([]byte, n)
	}
	return s[:n]
}
