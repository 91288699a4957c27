package resize

// along resamples two rows, in halves, along the row.
func (r *Resizer) along(dst, src []uint64) {
	if r.ch == 1 {
		r.along1(dst, src)
		return
	}
	r.along3(dst, src)
}

func (r *Resizer) along1(dst, src []uint64) {
	base := int(r.x.first[0])
	for i := range dst {
		w := r.x.taps(i)
		p := src[int(r.x.first[i])-base:][:len(w)]
		s := uint64(half | half<<32)
		for j, k := range w {
			s += p[j] * uint64(k)
		}
		dst[i] = round2(s)
	}
}

func (r *Resizer) along3(dst, src []uint64) {
	base := int(r.x.first[0])
	for i := 0; len(dst) >= 3; i++ {
		w := r.x.taps(i)
		p := src[3*(int(r.x.first[i])-base):][:3*len(w)]
		s0, s1, s2 := uint64(half|half<<32), uint64(half|half<<32), uint64(half|half<<32)
		for len(w) >= 4 && len(p) >= 12 {
			q, k := (*[12]uint64)(p), (*[4]int32)(w)
			k0, k1, k2, k3 := uint64(k[0]), uint64(k[1]), uint64(k[2]), uint64(k[3])
			s0 += q[0]*k0 + q[3]*k1 + q[6]*k2 + q[9]*k3
			s1 += q[1]*k0 + q[4]*k1 + q[7]*k2 + q[10]*k3
			s2 += q[2]*k0 + q[5]*k1 + q[8]*k2 + q[11]*k3
			p, w = p[12:], w[4:]
		}
		for _, k := range w {
			if len(p) < 3 {
				break
			}
			s0 += p[0] * uint64(k)
			s1 += p[1] * uint64(k)
			s2 += p[2] * uint64(k)
			p = p[3:]
		}
		dst[0], dst[1], dst[2] = round2(s0), round2(s1), round2(s2)
		dst = dst[3:]
	}
}

// direct is along for rows that are not interleaved. It is faster where outputs need few of
// the inputs, or each of them once.
func (r *Resizer) direct(dst []uint64, a, b []byte) {
	base := int(r.x.first[0])
	if r.ch == 1 {
		for i := range dst {
			w, at := r.x.taps(i), int(r.x.first[i])-base
			dst[i] = uint64(round(dot1(a[at:], w))) | uint64(round(dot1(b[at:], w)))<<32
		}
		return
	}
	for i := 0; len(dst) >= 3; i++ {
		w, at := r.x.taps(i), 3*(int(r.x.first[i])-base)
		x0, x1, x2 := dot3(a[at:], w)
		y0, y1, y2 := dot3(b[at:], w)
		dst[0] = uint64(round(x0)) | uint64(round(y0))<<32
		dst[1] = uint64(round(x1)) | uint64(round(y1))<<32
		dst[2] = uint64(round(x2)) | uint64(round(y2))<<32
		dst = dst[3:]
	}
}

func dot1(p []byte, w []int32) int32 {
	s := int32(half)
	p = p[:len(w)]
	for j, k := range w {
		s += int32(p[j]) * k
	}
	return s
}

func dot3(p []byte, w []int32) (s0, s1, s2 int32) {
	s0, s1, s2 = half, half, half
	for len(w) >= 4 && len(p) >= 12 {
		q, k := (*[12]byte)(p), (*[4]int32)(w)
		s0 += int32(q[0])*k[0] + int32(q[3])*k[1] + int32(q[6])*k[2] + int32(q[9])*k[3]
		s1 += int32(q[1])*k[0] + int32(q[4])*k[1] + int32(q[7])*k[2] + int32(q[10])*k[3]
		s2 += int32(q[2])*k[0] + int32(q[5])*k[1] + int32(q[8])*k[2] + int32(q[11])*k[3]
		p, w = p[12:], w[4:]
	}
	for _, k := range w {
		if len(p) < 3 {
			break
		}
		s0 += int32(p[0]) * k
		s1 += int32(p[1]) * k
		s2 += int32(p[2]) * k
		p = p[3:]
	}
	return s0, s1, s2
}
