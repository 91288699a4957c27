package kernels

import (
	"encoding/binary"
	"math"
)

// Lines are three tables of Planes whose entries are on lines: sample v of channel c becomes v * l[c][0], rounded, * l[c][1] + l[c][2], rounded
// once, in FP32. Normalised samples often are, for example those from -1 to 1. They are computed in half the time of looking them up.
type Lines [3][3]float32

// NewLines returns the lines of tables for Planes, or nil where they are none or the processor does not compute them. It has compared each entry:
// lines give the bits of the tables.
func NewLines(tables *[3]*[256]uint32) *Lines {
	if !fused() {
		return nil
	}
	l := &Lines{}
	for c, t := range tables {
		if !l.find(c, t) {
			return nil
		}
	}
	return l
}

// find sets the line of channel c, and reports whether it gives the entries of the table.
func (l *Lines) find(c int, table *[256]uint32) bool {
	var src [3 * 256]byte
	var dst [3][]byte
	for v := range 256 {
		src[3*v+c] = byte(v)
	}
	for i := range dst {
		dst[i] = make([]byte, 4*256)
	}
	first, last := math.Float32frombits(table[0]), math.Float32frombits(table[255])
	for _, scale := range [...]float64{1.0 / 255, 1} {
		l[c] = [3]float32{float32(scale), float32((float64(last) - float64(first)) / (255 * scale)), first}
		l.row(&dst, src[:])
		same := true
		for v := range 256 {
			same = same && binary.LittleEndian.Uint32(dst[c][4*v:]) == table[v]
		}
		if same {
			return true
		}
	}
	return false
}

// Planes splits a row of three samples per pixel into rows of 32-bit values: each sample c of a pixel is replaced with its entry in
// tables[c], in little-endian order, and stored in dst[c]. The destinations must have room for the row. lines are those of the tables, and may be nil.
func Planes(dst *[3][]byte, src []byte, tables *[3]*[256]uint32, lines *Lines) {
	a, b, c := dst[0], dst[1], dst[2]
	if lines != nil {
		n := lines.row(dst, src)
		src, a, b, c = src[3*n:], a[4*n:], b[4*n:], c[4*n:]
	}
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
