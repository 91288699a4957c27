package inference

import (
	"regexp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Settings is what a Service is made from.
type Settings struct {
	Inferer infer.Inferer
	Catalog infer.Catalog
	// Alloc provides the memory of input tensors.
	Alloc tensor.Allocator
	// Regions are the clients' shared memory. It must not be nil.
	Regions *shm.Registry
	// Forward selects, by name, the headers that become parameters; nil for none.
	Forward *regexp.Regexp
	// Tracer samples requests; nil for none.
	Tracer *tracing.Tracer
	Limits *transport.Limits
}

// Service serves inference requests. Its methods are handlers and safe for concurrent use.
type Service struct{ Settings }

// New returns a Service.
func New(set Settings) *Service { return &Service{set} }
