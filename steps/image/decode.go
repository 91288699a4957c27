package image

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
)

// limits bound what one image may cost before it is decoded.
type limits struct {
	maxBytes, maxPixels int64
}

// check refuses an image by its length and by what its header claims.
func (l limits) check(data []byte) (header, error) {
	if int64(len(data)) > l.maxBytes {
		return header{}, fmt.Errorf("expected at most %d bytes (max_bytes), found %d", l.maxBytes, len(data))
	}
	h, err := readHeader(data)
	if err != nil {
		if h.format = sniff(data); h.format == formatUnknown {
			return header{}, err
		}
		return header{}, h.format.refuse(err)
	}
	if h.width > maxSide || h.height > maxSide {
		return header{}, fmt.Errorf("expected sides of at most %d pixels, found %d x %d", maxSide, h.width, h.height)
	}
	if px := int64(h.width) * int64(h.height); px > l.maxPixels {
		return header{}, fmt.Errorf("expected at most %d pixels (max_pixels), found %d x %d = %d", l.maxPixels, h.width, h.height, px)
	}
	if int64(len(data)) < h.least {
		return header{}, h.format.refuse(fmt.Errorf("truncated, %d bytes cannot hold %d x %d pixels", len(data), h.width, h.height))
	}
	return h, nil
}

// refuse words an error about bytes of a known format.
func (f format) refuse(err error) error {
	return fmt.Errorf("expected JPEG or PNG, found a %s that cannot be decoded: %w", f, err)
}

// String gives the name that errors use.
func (f format) String() string {
	switch f {
	case formatJPEG:
		return "JPEG"
	case formatPNG:
		return "PNG"
	case formatUnknown:
	}
	return "file of unknown format"
}

// decode decodes one image whose header was checked. The reader is scratch of the
// caller.
func decode(data []byte, h header, r *bytes.Reader) (image.Image, error) {
	r.Reset(data)
	defer r.Reset(nil)
	img, err := h.format.decode(r)
	if err != nil {
		return nil, h.format.refuse(err)
	}
	if b := img.Bounds(); b.Dx() != h.width || b.Dy() != h.height {
		return nil, h.format.refuse(fmt.Errorf("header says %d x %d pixels, image has %d x %d", h.width, h.height, b.Dx(), b.Dy()))
	}
	return img, nil
}

// errDecoder stands for a panic inside a decoder: hostile bytes must never take
// the server down, even where the standard library has a hole.
var errDecoder = errors.New("the decoder failed on malformed data")

func (f format) decode(r *bytes.Reader) (img image.Image, err error) {
	defer func() {
		if recover() != nil {
			img, err = nil, errDecoder
		}
	}()
	if f == formatPNG {
		return png.Decode(r)
	}
	return jpeg.Decode(r)
}
