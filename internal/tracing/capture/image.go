package capture

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
)

// Limits of previewed images.
const (
	// maxSide is the longer side of a thumbnail.
	maxSide = 256
	// minSide is the shortest side of a tensor that is shown as an image.
	minSide = 8
	// maxPixels bounds the images that are decoded.
	maxPixels = 16 << 20
)

// imagePreview returns the preview of a tensor that is an image, nil for any other: UINT8 rows, columns and
// channels, or BYTES with an image file.
func imagePreview(x *capturedTensor) *inspect.PreviewView {
	switch x.dtype { //nolint:exhaustive // others are no images
	case tensor.Bytes:
		if elem, _, ok := tensor.NextBytes(x.data); ok {
			return thumbnail(decoded(elem))
		}
	case tensor.Uint8:
		if img := pixels(x); img != nil {
			return thumbnail(img)
		}
		if x.shape.Rank() <= 2 {
			return thumbnail(decoded(x.data))
		}
	}
	return nil
}

// decoded returns the image of a JPEG or PNG file, nil for anything else.
func decoded(b []byte) image.Image {
	var img image.Image
	var c image.Config
	var err error
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		if c, err = jpeg.DecodeConfig(bytes.NewReader(b)); err == nil && validSize(c.Width, c.Height) {
			img, err = jpeg.Decode(bytes.NewReader(b))
		}
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		if c, err = png.DecodeConfig(bytes.NewReader(b)); err == nil && validSize(c.Width, c.Height) {
			img, err = png.Decode(bytes.NewReader(b))
		}
	}
	if err != nil {
		return nil
	}
	return img
}

// validSize reports whether an image is neither empty nor too large.
func validSize(width, height int) bool {
	return width > 0 && height > 0 && width <= maxPixels && height <= maxPixels/width
}

// pixels returns the first image of a tensor [..., rows, columns, channels], nil when the shape is not an image's.
func pixels(x *capturedTensor) image.Image {
	d := x.shape.Dims()
	if len(d) < 3 || len(d) > 4 {
		return nil
	}
	h, w, c := d[len(d)-3], d[len(d)-2], d[len(d)-1]
	if h < minSide || w < minSide || h > maxPixels || w > maxPixels || c != 1 && c != 3 && c != 4 || !validSize(int(w), int(h)) || int64(len(x.data)) < h*w*c {
		return nil
	}
	return &raster{w: int(w), h: int(h), c: int(c), pix: x.data}
}

// raster is the image of a UINT8 tensor.
type raster struct {
	w, h, c int
	pix     []byte
}

var _ image.Image = (*raster)(nil)

// ColorModel implements image.Image.
func (*raster) ColorModel() color.Model { return color.NRGBAModel }

// Bounds implements image.Image.
func (r *raster) Bounds() image.Rectangle { return image.Rect(0, 0, r.w, r.h) }

// At implements image.Image.
func (r *raster) At(x, y int) color.Color {
	p := r.pix[(y*r.w+x)*r.c:]
	switch r.c {
	case 1:
		return color.Gray{Y: p[0]}
	case 3:
		return color.NRGBA{p[0], p[1], p[2], 0xff}
	}
	return color.NRGBA{p[0], p[1], p[2], p[3]}
}

// thumbnail returns the preview of an image, scaled down.
func thumbnail(img image.Image) *inspect.PreviewView {
	if img == nil {
		return nil
	}
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	longer := max(w, h)
	side := min(longer, maxSide)
	small := image.NewNRGBA(image.Rect(0, 0, max(1, w*side/longer), max(1, h*side/longer)))
	sw, sh := small.Rect.Dx(), small.Rect.Dy()
	for y := range sh {
		for x := range sw {
			small.Set(x, y, img.At(b.Min.X+(2*x+1)*w/(2*sw), b.Min.Y+(2*y+1)*h/(2*sh)))
		}
	}
	var out bytes.Buffer
	if png.Encode(&out, small) != nil {
		return nil
	}
	return &inspect.PreviewView{Kind: "image", PNG: out.Bytes(), Width: w, Height: h}
}
