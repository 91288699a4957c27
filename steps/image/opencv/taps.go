package opencv

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// one is the sum of the weights of an output: 1 with 11 fraction bits.
const one = 1 << 11

// taps holds the weights of one axis. Output i is the sum of the inputs from at[i] on, times its weights. Inputs beyond
// an edge are the input at the edge.
type taps struct {
	kind      Sampling // Area is Linear with other weights
	span      Span
	channels  int // 0 for the axis down the columns
	n         int // weights of an output
	at        []int32
	weights   []int16
	low, high int // low and high delimit the outputs that need no input beyond an edge
}

// set computes the weights, unless the last image had the same span.
func (t *taps) set(kind Sampling, s Span, channels int) {
	if t.kind == kind && t.span == s && t.channels == channels {
		return
	}
	t.kind, t.span, t.channels = kind, s, channels
	t.n = [...]int{Linear: 2, Area: 2, Cubic: 4, Lanczos4: 8}[kind]
	t.at, t.weights = raster.Sized(t.at, s.N), raster.Sized(t.weights, s.N*t.n)
	scale := s.scale()
	for i := range s.N {
		at, x := t.locate(s.From+i, scale)
		t.at[i] = int32(at - t.n/2 + 1)
		t.weigh(t.weights[i*t.n:][:t.n], x)
	}
	t.low, t.high = 0, s.N
	for t.low < s.N && t.at[t.low] < 0 {
		t.low++
	}
	for t.high > t.low && int(t.at[t.high-1])+t.n > s.In {
		t.high--
	}
}

// locate returns the input at or before the centre of output i, and the distance from it to the centre.
func (t *taps) locate(i int, scale float64) (at int, x float32) {
	if t.kind == Area {
		at = int(math.Floor(float64(i) * scale))
		x = float32(float64(i+1) - float64(float64(at+1)*(float64(t.span.Out)/float64(t.span.In))))
		if x <= 0 {
			x = 0
		} else {
			x -= float32(math.Floor(float64(x)))
		}
	} else {
		x = float32(float64((float64(i)+0.5)*scale) - 0.5)
		at = int(math.Floor(float64(x)))
		x -= float32(at)
	}
	if t.channels == 0 || t.n != 2 {
		return at, x
	}
	switch last := t.span.In - 1; { // along the rows only
	case at < 0:
		return 0, 0
	case at >= last:
		return last, 0
	}
	return at, x
}

func (t *taps) weigh(dst []int16, x float32) {
	var w [8]float32
	switch t.kind {
	case Cubic:
		cubic(w[:], x)
	case Lanczos4:
		lanczos4(w[:], x)
	default:
		w[0], w[1] = 1-x, x
	}
	for i := range dst {
		dst[i] = int16(math.RoundToEven(float64(w[i] * one)))
	}
}

// cubic computes the weights of Keys' kernel with a = -0.75. Conversions to float32 forbid fused multiply-add.
func cubic(w []float32, x float32) {
	const a = float32(-0.75)
	inner := func(x float32) float32 {
		return float32(float32((float32((a+2)*x)-(a+3))*x)*x) + 1
	}
	w[0] = float32((float32((float32(a*(x+1))-5*a)*(x+1))+8*a)*(x+1)) - 4*a
	w[1] = inner(x)
	w[2] = inner(1 - x)
	w[3] = 1 - w[0] - w[1] - w[2]
}

// lanczos4 computes the weights of the Lanczos kernel of four lobes, divided by their sum.
func lanczos4(w []float32, x float32) {
	const root = 0.70710678118654752440084436210485
	turns := [8][2]float64{{1, 0}, {-root, -root}, {0, 1}, {root, -root}, {-1, 0}, {root, root}, {0, -1}, {-root, root}}
	sin, cos := math.Sincos(-float64(x+3) * math.Pi * 0.25)
	sum := float32(0)
	for i, t := range turns {
		d := x + 3 - float32(i)
		if math.Abs(float64(d)) < 1e-6 { // at an input
			w[i] = 1e30
		} else {
			y := -float64(d) * math.Pi * 0.25
			w[i] = float32((float64(t[0]*sin) + float64(t[1]*cos)) / float64(y*y))
		}
		sum += w[i]
	}
	sum = 1 / sum
	for i := range w {
		w[i] *= sum
	}
}

// row returns the row of the source for tap k of output i.
func (t *taps) row(i, k int) int { return min(max(int(t.at[i])+k, 0), t.span.In-1) }

// linear runs two passes with two weights. The first drops 4 bits, so that its results fit into 16.
type linear struct {
	rows [2][]int16
	have [2]int // the row of the source in each of rows
}

