package image

// resizer shrinks or grows an image with an antialiased bilinear filter, as
// Pillow does: two passes, each rounded to 8 bits. The pass down the columns is
// turned inside out: each source row is added to the output rows that need it,
// of which only a few are open at a time, so that no image between the passes
// is ever kept. All buffers are scratch, kept between images.
type resizer struct {
	src   converter
	x, y  axis
	ch    int
	width int // Of the output.
	// downFirst runs the pass down the columns before the one along the rows.
	downFirst bool

	a, b []byte   // Two source rows.
	pair []uint64 // The same two rows as low and high halves: one multiplication serves both.
	mid  []uint64 // The two rows resampled, in halves likewise.
	sums []uint32 // Open output rows in fixed point, a ring.
	open int      // Rows in that ring.
	out  []byte   // The result: rows of packed samples.
}

// run resizes the image that src is set to into out.
func (r *resizer) run(width, height int) {
	w, h := r.src.w, r.src.h
	r.ch, r.width = r.src.channels(), width
	// The order matters to the last bit. It is Pillow's since version 13:
	// columns first when the height falls by more than twice what the width does.
	r.downFirst = h-height > 0 && h-height > 2*(w-width)
	r.x.set(w, width)
	r.y.set(h, height)
	n := w * r.ch
	r.a, r.b, r.pair = resized(r.a, n), resized(r.b, n), resized(r.pair, n)
	r.mid = resized(r.mid, width*r.ch)
	r.out = resized(r.out, width*height*r.ch)
	r.open = r.y.overlap
	if !r.downFirst {
		n = width * r.ch
	}
	r.sums = resized(r.sums, r.open*n)
	r.rows(n)
}

// rows takes the source two rows at a time through both passes. n is the number
// of samples in an open row.
func (r *resizer) rows(n int) {
	low, high := 0, 0 // The open output rows.
	for y := 0; y < r.src.h; y += 2 {
		r.src.row(r.a, y)
		if y+1 < r.src.h {
			r.src.row(r.b, y+1) // On the last odd row b is stale; its weight is 0.
		}
		interleave(r.pair, r.a, r.b)
		rows := r.pair
		if !r.downFirst {
			r.along(r.mid, r.pair)
			rows = r.mid
		}
		for ; high < r.y.out && int(r.y.first[high]) <= y+1; high++ {
			fill(r.slot(high, n), half)
		}
		for i := low; i < high; i++ {
			add(r.slot(i, n), rows, r.y.at(i, y), r.y.at(i, y+1))
		}
		for ; low < high && r.y.end(low) <= y+2; low++ {
			r.finish(low, r.slot(low, n))
		}
	}
}

// slot is the place of an output row in the ring.
func (r *resizer) slot(i, n int) []uint32 { return r.sums[i%r.open*n:][:n] }

// finish rounds a complete output row and stores it.
func (r *resizer) finish(i int, sum []uint32) {
	n := r.width * r.ch
	out := r.out[i*n:][:n]
	if !r.downFirst {
		for j, s := range sum {
			out[j] = round(s)
		}
		return
	}
	for j, s := range sum {
		r.pair[j] = uint64(round(s))
	}
	r.along(r.mid, r.pair)
	for j, v := range r.mid {
		out[j] = byte(v)
	}
}

// round brings a sum back to 8 bits.
func round(s uint32) byte { return byte(min(s>>precision, 255)) }

// round2 is round for both halves of a word.
func round2(s uint64) uint64 {
	lo, hi := uint64(uint32(s))>>precision, s>>(32+precision)
	return min(lo, 255) | min(hi, 255)<<32
}

func fill(s []uint32, v uint32) {
	for i := range s {
		s[i] = v
	}
}

func interleave(pair []uint64, a, b []byte) {
	b, pair = b[:len(a)], pair[:len(a)]
	for i, v := range a {
		pair[i] = uint64(v) | uint64(b[i])<<32
	}
}

// add weighs two rows into an open output row. A sum stays below 2^32: the
// weights of a row add up to 2^22 and a rounding error each.
func add(sum []uint32, rows []uint64, ka, kb uint32) {
	rows = rows[:len(sum)]
	for i, v := range rows {
		sum[i] += uint32(v)*ka + uint32(v>>32)*kb
	}
}

// along resamples two rows horizontally.
func (r *resizer) along(dst, src []uint64) {
	if r.ch == 1 {
		r.along1(dst, src)
		return
	}
	r.along3(dst, src)
}

func (r *resizer) along1(dst, src []uint64) {
	for i := range dst {
		w := r.x.taps(i)
		p := src[r.x.first[i]:][:len(w)]
		s := uint64(half | half<<32)
		for j, k := range w {
			s += p[j] * uint64(k)
		}
		dst[i] = round2(s)
	}
}

func (r *resizer) along3(dst, src []uint64) {
	for i := 0; len(dst) >= 3; i++ {
		w := r.x.taps(i)
		p := src[3*int(r.x.first[i]):][:3*len(w)]
		s0, s1, s2 := uint64(half|half<<32), uint64(half|half<<32), uint64(half|half<<32)
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
