package image

// reduced is a part of a picture at a whole fraction of its size: each pixel is the mean
// of a box, as by Pillow's Image.reduce. Boxes at the far edges may be smaller.
type reduced struct {
	src    converter
	part   part
	fx, fy int
	w, h   int
	line   []byte
	sums   []uint32
}

var _ picture = (*reduced)(nil)

// reduce points r at the part of src that x and y resample, when one of them falls by more
// than twice gap, and changes x and y to spans of what r is.
func (r *reduced) reduce(src *converter, p part, x, y *span, gap float64) bool {
	if x.filter == nearest {
		return false
	}
	fx, fy := fold(x, gap), fold(y, gap)
	if fx == 1 && fy == 1 {
		return false
	}
	*r = reduced{
		src: *src, part: p, fx: fx, fy: fy, w: (p.w + fx - 1) / fx, h: (p.h + fy - 1) / fy,
		line: resized(r.line, src.w*src.channels()), sums: r.sums,
	}
	x.in, x.extent = r.w, float64(float32(float64(p.w)/float64(fx)))
	y.in, y.extent = r.h, float64(float32(float64(p.h)/float64(fy)))
	return true
}

// fold is the fraction, 1/fold, that an axis is reduced to so that it still has gap times
// the output.
func fold(s *span, gap float64) int { return max(int(float64(s.in)/float64(s.out)/gap), 1) }

// restore returns the source and lets go of it.
func (r *reduced) restore() converter {
	src := r.src
	r.src = converter{}
	return src
}

// Size is part of picture.
func (r *reduced) Size() (width, height int) { return r.w, r.h }

// Gray is part of picture.
func (r *reduced) Gray() bool { return r.src.gray }

// Row is part of picture.
func (r *reduced) Row(dst []byte, y int) {
	ch := r.src.channels()
	r.sums = resized(r.sums, r.w*ch)
	clear(r.sums)
	top := y * r.fy
	rows := min(r.fy, r.part.h-top)
	for i := range rows {
		line := r.src.peek(r.line, r.part.y+top+i)[r.part.x*ch:][:r.part.w*ch]
		if ch == 1 {
			sum1(r.sums, line, r.fx)
		} else {
			sum3(r.sums, line, r.fx)
		}
	}
	whole := r.part.w / r.fx * ch
	mean(dst[:whole], r.sums, r.fx*rows)
	mean(dst[whole:r.w*ch], r.sums[whole:], r.part.w%r.fx*rows)
}

// sum1 adds up each n samples of a row; the last ones may be fewer.
func sum1(sums []uint32, line []byte, n int) {
	for i := range sums {
		for _, v := range line[i*n : min((i+1)*n, len(line))] {
			sums[i] += uint32(v)
		}
	}
}

// sum3 is sum1 for three samples a pixel.
func sum3(sums []uint32, line []byte, n int) {
	for i := 0; i+3 <= len(sums); i += 3 {
		s := sums[i : i+3 : i+3]
		for p := line[i*n : min((i+3)*n, len(line))]; len(p) >= 3; p = p[3:] {
			s[0] += uint32(p[0])
			s[1] += uint32(p[1])
			s[2] += uint32(p[2])
		}
	}
}

// mean divides sums of n samples as Pillow does: by a factor of 32 bits that is first
// rounded to a float32.
func mean(dst []byte, sums []uint32, n int) {
	if len(dst) == 0 {
		return
	}
	factor := uint32(float32(1<<32) / float32(256*n))
	for i := range dst {
		dst[i] = byte((sums[i] + uint32(n/2)) * factor >> 24)
	}
}
