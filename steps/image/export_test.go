package image

import (
	"sync"

	"github.com/tutti-server/tutti/steps"
)

// WithoutVectors makes a step resize in Go.
func WithoutVectors(s steps.Step) {
	if s, ok := s.(*step); ok {
		s.workers = sync.Pool{New: func() any { return &worker{resizer: resizer{vec: vectors{off: true}}} }}
	}
}
