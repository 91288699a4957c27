package image

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/png"

	"golang.org/x/image/webp"

	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/tiff"
)

// refuse words an error about bytes of a known format.
func (f format) refuse(err error) error {
	return fmt.Errorf("%s, found a %s that cannot be decoded: %w", expectedFormats, f, err)
}

// String gives the name that errors use.
func (f format) String() string {
	switch f {
	case formatJPEG:
		return "JPEG"
	case formatPNG:
		return "PNG"
	case formatGIF:
		return "GIF"
	case formatWebP:
		return "WebP"
	case formatBMP:
		return "BMP"
	case formatTIFF:
		return "TIFF"
	case formatUnknown:
	}
	return "file of unknown format"
}

// decoder is the scratch of decoding: the memory of one picture, kept for the next.
type decoder struct {
	reader bytes.Reader
	jpeg   jpeg.Decoder
	gif    gif
	tiff   tiff.Decoder
	stored stored
	whole  packed
	turned packed
	over   blended
	line   []byte
}

// decode decodes one image whose header was checked, and turns and blends it as o
// says. A JPEG may come out smaller than it is, when it is to be at least width by
// height afterwards. The picture is valid until the next call.
func (d *decoder) decode(o *decoding, data []byte, h header, width, height int) (picture, error) {
	scale := 1
	if h.format == formatJPEG {
		scale = o.scale(h, width, height)
	}
	pic, err := d.open(data, h, scale)
	if err != nil {
		return nil, h.format.refuse(err)
	}
	if w, t := pic.Size(); w != (h.width+scale-1)/scale || t != (h.height+scale-1)/scale {
		return nil, h.format.refuse(fmt.Errorf("header says %d x %d pixels, image has %d x %d", h.width, h.height, w, t))
	}
	if s, ok := pic.(seeThrough); ok && o.blend && !s.opaque() {
		d.over.src, d.over.over = s, o.background
		pic = &d.over
	}
	if h.orientation >= 2 {
		d.turned.turn(pic, h.orientation, &d.line)
		pic = &d.turned
	}
	return pic, nil
}

// forget lets go of what belongs to a request; memory is kept.
func (d *decoder) forget() {
	d.stored.img = nil
	d.over.src = nil
	d.whole.alpha = nil
	d.gif.forget()
}

// errDecoder stands for a panic inside a decoder: hostile bytes must never take
// the server down, even where a library has a hole.
var errDecoder = errors.New("the decoder failed on malformed data")

// open decodes without turning and blending.
func (d *decoder) open(data []byte, h header, scale int) (pic picture, err error) {
	defer func() {
		if recover() != nil {
			pic, err = nil, errDecoder
		}
	}()
	switch h.format {
	case formatJPEG:
		d.jpeg.MaxPixels = int64(h.width) * int64(h.height)
		return &d.jpeg, d.jpeg.Decode(data, scale)
	case formatGIF:
		return &d.whole, d.gif.decode(&d.whole, data)
	case formatBMP:
		return &d.whole, decodeBMP(&d.whole, data)
	case formatTIFF:
		return &d.whole, d.whole.decodeTIFF(&d.tiff, data, &d.jpeg)
	case formatWebP:
		if h.animated {
			if data, err = firstFrame(data, h); err != nil {
				return nil, err
			}
		}
	case formatPNG, formatUnknown:
	}
	d.reader.Reset(data)
	defer d.reader.Reset(nil)
	img, err := h.format.decode(&d.reader)
	if err != nil {
		return nil, err
	}
	d.stored.set(img)
	return &d.stored, nil
}

// decode is for the formats that libraries read.
func (f format) decode(r *bytes.Reader) (image.Image, error) {
	switch f {
	case formatPNG:
		return png.Decode(r)
	case formatWebP:
		return webp.Decode(r)
	case formatUnknown, formatJPEG, formatGIF, formatBMP, formatTIFF:
	}
	return nil, errors.New("no decoder")
}
