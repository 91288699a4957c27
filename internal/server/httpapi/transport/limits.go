package transport

import (
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// Limits bounds what a request may cost. A server has one, which all requests share.
type Limits struct {
	// MaxInput is the most bytes of a body, before and after decompression.
	MaxInput int64
	// Stall is how long a client may send nothing of a body, or read nothing of a large response; 0 means forever.
	Stall time.Duration
	// InFlight counts the bytes of all requests and rejects those beyond its limit; nil does neither.
	InFlight *infer.InFlight
}

// Path holds the variable parts of a request's path.
type Path struct {
	Model   string
	Version string
	Name    string // of a repository or a shared memory region
}
