package image

import (
	"encoding/binary"

	"github.com/tutti-server/tutti/steps/image/kernels"
)

// resizer resamples an image as Pillow does, unless the filter is one of OpenCV: two
// passes, each rounded to 8 bits.
// The pass down the columns is turned inside out: each source row is added to the
// output rows that need it, of which only a few are open at a time, so that no
// image between the passes is ever kept, and a row that is complete goes straight
// to the tensor. All buffers are scratch, kept between images.
type resizer struct {
	src  converter
	x, y axis
	ch   int
	// downFirst runs the pass down the columns before the one along the rows.
	downFirst bool
	top       int // The source's row that is the part's first.
	from, to  int // The samples of a source row that outputs need.

	a, b []byte   // Two source rows.
	pair []uint64 // The same two rows as low and high halves: one multiplication serves both.
	mid  []uint64 // The two rows resampled, in halves likewise.
	sums []int32  // Open output rows in fixed point, a ring.
	open int      // Rows in that ring.
	line []byte   // A complete output row.

	vec vectors // Instead of pair and mid, where the processor has them.

	reduced reduced // What is resampled instead of the source, with reducing_gap.
	cv      cvResizer
}

// target is a place in a tensor that takes complete rows.
type target struct {
	*layout
	dst  []byte
	x, y int // Where the first sample of the first row goes.
}

// run resamples the part of the image that src is set to into a tensor.
func (r *resizer) run(o *options, f *frame, dst []byte) {
	r.ch = r.src.channels()
	t := target{layout: &o.layout, dst: dst, x: max(f.x, 0), y: max(f.y, 0)}
	x := span{in: f.part.w, out: f.w, from: max(-f.x, 0), filter: o.filter, sharp: o.sharp}
	y := span{in: f.part.h, out: f.h, from: max(-f.y, 0), filter: o.filter, sharp: o.sharp}
	x.n, y.n = min(o.width, f.x+f.w)-t.x, min(o.height, f.y+f.h)-t.y
	x.extent, y.extent = float64(x.in), float64(y.in)
	if !o.covers(f) {
		o.layout.clear(dst)
	}
	switch {
	case o.filter.opencv():
		r.cv.run(r, f.part, x, y, &t)
	case o.gap > 0 && r.reduced.reduce(&r.src, f.part, &x, &y, o.gap):
		r.src.set(&r.reduced, r.src.space())
		r.passes(part{0, 0, x.in, y.in}, x, y, &t)
		r.src = r.reduced.restore()
	default:
		r.passes(f.part, x, y, &t)
	}
}

// passes resamples a part of the source with a filter of Pillow.
func (r *resizer) passes(p part, x, y span, t *target) {
	// The order matters to the last bit. It is Pillow's since version 13:
	// columns first when the height falls by more than twice what the width does.
	r.downFirst = p.h-y.out > 0 && p.h-y.out > 2*(p.w-x.out)
	r.x.set(x)
	r.y.set(y)
	r.top = p.y
	r.from, r.to = (p.x+int(r.x.first[0]))*r.ch, (p.x+r.x.end(r.x.n-1))*r.ch
	n, row := r.src.w*r.ch, r.x.n*r.ch
	r.a, r.b, r.line = resized(r.a, n), resized(r.b, n), resized(r.line, row)
	if !r.vec.set(r) {
		r.pair, r.mid = resized(r.pair, r.to-r.from), resized(r.mid, row)
	}
	r.open = r.y.overlap
	if r.downFirst {
		row = r.to - r.from
	}
	r.sums = resized(r.sums, r.open*row)
	r.rows(t, row)
}

