package image

import (
	"errors"
	"fmt"
	"image"
)

// The tags of TIFF that are looked at before its decoder is.
const (
	tagWidth       = 256
	tagHeight      = 257
	tagCompression = 259
	tagPhotometric = 262
	tagPlanar      = 284
	tagFormat      = 339
)

// tiffHeader reads the first image's size, and refuses what the decoder would get
// wrong or call by numbers.
func tiffHeader(data []byte) (header, error) {
	d, ok := readDirectory(data)
	if !ok {
		return header{}, errTruncated
	}
	w, okW := d.number(tagWidth)
	t, okH := d.number(tagHeight)
	if !okW || !okH {
		return header{}, errors.New("no image size")
	}
	if w == 0 || t == 0 || w > 1<<31-1 || t > 1<<31-1 {
		return header{}, fmt.Errorf("impossible size %d x %d", w, t)
	}
	h := header{format: formatTIFF, width: int(w), height: int(t), orientation: exifOrientation(data)}
	if v, ok := d.number(tagPlanar); ok && v == 2 {
		return h, errors.New("unsupported TIFF of separate planes")
	}
	if v, ok := d.number(tagFormat); ok && v != 1 {
		return h, fmt.Errorf("unsupported TIFF of sample format %d, expected unsigned integers", v)
	}
	if v, _ := d.number(tagPhotometric); v > 3 {
		return h, fmt.Errorf("unsupported TIFF colours (photometric interpretation %d), expected grey, RGB or a palette", v)
	}
	switch v, _ := d.number(tagCompression); v {
	case 3, 4:
		light, _ := d.number(tagPhotometric)
		h.inverted = light == 1
	case 6, 7:
		return h, errors.New("unsupported JPEG compression inside TIFF")
	}
	return h, nil
}

// invert turns black and white. Fax codes know black and white, a file counts either
// as 0; the decoder takes the coded white for white, libtiff for 0.
func invert(img image.Image) {
	if m, ok := img.(*image.Gray); ok {
		for i, v := range m.Pix {
			m.Pix[i] = ^v
		}
	}
}
