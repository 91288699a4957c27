package image

import "github.com/tutti-server/tutti/steps/image/tiff"

// exifMark starts EXIF data inside JPEG, and by mistake elsewhere.
var exifMark = []byte("Exif\x00\x00")

const tagOrientation = 0x112

// exifOrientation reads the orientation, 1 to 8, from a block of EXIF data; 0 when
// there is none, or it makes no sense.
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
