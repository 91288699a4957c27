package resize

import "github.com/tutti-server/tutti/steps/image/raster"

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
			dst[i] = uint64(round(half+raster.Dot1(a[at:], w))) | uint64(round(half+raster.Dot1(b[at:], w)))<<32
		}
		return
	}
	for i := 0; len(dst) >= 3; i++ {
		w, at := r.x.taps(i), 3*(int(r.x.first[i])-base)
		x0, x1, x2 := raster.Dot3(a[at:], w)
		y0, y1, y2 := raster.Dot3(b[at:], w)
		dst[0] = uint64(round(half+x0)) | uint64(round(half+y0))<<32
		dst[1] = uint64(round(half+x1)) | uint64(round(half+y1))<<32
		dst[2] = uint64(round(half+x2)) | uint64(round(half+y2))<<32
		dst = dst[3:]
	}
}
