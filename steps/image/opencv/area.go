package opencv

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
)

// boxes is Area with integer factors: the sum of the samples of a box, divided by their number.
type boxes struct {
	sums []uint32
}

func (b *boxes) run(j *Job, line []byte) {
	nx, ny := whole(j.X.scale()), whole(j.Y.scale())
	b.sums = raster.Sized(b.sums, len(line))
	for i := range j.Y.N {
		clear(b.sums)
		for y := range ny {
			raster.AddBoxes(b.sums, j.From.Line((j.Y.From+i)*ny + y)[j.X.From*nx*j.Channels:], nx, j.Channels)
		}
		if nx == 2 && ny == 2 { // a half is rounded up
			for k, s := range b.sums {
				line[k] = byte((s + 2) >> 2)
			}
		} else {
			unit := 1 / float32(nx*ny)
			for k, s := range b.sums {
				line[k] = saturated(float32(s) * unit)
			}
		}
		j.To.Put(i, line)
	}
}

// means is Area with other factors: means in float32, weighted by the part of each input that the output covers.
type means struct {
	x, y shares
	row  []float32
	sum  []float32
}

// share is the weight of an input in an output.
type share struct {
	in, out int32
	weight  float32
}

// shares has the shares of an axis, in the order of the outputs.
type shares struct {
	span Span
	list []share
}

// set computes the shares of the outputs in the span.
func (t *shares) set(s Span) {
	if t.span == s {
		return
	}
	t.span, t.list = s, t.list[:0]
	scale := s.scale()
	for i := range s.N {
		t.cell(i, float64(float64(s.From+i)*scale), scale)
	}
}

// slight is the part of an input below which OpenCV ignores it.
const slight = 1e-3

// cell appends the shares of output i, which begins at start.
func (t *shares) cell(i int, start, scale float64) {
	end, width := start+scale, min(scale, float64(t.span.In)-start)
	last := min(int(math.Floor(end)), t.span.In-1)
	first := min(int(math.Ceil(start)), last)
	out := int32(i)
	if float64(first)-start > slight {
		t.list = append(t.list, share{int32(first - 1), out, float32((float64(first) - start) / width)})
	}
	for in := first; in < last; in++ {
		t.list = append(t.list, share{int32(in), out, float32(1 / width)})
	}
	if end-float64(last) > slight {
		t.list = append(t.list, share{int32(last), out, float32(min(min(end-float64(last), 1), width) / width)})
	}
}

func (m *means) run(j *Job, line []byte) {
	m.x.set(j.X)
	m.y.set(j.Y)
	m.row, m.sum = raster.Sized(m.row, len(line)), raster.Sized(m.sum, len(line))
	in, list := -1, m.y.list
	for i := range j.Y.N {
		clear(m.sum)
		for ; len(list) > 0 && int(list[0].out) == i; list = list[1:] {
			if y := int(list[0].in); y != in {
				m.along(j.From.Line(y), j.Channels)
				in = y
			}
			w := list[0].weight
			for k, v := range m.row {
				m.sum[k] += float32(v * w)
			}
		}
		for k, v := range m.sum {
			line[k] = saturated(v)
		}
		j.To.Put(i, line)
	}
}

// along computes the means of a row.
func (m *means) along(src []byte, ch int) {
	clear(m.row)
	if ch == 1 {
		for _, s := range m.x.list {
			m.row[s.out] += float32(float32(src[s.in]) * s.weight)
		}
		return
	}
	for _, s := range m.x.list {
		p, d := src[3*s.in:][:3], m.row[3*s.out:][:3]
		d[0] += float32(float32(p[0]) * s.weight)
		d[1] += float32(float32(p[1]) * s.weight)
		d[2] += float32(float32(p[2]) * s.weight)
	}
}