func (l *linear) run(j *Job, x, y *taps, line []byte) {
	for k := range l.rows {
		l.rows[k], l.have[k] = raster.Sized(l.rows[k], len(line)+1), -1 // the vectors write one element more
	}
	for i := range j.Y.N {
		a, b := l.row(j, x, y.row(i, 0)), l.row(j, x, y.row(i, 1))
		w := y.weights[2*i:][:2]
		kernels.Blend(line, a, b, w[0], w[1])
		j.To.Put(i, line)
	}
}

// row returns a row of the source after the first pass.
func (l *linear) row(j *Job, x *taps, y int) []int16 {
	k := y % 2
	if l.have[k] != y {
		l.have[k] = y
		if j.Channels == 1 {
			along1(l.rows[k], j.From.Line(y), x)
		} else {
			along3(l.rows[k], j.From.Line(y), x)
		}
	}
	return l.rows[k]
}

func along1(dst []int16, src []byte, x *taps) {
	last := len(src) - 1
	for i := range x.at {
		at, w := int(x.at[i]), x.weights[2*i:][:2]
		dst[i] = int16((int32(src[at])*int32(w[0]) + int32(src[min(at+1, last)])*int32(w[1])) >> 4)
	}
}

func along3(dst []int16, src []byte, x *taps) {
	kernels.Lerp(dst, src, x.at[:x.high], x.weights[:2*x.high])
	for i := x.high; i < len(x.at); i++ { // the last input alone
		p := src[3*int(x.at[i]):][:3]
		for c, v := range p {
			dst[3*i+c] = int16(int32(v) * one >> 4)
		}
	}
}

// wide runs two passes with four or eight weights.
type wide struct {
	rows [8][]int32
	have [8]int // the row of the source in each of rows
	edge []byte // the inputs of an output at an edge
}

// bits are the fraction bits after both passes.
const bits = 22

func (p *wide) run(j *Job, x, y *taps, line []byte) {
	n := y.n
	for k := range p.rows[:n] {
		p.rows[k], p.have[k] = raster.Sized(p.rows[k], len(line)), -1
	}
	// OpenCV computes this much of a whole row eight samples at a time.
	vectors := min(max(j.X.Out*j.Channels&^7-j.X.From*j.Channels, 0), len(line))
	var in [8][]int32
	for i := range j.Y.N {
		for k := range n {
			in[k] = p.row(j, x, y.row(i, k), n)
		}
		w := y.weights[n*i:][:n]
		if n == 4 {
			downFloat(line[:vectors], &in, w)
			downInt(line, vectors, in[:n], w)
		} else {
			downInt(line, 0, in[:n], w)
		}
		j.To.Put(i, line)
	}
}

// row returns a row of the source after the first pass.
func (p *wide) row(j *Job, x *taps, y, n int) []int32 {
	k := y % n
	if p.have[k] != y {
		p.have[k] = y
		p.along(p.rows[k], j.From.Line(y), x)
	}
	return p.rows[k]
}

// along is the first pass.
func (p *wide) along(dst []int32, src []byte, x *taps) {
	ch, n := x.channels, x.n
	p.edge = raster.Sized(p.edge, n*ch)
	for i, at := range x.at {
		in := p.edge
		if i >= x.low && i < x.high {
			in = src[int(at)*ch:][:n*ch]
		} else {
			for k := range n {
				copy(in[k*ch:][:ch], src[x.row(i, k)*ch:][:ch])
			}
		}
		w := x.weights[n*i:][:n]
		if ch == 1 {
			dst[i] = raster.Dot1(in, w)
		} else {
			dst[3*i], dst[3*i+1], dst[3*i+2] = raster.Dot3(in, w)
		}
	}
}

// downFloat is the second pass of four weights in float32. Conversions forbid fused multiply-add.
func downFloat(dst []byte, in *[8][]int32, w []int16) {
	const unit = float32(1) / (1 << bits)
	a, b, c, d := in[0][:len(dst)], in[1][:len(dst)], in[2][:len(dst)], in[3][:len(dst)]
	wa, wb, wc, wd := float32(w[0])*unit, float32(w[1])*unit, float32(w[2])*unit, float32(w[3])*unit
	for i := range dst {
		v := float32(float32(a[i])*wa) + (float32(float32(b[i])*wb) + (float32(float32(c[i])*wc) + float32(float32(d[i])*wd)))
		dst[i] = saturated(v)
	}
}

// downInt is the second pass from the given sample on.
func downInt(dst []byte, from int, in [][]int32, w []int16) {
	for i := from; i < len(dst); i++ {
		s := int32(1 << (bits - 1))
		for k, v := range w {
			s += in[k][i] * int32(v)
		}
		dst[i] = byte(min(max(s>>bits, 0), 255))
	}
}

// saturated rounds to 8 bits, half to even.
func saturated(v float32) byte {
	return byte(min(max(math.RoundToEven(float64(v)), 0), 255))
}
