package tiff

import "math"

// narrow converts a row of one plane to a byte per sample: dst[0], dst[step] and so on. Samples of fewer than 8 bits
// keep their value.
func (h *Header) narrow(dst, row []byte, step int) {
	n := (len(dst) + step - 1) / step
	switch h.bits {
	case 8:
		for i := range n {
			dst[i*step] = row[i]
		}
	case 16:
		high := 0
		if h.littleEndian() {
			high = 1
		}
		for i := range n {
			dst[i*step] = row[2*i+high]
		}
	case 32:
		for i := range n {
			dst[i*step] = clipped(math.Float32frombits(h.order.order.Uint32(row[4*i:])))
		}
	default:
		mask := byte(1)<<h.bits - 1
		for i := range n {
			at := i * h.bits
			dst[i*step] = row[at/8] >> (8 - h.bits - at%8) & mask
		}
	}
}

// clipped converts a floating point sample to 8 bits as Pillow does: clamped, without its fraction. NaN is 0.
func clipped(v float32) byte {
	switch {
	case v >= 255:
		return 255
	case v > 0:
		return byte(v)
	}
	return 0
}
