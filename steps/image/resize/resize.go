// Package resize resamples images with the filters of Pillow 13 and of OpenCV, to the last
// bit: in Pillow's fixed point of 22 fraction bits (Resample.c), or by package opencv.
package resize

import (
	"encoding/binary"
	"slices"

	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/opencv"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// Rect is a rectangle of an image, in pixels.
type Rect struct{ X, Y, W, H int }

// Span is one axis of a resize: In samples become Out, of which N from From on are computed.
type Span = opencv.Span

// Sink receives the rows of the output. Put is called once for each row i from 0 to Y.N-1, in
// order. The row is borrowed until Put returns.
type Sink = opencv.Sink

// Job describes one resize: Part of the source is resampled to X.Out x Y.Out pixels.
type Job struct {
	Filter Filter
	Sharp  bool    // Sharp does not widen the filters of Pillow when the image shrinks: no antialiasing
	Gap    float64 // Gap is Pillow's reducing_gap, at least 1; 0 for none
	Part   Rect
	X, Y   Span // X.In and Y.In are the size of Part
	To     Sink
}

// Resizer resamples one image at a time and keeps its memory for the next one.
//
//  1. Src.Set points it at an image.
//  2. Run executes one or more jobs on it, for example one per detected box.
//
// It is not safe for concurrent use.
//
// The filters of Pillow take two passes, each rounded to 8 bits. The pass down the columns is inverted: each source row
// is added to the output rows that need it, of which only a few are open at a time. So no image between the passes is
// kept, and a complete row goes straight to the Sink.
type Resizer struct {
	Src raster.Rows
	// Portable selects the loops in Go on every processor. Tests compare them with AVX2.
	Portable bool

	x, y      axis
	ch        int
	downFirst bool // downFirst runs the pass down the columns before the pass along the rows
	top       int  // the source row that is the first of the part
	from, to  int  // the samples of a source row that outputs need

	a, b []byte   // two source rows
	pair []uint64 // the same two rows as low and high halves, so that one multiplication serves both
	mid  []uint64 // the two rows resampled, in halves likewise
	sums []int32  // open output rows in fixed point, a ring
	open int      // rows in that ring
	line []byte   // a complete output row

	vec     vectors // replaces pair and mid on processors with AVX2
	reduced reduced // replaces the source with Gap
	cv      cvSource
}

// Run executes a job on the image of r.Src.
func (r *Resizer) Run(j *Job) {
	r.ch = r.Src.Channels()
	x := span{Span: j.X, filter: j.Filter, sharp: j.Sharp, extent: float64(j.X.In)}
	y := span{Span: j.Y, filter: j.Filter, sharp: j.Sharp, extent: float64(j.Y.In)}
	switch {
	case j.Filter.OpenCV():
		r.cv.run(r, j)
	case j.Gap > 0 && r.reduced.reduce(&r.Src, j.Part, &x, &y, j.Gap):
		r.Src.Set(&r.reduced, r.Src.Space())
		r.passes(Rect{0, 0, x.In, y.In}, x, y, j.To)
		r.Src, r.reduced.src = r.reduced.src, raster.Rows{}
	default:
		r.passes(j.Part, x, y, j.To)
	}
}

// passes resamples a part of the source with a filter of Pillow.
func (r *Resizer) passes(p Rect, x, y span, to Sink) {
	r.downFirst = ColumnsFirst(Span{In: p.W, Out: x.Out}, Span{In: p.H, Out: y.Out})
	r.x.set(x)
	r.y.set(y)
	r.top = p.Y
	r.from, r.to = (p.X+int(r.x.first[0]))*r.ch, (p.X+r.x.end(r.x.N-1))*r.ch
	n, row := r.Src.W*r.ch, r.x.N*r.ch
	r.a, r.b, r.line = raster.Sized(r.a, n), raster.Sized(r.b, n), raster.Sized(r.line, row)
	if !r.vec.set(r) {
		r.pair, r.mid = raster.Sized(r.pair, r.to-r.from), raster.Sized(r.mid, row)
	}
	r.open = r.y.overlap
	if r.downFirst {
		row = r.to - r.from
	}
	r.sums = raster.Sized(r.sums, r.open*row)
	r.rows(to, row)
}

// rows runs both passes on two source rows at a time, and skips those that no output needs.
// n is the number of samples of an open row.
func (r *Resizer) rows(to Sink, n int) {
	low, high := 0, 0 // the open output rows
	for y := int(r.y.first[0]) &^ 1; low < r.y.N; y += 2 {
		for ; high < r.y.N && int(r.y.first[high]) <= y+1; high++ {
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
			r.finish(to, low, r.slot(low, n))
		}
	}
}

// fetch returns the samples of the part's rows y and y+1 that outputs need.
func (r *Resizer) fetch(y int) (a, b []byte) {
	a = r.Src.Peek(r.a, r.top+y)
	b = a // after the last row; its weight is 0
	if r.top+y+1 < r.Src.H {
		b = r.Src.Peek(r.b, r.top+y+1)
	}
	return a[r.from:r.to], b[r.from:r.to]
}

// prepare puts two rows into halves, resampled along the row unless downFirst is set.
func (r *Resizer) prepare(a, b []byte) []uint64 {
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

// slot returns the memory of an open output row in the ring.
func (r *Resizer) slot(i, n int) []int32 { return r.sums[i%r.open*n:][:n] }

// finish rounds a complete output row and passes it on.
func (r *Resizer) finish(to Sink, i int, sum []int32) {
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
	to.Put(i, r.line)
}

// round converts a sum in fixed point to 8 bits.
func round(s int32) uint32 { return uint32(min(max(s>>precision, 0), 255)) }

// round2 is round for both halves of a word. It undoes a borrow of the lower half.
func round2(s uint64) uint64 {
	lo := int32(s)
	hi := int32((s - uint64(int64(lo))) >> 32)
	return uint64(round(lo)) | uint64(round(hi))<<32
}

// fill sets all elements of s, which must not be empty.
func fill(s []int32, v int32) {
	s[0] = v
	for n := 1; n < len(s); n *= 2 {
		copy(s[n:], s[:n])
	}
}

// interleave puts two rows of bytes into the low and high halves of words.
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

// add adds two weighted rows to an open output row. Sums are signed and a weight of 1 is 2^22,
// so two bits are left for kernels that overshoot.
func add(sum []int32, rows []uint64, ka, kb uint32) {
	rows = rows[:len(sum)]
	for i, v := range rows {
		sum[i] += int32(uint32(v)*ka + uint32(v>>32)*kb)
	}
}

// vectors resamples images of three channels with AVX2 (package kernels). Rows stay bytes.
type vectors struct {
	fast bool
	taps kernels.Taps
	of   span   // the span of taps
	a, b []byte // two source rows, resampled; or one row complete down the columns
}

// set prepares for an image, and reports false where the loops in Go must be used.
func (v *vectors) set(r *Resizer) bool {
	v.fast = !r.Portable && kernels.Fast() && r.ch == 3 && v.weigh(&r.x)
	if v.fast {
		n := len(r.line) + 1
		if r.downFirst {
			n = max(n, r.to-r.from)
		}
		v.a, v.b = raster.Sized(v.a, n), raster.Sized(v.b, n)
	}
	return v.fast
}

// weigh orders the weights of the axis along the rows as the vector code needs them, unless
// they are. It reports false for rows that are too short.
func (v *vectors) weigh(x *axis) bool {
	if v.of == x.span {
		return true
	}
	v.of = span{}
	base := int(x.first[0])
	if !v.taps.Reset(x.end(x.N-1)-base, x.N, int(slices.Max(x.count))) {
		return false
	}
	for i := range x.N {
		v.taps.Set(i, int(x.first[i])-base, x.taps(i))
	}
	v.of = x.span
	return true
}

// prepare resamples two rows along the row, unless downFirst is set.
func (v *vectors) prepare(r *Resizer, a, b []byte) (x, y []byte) {
	if r.downFirst {
		return a, b
	}
	kernels.Along(v.a, v.b, a, b, &v.taps)
	return v.a, v.b
}

// finish rounds sums to the complete row, r.line.
func (v *vectors) finish(r *Resizer, sum []int32) {
	if !r.downFirst {
		kernels.Round(r.line, sum)
		return
	}
	kernels.Round(v.a, sum)
	kernels.Along(v.b, v.b, v.a, v.a, &v.taps)
	copy(r.line, v.b)
}

// cvSource resamples with package opencv: it reads the rows of a part of the source for it.
type cvSource struct {
	opencv opencv.Resizer
	src    *raster.Rows
	part   Rect
	line   []byte
}

var _ opencv.Source = (*cvSource)(nil)

func (c *cvSource) run(r *Resizer, j *Job) {
	c.src, c.part, c.line = &r.Src, j.Part, raster.Sized(c.line, r.Src.W*r.ch)
	c.opencv.Run(&opencv.Job{Sampling: filters[j.Filter].sampling, Channels: r.ch, From: c, To: j.To, X: j.X, Y: j.Y})
}

// Line implements opencv.Source.
func (c *cvSource) Line(y int) []byte {
	ch := c.src.Channels()
	return c.src.Peek(c.line, c.part.Y+y)[c.part.X*ch:][:c.part.W*ch]
}
