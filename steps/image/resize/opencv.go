package resize

import (
	"github.com/tutti-server/tutti/steps/image/opencv"
	"github.com/tutti-server/tutti/steps/image/raster"
)

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
