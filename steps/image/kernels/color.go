package kernels

// color converts YCbCr to RGB with the fixed-point factors and rounding of libjpeg (ITU-R BT.601, full
// range).
func color(dst, luma, cb, cr []byte) {
	cb, cr = cb[:len(luma)], cr[:len(luma)]
	for i, v := range luma {
		if len(dst) < 3 { // never; removes the bounds checks below
			return
		}
		y, b, r := int32(v), int32(cb[i])-128, int32(cr[i])-128
		dst[0] = clamped[uint32(y+(91881*r+1<<15)>>16)%1024]
		dst[1] = clamped[uint32(y+(-22554*b-46802*r+1<<15)>>16)%1024]
		dst[2] = clamped[uint32(y+(116130*b+1<<15)>>16)%1024]
		dst = dst[3:]
	}
}

// clamped clamps -512..511 to a byte, indexed modulo 1024. Colour conversion stays within that range. A
// table is faster than three unpredictable branches per pixel.
var clamped = clampTable()

func clampTable() *[1024]byte {
	var t [1024]byte
	for v := -512; v < 512; v++ {
		t[v&1023] = byte(min(max(v, 0), 255))
	}
	return &t
}
