// Package opencv resamples images of 8-bit samples to the bits of cv2.resize. The reference is
// opencv-python-headless 5.0.0.93 for x86-64; 4.14.0.94 gives the same bits.
//
// One case is an exception: for INTER_CUBIC the x86-64 wheels call Intel's IPP, whose results differ by 1 between
// processors. Cubic is OpenCV's own code, as after cv2.ipp.setUseIPP(False).
//
// OpenCV's code for 8-bit samples (modules/imgproc/src/resize.cpp) has these special cases:
//
//   - Linear, Cubic and Lanczos4 have weights of 11 bits and never widen when the image shrinks. Linear drops 4 bits
//     between the passes and 16 bits of each product of the second one.
//   - Linear at exactly half the width and height is Area.
//   - Area is a mean only where neither side grows. With two whole factors it divides a sum; with others it adds up
//     float32 products. Where a side grows it is Linear with other weights.
//   - Cubic computes eight samples at a time in float32, and the rest of a row in integers. The two round
//     differently at ties, so the value of a sample depends on its position in the row.
package opencv

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// Sampling is an interpolation of cv2.resize.
type Sampling uint8

// The samplings, by the names of OpenCV: Nearest is INTER_NEAREST and so on.
const (
	Nearest Sampling = iota
	Linear
	Cubic
	Area
	Lanczos4
)

// Span is one axis of a resize: In samples become Out, of which N from From on are computed. For example,
// {In: 1920, Out: 224, From: 0, N: 224} is a whole row.
type Span struct{ In, Out, From, N int }

// scale returns the number of inputs per output. OpenCV inverts a rounded quotient, which changes some bits.
func (s Span) scale() float64 { return 1 / (float64(s.Out) / float64(s.In)) }

// Source provides the image that is resized.
type Source interface {
	// Line returns the samples of row y, borrowed until the next call. Rows are read at most once, in ascending order.
	Line(y int) []byte
}

// Sink receives the result.
type Sink interface {
	// Put receives row i, from 0 to Job.Y.N-1, in order. The row is borrowed until Put returns.
	Put(i int, row []byte)
}

// Job describes one resize.
type Job struct {
	Sampling Sampling
	Channels int // samples per pixel: 1 or 3
	X, Y     Span
	From     Source
	To       Sink
}

// Resizer runs one job at a time and keeps its memory and tables for the next one. The zero value is ready for use. It
// is not safe for concurrent use.
type Resizer struct {
	places places
	x, y   taps
	linear linear
	wide   wide
	boxes  boxes
	means  means
	line   []byte // a row of the result
}

// Run executes a job. Sizes must be at least 1. It chooses the code by the special cases of OpenCV.
func (r *Resizer) Run(j *Job) {
	r.line = raster.Sized(r.line, j.X.N*j.Channels)
	sx, sy := j.X.scale(), j.Y.scale()
	nx, ny := whole(sx), whole(sy)
	area := (j.Sampling == Area || j.Sampling == Linear && nx == 2 && ny == 2) && sx >= 1 && sy >= 1
	switch {
	case j.Sampling == Nearest || j.X.In == j.X.Out && j.Y.In == j.Y.Out:
		r.places.run(j, r.line)
	case area && nx > 0 && ny > 0:
		r.boxes.run(j, r.line)
	case area:
		r.means.run(j, r.line)
	default:
		r.x.set(j.Sampling, j.X, j.Channels)
		r.y.set(j.Sampling, j.Y, 0)
		if r.x.n == 2 {
			r.linear.run(j, &r.x, &r.y, r.line)
		} else {
			r.wide.run(j, &r.x, &r.y, r.line)
		}
	}
}

// epsilon is DBL_EPSILON of C.
const epsilon = 0x1p-52

// whole returns a scale as an integer, or 0 where OpenCV does not treat it as one.
func whole(scale float64) int {
	n := math.RoundToEven(scale)
	if math.Abs(scale-n) >= epsilon {
		return 0
	}
	return int(n)
}

// places has the index of the input pixel that each pixel of the output copies.
type places struct {
	span     Span
	channels int
	at       []int32
}

// place returns the input that output i copies.
func place(s Span, i int) int {
	if s.In == s.Out {
		return i
	}
	return min(int(math.Floor(float64(i)*s.scale())), s.In-1)
}

func (p *places) set(s Span, channels int) {
	if p.span == s && p.channels == channels {
		return
	}
	p.span, p.channels = s, channels
	p.at = raster.Sized(p.at, s.N)
	for i := range p.at {
		p.at[i] = int32(place(s, s.From+i) * channels)
	}
}

func (p *places) run(j *Job, line []byte) {
	p.set(j.X, j.Channels)
	last := -1
	for i := range j.Y.N {
		if y := place(j.Y, j.Y.From+i); y != last {
			line = p.row(line, j.From.Line(y))
			last = y
		}
		j.To.Put(i, line)
	}
}

// row returns the pixels of a row of the source that the output has: a part of src, or line with copies of them.
func (p *places) row(line, src []byte) []byte {
	if p.span.In == p.span.Out {
		return src[p.at[0]:][:p.span.N*p.channels]
	}
	p.copy(line, src)
	return line
}

func (p *places) copy(dst, src []byte) {
	if p.channels == 1 {
		for i, at := range p.at {
			dst[i] = src[at]
		}
		return
	}
	for _, at := range p.at {
		s, d := src[at:at+3:at+3], dst[:3:3]
		d[0], d[1], d[2] = s[0], s[1], s[2]
		dst = dst[3:]
	}
}
