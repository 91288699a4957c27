package decode

import (
	"image"
	"image/color"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// stored reads one of the standard library's image types.
type stored struct {
	img     image.Image
	w, h    int
	palette [256][4]byte
	yuv     webpRows
}

// set points s at an image.
func (s *stored) set(img image.Image) {
	b := img.Bounds()
	s.img, s.w, s.h = img, b.Dx(), b.Dy()
	if m, ok := img.(*image.Paletted); ok {
		s.palette = [256][4]byte{}
		for i, v := range m.Palette[:min(len(m.Palette), 256)] {
			s.palette[i] = nrgba(v)
		}
	}
}

// Size implements raster.Image.
func (s *stored) Size() (width, height int) { return s.w, s.h }

// Gray implements raster.Image.
func (s *stored) Gray() bool {
	switch s.img.(type) {
	case *image.Gray, *image.Gray16:
		return true
	}
	return false
}

// Row implements raster.Image. Every type that the decoders return today has a case; the default is for types that they
// may return in the future. Of samples of 16 bits it returns the high byte.
func (s *stored) Row(dst []byte, y int) {
	if src, n, multiplied := s.rgba(y); n > 0 {
		raster.Pick(dst[:3*s.w], src, n, n/4, n/2)
		if multiplied {
			unmultiply(dst[:3*s.w], src, n)
		}
		return
	}
	x0, y0 := s.img.Bounds().Min.X, s.img.Bounds().Min.Y+y
	switch m := s.img.(type) {
	case *image.Gray:
		copy(dst[:s.w], m.Pix[m.PixOffset(x0, y0):])
	case *image.Gray16:
		for i, src := 0, m.Pix[m.PixOffset(x0, y0):]; i < s.w; i++ {
			dst[i] = src[2*i]
		}
	case *image.Paletted:
		for i, v := range m.Pix[m.PixOffset(x0, y0):][:s.w] {
			copy(dst[3*i:3*i+3], s.palette[v][:3])
		}
	case *image.YCbCr:
		s.yuv.row(dst, m, y)
	case *image.NYCbCrA:
		s.yuv.row(dst, &m.YCbCr, y)
	default:
		for x := range s.w {
			p := nrgba(m.At(x0+x, y0))
			copy(dst[3*x:3*x+3], p[:3])
		}
	}
}

// rgba returns row y of a type with four samples per pixel, the bytes of a pixel, 0 for other types, and whether alpha was
// multiplied in.
func (s *stored) rgba(y int) (src []byte, n int, multiplied bool) {
	x0, y0 := s.img.Bounds().Min.X, s.img.Bounds().Min.Y+y
	switch m := s.img.(type) {
	case *image.RGBA:
		return m.Pix[m.PixOffset(x0, y0):], 4, true
	case *image.NRGBA:
		return m.Pix[m.PixOffset(x0, y0):], 4, false
	case *image.RGBA64:
		return m.Pix[m.PixOffset(x0, y0):], 8, true
	case *image.NRGBA64:
		return m.Pix[m.PixOffset(x0, y0):], 8, false
	}
	return nil, 0, false
}

// unmultiply divides the samples by the alpha that they were multiplied by. Alpha is the last
// of four samples in every n bytes.
func unmultiply(dst, src []byte, n int) {
	at := n * 3 / 4
	for len(dst) >= 3 && len(src) >= n {
		if a := uint32(src[at]); a != 0 && a != 255 {
			for i, v := range dst[:3] {
				dst[i] = byte(min(uint32(v)*255/a, 255))
			}
		}
		dst, src = dst[3:], src[n:]
	}
}

// AlphaRow implements raster.Transparent.
func (s *stored) AlphaRow(dst []byte, y int) {
	if src, n, _ := s.rgba(y); n > 0 {
		for i := range dst {
			dst[i] = src[i*n+n*3/4]
		}
		return
	}
	x0, y0 := s.img.Bounds().Min.X, s.img.Bounds().Min.Y+y
	switch m := s.img.(type) {
	case *image.Paletted:
		for i, v := range m.Pix[m.PixOffset(x0, y0):][:s.w] {
			dst[i] = s.palette[v][3]
		}
	case *image.NYCbCrA:
		copy(dst, m.A[m.AOffset(x0, y0):][:s.w])
	default:
		for x := range s.w {
			dst[x] = nrgba(m.At(x0+x, y0))[3]
		}
	}
}

// Opaque implements raster.Transparent.
func (s *stored) Opaque() bool {
	switch m := s.img.(type) {
	case *image.Gray, *image.Gray16, *image.YCbCr:
		return true
	case *image.Paletted:
		return m.Opaque()
	}
	return false
}

// nrgba returns red, green, blue and alpha of a colour, with alpha not multiplied in.
func nrgba(v color.Color) [4]byte {
	switch v := v.(type) {
	case color.NRGBA:
		return [4]byte{v.R, v.G, v.B, v.A}
	case color.RGBA:
		if v.A == 255 {
			return [4]byte{v.R, v.G, v.B, v.A}
		}
	}
	n, _ := color.NRGBAModel.Convert(v).(color.NRGBA)
	return [4]byte{n.R, n.G, n.B, n.A}
}
