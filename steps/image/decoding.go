package image

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/steps"
)

// decoding is how files are decoded: the parameters, parsed.
type decoding struct {
	maxBytes, maxPixels int64
	turn                bool // As EXIF wants it.
	blend               bool
	background          [3]byte
	reduce              bool // Decode JPEG files at a fraction of their size.
}

// decodingParams declares the parameters of decoding.
func decodingParams() []steps.Param {
	return []steps.Param{
		{Key: "max_pixels", Doc: "Largest image accepted, width times height, checked before it is decoded. " +
			"A pixel takes up to 11 bytes while its image is decoded, 15 in a progressive JPEG. " +
			"Images are decoded at the same time while they have no more pixels together, or 4194304 per core if that is more.", Default: "67108864"},
		{Key: "max_bytes", Doc: "Largest file accepted.", Default: "67108864"},
		{Key: "orientation", Doc: "Whether an image is turned as its EXIF data say, or left as it is stored.", Default: "exif", Values: []string{"exif", "ignore"}},
		{Key: "alpha", Doc: "What becomes of transparency: dropped, which leaves the colour that is stored, or laid over the background.", Default: "drop", Values: []string{"drop", "composite"}},
		{Key: "background", Doc: "Colour under transparent pixels with alpha composite: red, green and blue from 0 to 255.", Default: "255,255,255"},
		{
			Key: "jpeg_decoder", Doc: "Has no effect: every value selects the built-in JPEG decoder. Accepted so that configurations written for older versions still load.",
			Default: "auto", Values: []string{"auto", "turbojpeg", "go"},
		},
		{Key: "jpeg_scale", Doc: "With auto, a JPEG file is decoded at 1/2, 1/4 or 1/8 of its size where that is still no smaller than the output, " +
			"which is several times faster and gives slightly other pixels (those of Pillow's draft mode).", Default: "full", Values: []string{"full", "auto"}},
	}
}

func parseDecoding(s *steps.Settings) (decoding, error) {
	pixels, err := s.Int("max_pixels", 1)
	if err != nil {
		return decoding{}, err
	}
	size, err := s.Int("max_bytes", 1)
	if err != nil {
		return decoding{}, err
	}
	d := decoding{
		maxBytes: int64(size), maxPixels: int64(pixels),
		turn: s.Params["orientation"] == "exif", blend: s.Params["alpha"] == "composite", reduce: s.Params["jpeg_scale"] == "auto",
	}
	d.background, err = parseColor(s, "background")
	return d, err
}

// parseColor reads three numbers from 0 to 255.
func parseColor(s *steps.Settings, key string) (c [3]byte, err error) {
	parts := strings.Split(s.Params[key], ",")
	if len(parts) != len(c) {
		return c, wrong(s, key, "three numbers from 0 to 255, separated by commas")
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(strings.TrimSpace(p), 10, 8)
		if err != nil {
			return c, wrong(s, key, "three numbers from 0 to 255, separated by commas")
		}
		c[i] = byte(v)
	}
	return c, nil
}

// check refuses an image by its length and by what its header claims.
func (d *decoding) check(data []byte) (header, error) {
	if int64(len(data)) > d.maxBytes {
		return header{}, fmt.Errorf("expected at most %d bytes (max_bytes), found %d", d.maxBytes, len(data))
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
	if px := int64(h.width) * int64(h.height); px > d.maxPixels {
		return header{}, fmt.Errorf("expected at most %d pixels (max_pixels), found %d x %d = %d", d.maxPixels, h.width, h.height, px)
	}
	if px := h.pixels(); px > d.maxPixels {
		return header{}, fmt.Errorf("expected at most %d pixels (max_pixels), found tiles of %d for %d x %d", d.maxPixels, px, h.width, h.height)
	}
	if int64(len(data)) < h.least {
		return header{}, h.format.refuse(fmt.Errorf("truncated, %d bytes cannot hold %d x %d pixels", len(data), h.width, h.height))
	}
	if !d.turn {
		h.orientation = 0
	}
	return h, nil
}

// scale is the fraction of its size, 1/scale, at which a JPEG is decoded that is to be
// at least width by height afterwards; 0 by 0 is for the full size.
func (d *decoding) scale(h header, width, height int) int {
	if !d.reduce || width <= 0 || height <= 0 {
		return 1
	}
	w, t := h.size()
	for _, n := range [...]int{8, 4, 2} {
		if w/width >= n && t/height >= n {
			return n
		}
	}
	return 1
}
