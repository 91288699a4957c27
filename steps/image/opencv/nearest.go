package opencv

import (
	"math"

	"github.com/tutti-server/tutti/steps/image/raster"
)

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
			p.copy(line, j.From.Line(y))
			last = y
		}
		j.To.Put(i, line)
	}
}

func (p *places) copy(dst, src []byte) {
	switch {
	case p.span.In == p.span.Out:
		copy(dst, src[p.at[0]:])
	case p.channels == 1:
		for i, at := range p.at {
			dst[i] = src[at]
		}
	default:
		for _, at := range p.at {
			s, d := src[at:at+3:at+3], dst[:3:3]
			d[0], d[1], d[2] = s[0], s[1], s[2]
			dst = dst[3:]
		}
	}
}
