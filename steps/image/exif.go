package image

import (
	"bytes"
	"encoding/binary"
)

// exifMark starts EXIF data inside JPEG, and by mistake elsewhere.
var exifMark = []byte("Exif\x00\x00")

const tagOrientation = 0x112

// exifOrientation reads the orientation, 1 to 8, from a block of EXIF data; 0 when
// there is none, or it makes no sense.
func exifOrientation(data []byte) uint8 {
	d, ok := readDirectory(data)
	if !ok {
		return 0
	}
	if v, ok := d.number(tagOrientation); ok && v >= 1 && v <= 8 {
		return uint8(v)
	}
	return 0
}

// directory is the first image file directory of a TIFF file, which EXIF data is too.
type directory struct {
	file    []byte
	order   binary.ByteOrder
	entries []byte
}

func readDirectory(data []byte) (directory, bool) {
	d := directory{file: data}
	switch {
	case bytes.HasPrefix(data, []byte("II*\x00")):
		d.order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("MM\x00*")):
		d.order = binary.BigEndian
	default:
		return d, false
	}
	if len(data) < 8 {
		return d, false
	}
	at := int64(d.order.Uint32(data[4:]))
	if at+2 > int64(len(data)) {
		return d, false
	}
	n := int64(d.order.Uint16(data[at:]))
	if at+2+12*n > int64(len(data)) {
		return d, false
	}
	d.entries = data[at+2 : at+2+12*n]
	return d, true
}

// entry finds a tag: its type, its count and its four bytes of value or offset.
func (d directory) entry(tag uint16) (kind uint16, count uint32, value []byte) {
	for e := d.entries; len(e) >= 12; e = e[12:] {
		if d.order.Uint16(e) == tag {
			return d.order.Uint16(e[2:]), d.order.Uint32(e[4:]), e[8:12]
		}
	}
	return 0, 0, nil
}

// number is the first value of a tag of type SHORT or LONG.
func (d directory) number(tag uint16) (uint32, bool) {
	kind, count, v := d.entry(tag)
	switch {
	case count == 0:
		return 0, false
	case kind == 3 && count > 2 || kind == 4 && count > 1: // Too long to stand in the entry.
		at := int64(d.order.Uint32(v))
		if at+4 > int64(len(d.file)) {
			return 0, false
		}
		v = d.file[at : at+4]
	}
	switch kind {
	case 3:
		return uint32(d.order.Uint16(v)), true
	case 4:
		return d.order.Uint32(v), true
	}
	return 0, false
}
