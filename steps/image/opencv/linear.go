package opencv

import (
	"github.com/tutti-server/tutti/steps/image/kernels"
	"github.com/tutti-server/tutti/steps/image/raster"
)

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
