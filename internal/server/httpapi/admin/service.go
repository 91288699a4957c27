// Package admin serves the endpoints of the HTTP API that describe a running server or change it.
//
//   - describe.go: health, metadata, configurations, statistics
//   - repository.go: index, load and unload of models; shm.go: shared memory regions
//   - settings.go: trace and log settings
//   - control.go: the JSON bodies of these requests
//
// Most handlers return the value or error to respond with, which JSON writes. They use encoding/json: such requests are rare, and
// struct types fix the form of the responses.
package admin

import (
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Settings is what a Service is made from.
type Settings struct {
	Catalog infer.Catalog
	// Regions are the clients' shared memory. It must not be nil.
	Regions *shm.Registry
	// Lifecycle, Tracer and Logs serve the repository, trace and log endpoints; without them these respond "not supported".
	Lifecycle infer.Lifecycle
	Tracer    *tracing.Tracer
	Logs      *logs.Log
	// Name, Version and Extensions are the server metadata.
	Name, Version string
	Extensions    []string
	// Live and Exiting report the state of the server.
	Live, Exiting func() bool
	Limits        *transport.Limits
}

// Service serves administration requests. Its methods are handlers and safe for concurrent use.
type Service struct{ set Settings }

// New returns a Service.
func New(set Settings) *Service { return &Service{set} }

// JSON returns a handler that writes what serve returns: an error, a value as JSON, or 200 without a body for nil.
func JSON(serve func(http.ResponseWriter, *http.Request, transport.Path) (any, error)) func(http.ResponseWriter, *http.Request, transport.Path) {
	return func(w http.ResponseWriter, r *http.Request, p transport.Path) {
		switch v, err := serve(w, r, p); {
		case err != nil:
			transport.WriteError(w, err)
		case v != nil:
			transport.WriteJSON(w, v)
		default:
			w.WriteHeader(http.StatusOK)
		}
	}
}

// list returns s, or an empty list for nil, which JSON would print as null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
