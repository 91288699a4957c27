package opencv

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
)

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
			dst[i] = dot1(in, w)
		} else {
			dst[3*i], dst[3*i+1], dst[3*i+2] = dot3(in, w)
		}
	}
}

func dot1(in []byte, w []int16) (s int32) {
	in = in[:len(w)]
	for k, v := range w {
		s += int32(in[k]) * int32(v)
	}
	return s
}

func dot3(in []byte, w []int16) (s0, s1, s2 int32) {
	for _, v := range w {
		s0 += int32(in[0]) * int32(v)
		s1 += int32(in[1]) * int32(v)
		s2 += int32(in[2]) * int32(v)
		in = in[3:]
	}
	return s0, s1, s2
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
