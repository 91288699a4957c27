// Package decode reads image files: JPEG, PNG, GIF (the first frame), WebP, BMP and TIFF. The
// samples are those of Pillow 13's convert("RGB").
//
// The bytes are hostile until proven otherwise. Options.Check reads the header only and refuses a file by its length,
// its claimed size and by how many bytes that size needs at least; Decoder.Decode then decodes what was checked.
package decode

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"

	"golang.org/x/image/webp"

	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/tiff"
)

// Options are the limits and choices of decoding.
type Options struct {
	MaxBytes, MaxPixels int64
	Turn                bool // turn images as their EXIF orientation says
	Blend               bool // lay transparent images over Background
	Background          [3]byte
	Reduce              bool // decode JPEG files at a fraction of their size
}

// MaxSide is the largest width and height in pixels, which is JPEG's own limit. PNG allows
// longer sides, but the weight tables of a resize would be as long as the side.
const MaxSide = 65535

// Check reads the header of a file. It returns an error if the format is unknown or the file exceeds a limit.
func (o *Options) Check(data []byte) (Header, error) {
	if int64(len(data)) > o.MaxBytes {
		return Header{}, fmt.Errorf("expected at most %d bytes (max_bytes), found %d", o.MaxBytes, len(data))
	}
	h, err := readHeader(data)
	if err != nil {
		if h.format = sniff(data); h.format == formatUnknown {
			return Header{}, err
		}
		return Header{}, h.format.refuse(err)
	}
	if h.width > MaxSide || h.height > MaxSide {
		return Header{}, fmt.Errorf("expected sides of at most %d pixels, found %d x %d", MaxSide, h.width, h.height)
	}
	if px := int64(h.width) * int64(h.height); px > o.MaxPixels {
		return Header{}, fmt.Errorf("expected at most %d pixels (max_pixels), found %d x %d = %d", o.MaxPixels, h.width, h.height, px)
	}
	if px := h.Pixels(); px > o.MaxPixels {
		return Header{}, fmt.Errorf("expected at most %d pixels (max_pixels), found tiles of %d for %d x %d", o.MaxPixels, px, h.width, h.height)
	}
	if int64(len(data)) < h.least {
		return Header{}, h.format.refuse(fmt.Errorf("truncated, %d bytes cannot hold %d x %d pixels", len(data), h.width, h.height))
	}
	if !o.Turn {
		h.orientation = 0
	}
	return h, nil
}

// scale returns n where a JPEG may be decoded at 1/n of its size, because the image is still at least width by height.
// Sizes of 0 ask for the full size. For example, a file of 1920 x 1080 for an output of 224 x 224 is decoded at 1/4.
func (o *Options) scale(h Header, width, height int) int {
	if !o.Reduce || width <= 0 || height <= 0 {
		return 1
	}
	w, t := h.Size()
	for _, n := range [...]int{8, 4, 2} {
		if w/width >= n && t/height >= n {
			return n
		}
	}
	return 1
}

// Decoder decodes one file at a time and keeps its memory for the next one. The zero value is
// ready for use. It is not safe for concurrent use.
type Decoder struct {
	reader bytes.Reader
	jpeg   jpeg.Decoder
	gif    gif
	tiff   tiff.Decoder
	stored stored
	whole  raster.Packed
	turned raster.Packed
	over   raster.Blended
	line   []byte
}

// Decode decodes a file whose header h was returned by o.Check, and turns and blends the image
// as o says. With o.Reduce a JPEG may come out smaller than h.Size, but at least width by
// height. The image is valid, and data borrowed, until the next call of Decode or Forget.
func (d *Decoder) Decode(o *Options, data []byte, h Header, width, height int) (raster.Image, error) {
	scale := 1
	if h.format == formatJPEG {
		scale = o.scale(h, width, height)
	}
	img, err := d.open(data, h, scale)
	if err != nil {
		return nil, h.format.refuse(err)
	}
	if w, t := img.Size(); w != (h.width+scale-1)/scale || t != (h.height+scale-1)/scale {
		return nil, h.format.refuse(fmt.Errorf("header says %d x %d pixels, image has %d x %d", h.width, h.height, w, t))
	}
	if s, ok := img.(raster.Transparent); ok && o.Blend && !s.Opaque() {
		d.over.Src, d.over.Background = s, o.Background
		img = &d.over
	}
	if h.orientation >= 2 {
		d.turned.Turn(img, h.orientation, &d.line)
		img = &d.turned
	}
	return img, nil
}

// Forget drops the references to the last file and image. It keeps the memory.
func (d *Decoder) Forget() {
	d.stored.img = nil
	d.over.Src = nil
	d.whole.Alpha = nil
	d.gif.forget()
}

// errDecoder replaces a panic of a decoder: hostile bytes must never stop the server, even where a library has a bug.
var errDecoder = errors.New("the decoder failed on malformed data")

// open decodes without turning and blending.
func (d *Decoder) open(data []byte, h Header, scale int) (img raster.Image, err error) {
	defer func() {
		if recover() != nil {
			img, err = nil, errDecoder
		}
	}()
	var m image.Image
	switch h.format {
	case formatJPEG:
		d.jpeg.MaxPixels = int64(h.width) * int64(h.height)
		return &d.jpeg, d.jpeg.Decode(data, scale)
	case formatGIF:
		return &d.whole, d.gif.decode(&d.whole, data)
	case formatBMP:
		return &d.whole, decodeBMP(&d.whole, data, &d.line)
	case formatTIFF:
		return &d.whole, d.decodeTIFF(data)
	case formatWebP:
		if h.animated {
			if data, err = firstFrame(data, h); err != nil {
				return nil, err
			}
		}
		d.reader.Reset(data)
		m, err = webp.Decode(&d.reader)
	case formatPNG, formatUnknown:
		d.reader.Reset(data)
		m, err = png.Decode(&d.reader)
	}
	d.reader.Reset(nil)
	if err != nil {
		return nil, err
	}
	d.stored.set(m)
	return &d.stored, nil
}
