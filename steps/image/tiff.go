package image

import (
	"github.com/tutti-server/tutti/steps/image/jpeg"
	"github.com/tutti-server/tutti/steps/image/tiff"
)

// tiffHeader reads what the first image of a file is.
func tiffHeader(data []byte) (header, error) {
	t, err := tiff.ReadHeader(data)
	h := header{format: formatTIFF, width: t.Width, height: t.Height, area: t.Area, least: t.Least}
	if err == nil {
		h.orientation = exifOrientation(data)
	}
	return h, err
}

// decodeTIFF decodes the first image of a file.
func (p *packed) decodeTIFF(d *tiff.Decoder, data []byte, j *jpeg.Decoder) error {
	h, err := tiff.ReadHeader(data)
	if err != nil {
		return err
	}
	p.reset(h.Width, h.Height, h.Gray)
	if h.Alpha {
		p.addAlpha()
	}
	return d.Decode(&h, p.pix, p.alpha, j)
}
