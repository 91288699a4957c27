package image

import (
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// WithoutVectors makes a step resize in Go.
func WithoutVectors(s steps.Step) {
	if s, ok := s.(*step); ok {
		s.workers = pool.Of[worker]{New: func() *worker { return &worker{resizer: resize.Resizer{Portable: true}} }}
	}
}
