package detect

import (
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
)

// raw decodes the heads of YOLO v5 (models/yolo.py, Detect.forward): with s the sigmoid of a number,
// the centre of a box is (2s - 0.5 + cell) * stride and its size (2s)^2 * anchor, in pixels.
func (s *step) raw(w *worker, b *backends.Batch, row int) error {
	order := 0
	for i := range s.levels {
		l, p := &s.levels[i], s.row(b, i, row)
		anchors, n := p.dims[0], p.dims[3]
		name := s.names[i]
		if anchors != len(l.anchors)/2 {
			return status.Errorf(status.InvalidArg, "input '%s': expected %d anchors, found %d", name, len(l.anchors)/2, anchors)
		}
		if _, err := s.classes(name, n, 5); err != nil {
			return err
		}
		for a := range anchors {
			for y := range p.dims[1] {
				for x := range p.dims[2] {
					at := ((a*p.dims[1]+y)*p.dims[2] + x) * n
					s.cell(w, l, p.data[at:][:n], a, x, y, order)
					order++
				}
			}
		}
	}
	return nil
}

// cell decodes one box.
func (s *step) cell(w *worker, l *level, from []float32, anchor, x, y, order int) {
	if !(from[4] >= s.logit) {
		return
	}
	object := sigmoid(from[4])
	if !(object > s.score) {
		return
	}
	wide, high := 2*sigmoid(from[2]), 2*sigmoid(from[3])
	box := [4]float32{
		(2*sigmoid(from[0]) - 0.5 + float32(x)) * l.stride,
		(2*sigmoid(from[1]) - 0.5 + float32(y)) * l.stride,
		wide * wide * l.anchors[2*anchor],
		high * high * l.anchors[2*anchor+1],
	}
	s.sigmoids(w, from[5:])
	s.scored(w, box[:], object, w.best, order)
}

// levelNames returns the names of the inputs of the levels.
func levelNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("level_", i)
	}
	return out
}
