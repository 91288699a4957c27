// Package transport receives request bodies and sends responses for the rooms of the HTTP API.
//
//   - shared.go: Shared, the settings and state that all rooms share
//   - body.go: Body, which bounds and charges what is read; below it reader.go, which gives up on clients that send nothing,
//     counts chunks and decompresses
//   - respond.go: errors and JSON, what happens to the rest of a rejected request, the compression that the client accepts,
//     writing to clients that read slowly
package transport

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/loads"
	"github.com/tutti-server/tutti/internal/server/sites"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Settings is what a server is made from.
type Settings struct {
	Infer   infer.Inferer
	Catalog infer.Catalog
	// Alloc provides the memory of input tensors.
	Alloc tensor.Allocator
	Log   *slog.Logger
	// Name, Version and Extensions are the server metadata.
	Name, Version string
	Extensions    []string
	// Live reports whether the server is live; nil for always.
	Live func() bool
	// Lifecycle, Jobs, Tracer and Logs serve the repository, job, trace and log endpoints. With nil these respond "not
	// supported".
	Lifecycle infer.Lifecycle
	Jobs      job.Service
	// Requests executes inference requests with "Prefer: respond-async" later. With nil, the preference is ignored.
	Requests job.Requests
	// JobPaths are the places that jobs may use. If there are none, clients of this machine may use any.
	JobPaths job.Paths
	Tracer   *tracing.Tracer
	Logs     *logs.Log
	// MaxInput is the most bytes of a request, before and after decompression; 0 for 64 MiB.
	MaxInput int64
	// MaxHeader is the most bytes of a request's header; 0 for 64 KiB.
	MaxHeader int
	// InFlight counts the bytes of all requests and rejects those beyond its limit; nil does neither.
	InFlight *infer.InFlight
	// StallTimeout is how long a client may send nothing of an announced body, or read nothing of a large response; 0 for
	// one minute, negative for no limit.
	StallTimeout time.Duration
	// Regions are the clients' shared memory; nil disables it.
	Regions *shm.Registry
	// TLS encrypts every connection, see certs.Load; nil for plain text.
	TLS *tls.Config
	// Forward selects the headers of inference requests that become parameters, by a match anywhere in the name. Triton's
	// patterns ignore case: compile them with (?i). Nil for none.
	Forward *regexp.Regexp
	// UI serves everything under /ui/; nil for 404. It must not modify the header of its requests (see package http1).
	UI http.Handler
	// Restricted lists the parts of the API that need a header, each part at most once.
	Restricted []infer.Restriction
	// Guard decides who may use what, and writes the audit log. Nil: everybody may use everything.
	Guard *identity.Guard
	// Load counts inference requests and reports the load; nil for that of the HTTP server alone.
	Load *loads.Meter
	// Shares tells clients apart; nil does not.
	Shares *infer.Shares
	// Sites decides which web pages may change the server. Nil: those of the server itself.
	Sites *sites.Policy
	// NoTextAPI leaves out the routes of other servers, such as /v1/embeddings.
	NoTextAPI bool
	// Tools serves models as tools of the Model Context Protocol.
	Tools bool
	// NoFastPath serves every connection with net/http, also those that package http1 could serve.
	NoFastPath bool
}

// Shared is the settings and the state that the rooms share. It is safe for concurrent use.
type Shared struct {
	Settings
	// Leaving is set when the server was told to stop, and requests are still served as before: it is live, and not ready.
	Leaving atomic.Bool
	// Closing is set when each response closes its connection.
	Closing atomic.Bool
	// Exiting is set while the server serves its last requests.
	Exiting atomic.Bool
	// Streams are the open streams of responses.
	Streams Streams
	// Restrictions are the restricted parts of the API.
	Restrictions infer.Restrictions

	clientHeader string // the header that tells clients apart, as net/http has it
}

// NewShared returns a Shared with defaults for the settings that are zero.
func NewShared(set Settings) *Shared {
	if set.Regions == nil {
		set.Regions = shm.NewRegistry(false)
	}
	if set.Load == nil {
		set.Load = new(loads.Meter)
	}
	if set.MaxInput <= 0 {
		set.MaxInput = 64 << 20
	}
	if set.MaxHeader <= 0 {
		set.MaxHeader = 64 << 10
	}
	if set.StallTimeout == 0 {
		set.StallTimeout = time.Minute
	}
	set.StallTimeout = max(set.StallTimeout, 0)
	if set.Live == nil {
		set.Live = func() bool { return true }
	}
	return &Shared{Settings: set, Restrictions: infer.Restrict(set.Restricted), clientHeader: http.CanonicalHeaderKey(set.Shares.Header())}
}

// Client returns the client of a request, nil where clients are not told apart.
//
// hot: one comparison where they are not.
func (s *Shared) Client(r *http.Request) *infer.Client {
	if s.Shares == nil {
		return nil
	}
	return s.Shares.Of(r.Header[s.clientHeader], identity.From(r.Context()).Label(), r.RemoteAddr, telemetry.Now())
}

// Admits reports whether a request with this header may use a part of the API.
//
// hot: no allocation.
func (s *Shared) Admits(a infer.API, h http.Header) bool {
	want := s.Restrictions.Of(a)
	return want == nil || want.Met(h.Get(want.Key))
}

// Path holds the variable parts of a request's path.
type Path struct {
	Model   string
	Version string
	Name    string // of a repository or a shared memory region
}

// Handler serves the requests of a route.
type Handler func(w http.ResponseWriter, r *http.Request, p Path)
