package kernels

import "encoding/binary"

// Planes splits a row of three samples per pixel into rows of 32-bit values: each sample c of a pixel is replaced with its entry in
// tables[c], in little-endian order, and stored in dst[c]. The destinations must have room for the row.
//
// It is Go everywhere: the time is that of the stores. C, also with gathers, takes three quarters of it.
func Planes(dst *[3][]byte, src []byte, tables *[3]*[256]uint32) {
	a, b, c := dst[0], dst[1], dst[2]
	ta, tb, tc := tables[0], tables[1], tables[2]
	for len(src) >= 12 && len(a) >= 16 && len(b) >= 16 && len(c) >= 16 { // four pixels, two values in a store
		s, x, y, z := (*[12]byte)(src), (*[16]byte)(a), (*[16]byte)(b), (*[16]byte)(c)
		binary.LittleEndian.PutUint64(x[:8], uint64(ta[s[0]])|uint64(ta[s[3]])<<32)
		binary.LittleEndian.PutUint64(x[8:], uint64(ta[s[6]])|uint64(ta[s[9]])<<32)
		binary.LittleEndian.PutUint64(y[:8], uint64(tb[s[1]])|uint64(tb[s[4]])<<32)
		binary.LittleEndian.PutUint64(y[8:], uint64(tb[s[7]])|uint64(tb[s[10]])<<32)
		binary.LittleEndian.PutUint64(z[:8], uint64(tc[s[2]])|uint64(tc[s[5]])<<32)
		binary.LittleEndian.PutUint64(z[8:], uint64(tc[s[8]])|uint64(tc[s[11]])<<32)
		src, a, b, c = src[12:], a[16:], b[16:], c[16:]
	}
	for ; len(src) >= 3; src, a, b, c = src[3:], a[4:], b[4:], c[4:] {
		binary.LittleEndian.PutUint32(a, ta[src[0]])
		binary.LittleEndian.PutUint32(b, tb[src[1]])
		binary.LittleEndian.PutUint32(c, tc[src[2]])
	}
}
