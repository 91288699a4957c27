package kernels

// lerp is Lerp in Go.
func lerp(dst []int16, src []byte, at []int32, weights []int16) {
	for i, p := range at {
		s, w, d := src[3*p:][:6], weights[2*i:][:2], dst[3*i:][:3]
		a, b := int32(w[0]), int32(w[1])
		d[0] = int16((int32(s[0])*a + int32(s[3])*b) >> 4)
		d[1] = int16((int32(s[1])*a + int32(s[4])*b) >> 4)
		d[2] = int16((int32(s[2])*a + int32(s[5])*b) >> 4)
	}
}

// blend is Blend in Go.
func blend(dst []byte, a, b []int16, wa, wb int16) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = byte((int32(a[i])*int32(wa)>>16 + int32(b[i])*int32(wb)>>16 + 2) >> 2)
	}
}
