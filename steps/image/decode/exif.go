package decode

import "github.com/tutti-server/tutti/steps/image/tiff"

// exifMark starts EXIF data in JPEG, and by mistake of writers in PNG and WebP.
var exifMark = []byte("Exif\x00\x00")

const tagOrientation = 0x112

// exifOrientation reads the orientation, 1 to 8, from a block of EXIF data. It returns 0 if
// there is none or it is out of range.
func exifOrientation(data []byte) uint8 {
	d, ok := tiff.Open(data)
	if !ok {
		return 0
	}
	if v, ok := d.Number(tagOrientation); ok && v >= 1 && v <= 8 {
		return uint8(v)
	}
	return 0
}
