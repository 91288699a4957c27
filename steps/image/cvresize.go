package image

import "github.com/tutti-server/tutti/steps/image/opencv"

// cvResizer resamples with OpenCV's samplings: it gives package opencv the rows of a part
// and takes its results to a tensor.
type cvResizer struct {
	opencv opencv.Resizer
	src    *converter
	part   part
	line   []byte
	to     target
}

var (
	_ opencv.Source = (*cvResizer)(nil)
	_ opencv.Sink   = (*cvResizer)(nil)
)

func (c *cvResizer) run(r *resizer, p part, x, y span, t *target) {
	c.src, c.part, c.to, c.line = &r.src, p, *t, resized(c.line, r.src.w*r.ch)
	c.opencv.Run(&opencv.Job{
		Sampling: filters[x.filter].sampling, Channels: r.ch, From: c, To: c,
		X: opencv.Span{In: x.in, Out: x.out, From: x.from, N: x.n},
		Y: opencv.Span{In: y.in, Out: y.out, From: y.from, N: y.n},
	})
	c.to.dst = nil
}

// Line is part of opencv.Source.
func (c *cvResizer) Line(y int) []byte {
	ch := c.src.channels()
	return c.src.peek(c.line, c.part.y+y)[c.part.x*ch:][:c.part.w*ch]
}

// Put is part of opencv.Sink.
func (c *cvResizer) Put(i int, row []byte) { c.to.row(c.to.dst, row, c.to.x, c.to.y+i) }