// rows takes the source two rows at a time through both passes, but for those that
// no output needs. n is the number of samples in an open row.
func (r *resizer) rows(t *target, n int) {
	low, high := 0, 0 // The open output rows.
	for y := int(r.y.first[0]) &^ 1; low < r.y.n; y += 2 {
		for ; high < r.y.n && int(r.y.first[high]) <= y+1; high++ {
			fill(r.slot(high, n), half)
		}
		if low == high {
			y = int(r.y.first[low])&^1 - 2
			continue
		}
		a, b := r.fetch(y)
		if r.vec.fast {
			a, b = r.vec.prepare(r, a, b)
			for i := low; i < high; i++ {
				kernels.Add(r.slot(i, n), a, b, r.y.at(i, y), r.y.at(i, y+1))
			}
		} else {
			rows := r.prepare(a, b)
			for i := low; i < high; i++ {
				add(r.slot(i, n), rows, uint32(r.y.at(i, y)), uint32(r.y.at(i, y+1)))
			}
		}
		for ; low < high && r.y.end(low) <= y+2; low++ {
			r.finish(t, low, r.slot(low, n))
		}
	}
}

// fetch gives the samples of the part's rows y and y+1 that outputs need.
func (r *resizer) fetch(y int) (a, b []byte) {
	a = r.src.peek(r.a, r.top+y)
	b = a // On the last odd row; its weight is 0.
	if r.top+y+1 < r.src.h {
		b = r.src.peek(r.b, r.top+y+1)
	}
	return a[r.from:r.to], b[r.from:r.to]
}

// prepare puts two rows into halves, resampled unless that comes last.
func (r *resizer) prepare(a, b []byte) []uint64 {
	if !r.downFirst && 2*r.x.used < 3*len(a)/r.ch {
		r.direct(r.mid, a, b)
		return r.mid
	}
	interleave(r.pair, a, b)
	if r.downFirst {
		return r.pair
	}
	r.along(r.mid, r.pair)
	return r.mid
}

// slot is the place of an output row in the ring.
func (r *resizer) slot(i, n int) []int32 { return r.sums[i%r.open*n:][:n] }

// finish rounds a complete output row and stores it.
func (r *resizer) finish(t *target, i int, sum []int32) {
	switch {
	case r.vec.fast:
		r.vec.finish(r, sum)
	case r.downFirst:
		for j, s := range sum {
			r.pair[j] = uint64(round(s))
		}
		r.along(r.mid, r.pair)
		for j, v := range r.mid {
			r.line[j] = byte(v)
		}
	default:
		line := r.line[:len(sum)]
		for j, s := range sum {
			line[j] = byte(round(s))
		}
	}
	t.row(t.dst, r.line, t.x, t.y+i)
}

// round brings a sum back to 8 bits.
func round(s int32) uint32 { return uint32(min(max(s>>precision, 0), 255)) }

// round2 is round for both halves of a word, a borrow of the lower one undone.
func round2(s uint64) uint64 {
	lo := int32(s)
	hi := int32((s - uint64(int64(lo))) >> 32)
	return uint64(round(lo)) | uint64(round(hi))<<32
}

// fill sets all of s, which is never empty, by copies that double.
func fill(s []int32, v int32) {
	s[0] = v
	for n := 1; n < len(s); n *= 2 {
		copy(s[n:], s[:n])
	}
}

func interleave(pair []uint64, a, b []byte) {
	b, pair = b[:len(a)], pair[:len(a)]
	for len(a) >= 8 && len(b) >= 8 && len(pair) >= 8 {
		p := (*[8]uint64)(pair)
		x, y := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		p[0] = x&0xff | y<<32&0xff00000000
		p[1] = x>>8&0xff | y<<24&0xff00000000
		p[2] = x>>16&0xff | y<<16&0xff00000000
		p[3] = x>>24&0xff | y<<8&0xff00000000
		p[4] = x>>32&0xff | y&0xff00000000
		p[5] = x>>40&0xff | y>>8&0xff00000000
		p[6] = x>>48&0xff | y>>16&0xff00000000
		p[7] = x>>56 | y>>24&0xff00000000
		a, b, pair = a[8:], b[8:], pair[8:]
	}
	for i := range min(len(a), len(b), len(pair)) {
		pair[i] = uint64(a[i]) | uint64(b[i])<<32
	}
}

// add weighs two rows into an open output row. Sums are signed: with the weights'
// 2^22 for one, two bits are left for kernels that overshoot.
func add(sum []int32, rows []uint64, ka, kb uint32) {
	rows = rows[:len(sum)]
	for i, v := range rows {
		sum[i] += int32(uint32(v)*ka + uint32(v>>32)*kb)
	}
}
