package tiff

import (
	"bytes"
	"encoding/binary"
)

// Directory is the first image file directory of a TIFF file. EXIF data has the same format. It borrows the file.
type Directory struct {
	file    []byte
	order   binary.ByteOrder
	entries []byte
}

// Open returns the first directory. ok is false if there is none or it is truncated.
func Open(data []byte) (d Directory, ok bool) {
	d.file = data
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

// The supported types of values, and their sizes.
const (
	typeByte      = 1
	typeShort     = 3
	typeLong      = 4
	typeUndefined = 7
)

// values holds the values of a tag. The zero value has none.
type values struct {
	order binary.ByteOrder
	size  int // of a value in bytes: 1, 2 or 4
	data  []byte
}

// values returns the values of a tag, which must lie within the file.
func (d Directory) values(tag uint16) values {
	for e := d.entries; len(e) >= 12; e = e[12:] {
		if d.order.Uint16(e) != tag {
			continue
		}
		v := values{order: d.order}
		switch d.order.Uint16(e[2:]) {
		case typeByte, typeUndefined:
			v.size = 1
		case typeShort:
			v.size = 2
		case typeLong:
			v.size = 4
		default:
			return values{}
		}
		n := int64(v.size) * int64(d.order.Uint32(e[4:]))
		if n <= 4 {
			v.data = e[8 : 8+n]
		} else if at := int64(d.order.Uint32(e[8:])); at+n <= int64(len(d.file)) {
			v.data = d.file[at : at+n]
		}
		return v
	}
	return values{}
}

// len returns the number of values.
func (v values) len() int {
	if v.size == 0 {
		return 0
	}
	return len(v.data) / v.size
}

// at returns value i, which must be below len.
func (v values) at(i int) uint32 {
	switch p := v.data[i*v.size:]; v.size {
	case 1:
		return uint32(p[0])
	case 2:
		return uint32(v.order.Uint16(p))
	default:
		return v.order.Uint32(p)
	}
}

// Number returns the first value of a tag of integers.
func (d Directory) Number(tag uint16) (uint32, bool) {
	v := d.values(tag)
	if v.len() == 0 {
		return 0, false
	}
	return v.at(0), true
}

// number is Number with a default.
func (d Directory) number(tag uint16, absent uint32) uint32 {
	if v, ok := d.Number(tag); ok {
		return v
	}
	return absent
}
