package decode

import "github.com/tutti-server/tutti/steps/image/tiff"

// tiffHeader reads the size of the first image of a file.
func tiffHeader(data []byte) (Header, error) {
	t, err := tiff.ReadHeader(data)
	h := Header{format: formatTIFF, width: t.Width, height: t.Height, area: t.Area, least: t.Least}
	if err == nil {
		h.orientation = exifOrientation(data)
	}
	return h, err
}

// decodeTIFF decodes the first image of a file into d.whole.
func (d *Decoder) decodeTIFF(data []byte) error {
	h, err := tiff.ReadHeader(data)
	if err != nil {
		return err
	}
	d.whole.Reset(h.Width, h.Height, h.Gray)
	if h.Alpha {
		d.whole.AddAlpha()
	}
	return d.tiff.Decode(&h, d.whole.Pix, d.whole.Alpha, &d.jpeg)
}
