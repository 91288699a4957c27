package detect

import (
	"math"

	"github.com/tutti-server/tutti/core/status"
)

// place maps boxes from the coordinates of the model to those of the outputs.
type place struct {
	unitX, unitY   float64 // pixels of the model's input per unit of its boxes
	scaleX, scaleY float64
	offX, offY     float64
	width, height  float64 // limits of the boxes; 0 for none
}

// place returns the mapping of a row. g is its geometry, or nil.
func (o *options) place(g []float32) (place, error) {
	p := place{unitX: 1, unitY: 1, scaleX: 1, scaleY: 1, width: float64(o.width), height: float64(o.height)}
	switch {
	case o.normalized && o.width > 0:
		p.unitX, p.unitY = p.width, p.height
	case o.normalized: // boxes stay fractions of the image
		p.width, p.height = 1, 1
	}
	if !o.geometry {
		return p, nil
	}
	for i, v := range g {
		if finite := v-v == 0; !finite || i != 2 && i != 3 && v <= 0 {
			return p, status.Errorf(status.InvalidArg,
				"input '%s': expected scales above 0, offsets and a size above 0, found %v", geometryName, g)
		}
	}
	p.scaleX, p.scaleY = float64(g[0]), float64(g[1])
	p.offX, p.offY = float64(g[2]), float64(g[3])
	p.width, p.height = float64(g[4]), float64(g[5])
	return p, nil
}

// move maps a box and cuts it off at the edges. ok is false if nothing is left of it.
func (p *place) move(b *[4]float32) (out [4]float32, ok bool) {
	x0, x1 := (float64(b[0])*p.unitX-p.offX)/p.scaleX, (float64(b[2])*p.unitX-p.offX)/p.scaleX
	y0, y1 := (float64(b[1])*p.unitY-p.offY)/p.scaleY, (float64(b[3])*p.unitY-p.offY)/p.scaleY
	if p.width == 0 {
		return [4]float32{float32(x0), float32(y0), float32(x1), float32(y1)}, true
	}
	x0, x1 = math.Max(x0, 0), math.Min(x1, p.width)
	y0, y1 = math.Max(y0, 0), math.Min(y1, p.height)
	return [4]float32{float32(x0), float32(y0), float32(x1), float32(y1)}, x0 < x1 && y0 < y1
}
