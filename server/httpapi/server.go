package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"tutti/core/infer"
	"tutti/core/logs"
	"tutti/core/shm"
	"tutti/core/tensor"
	"tutti/core/tracing"
)

// DefaultMaxInput is how large a request may be when the settings do not say.
const DefaultMaxInput = 64 << 20

// Settings is what a Server is made from.
type Settings struct {
	Infer   infer.Inferer
	Catalog infer.Catalog
	// Alloc provides the memory of input tensors.
	Alloc tensor.Allocator
	Log   *slog.Logger
	// Name, Version and Extensions are what the server says about itself.
	Name, Version string
	Extensions    []string
	// Live tells whether the server is live; nil for always.
	Live func() bool
	// Lifecycle, Tracer and Logs are behind the endpoints of the repository, the trace
	// settings and the log; nil answers these with unsupported.
	Lifecycle infer.Lifecycle
	Tracer    *tracing.Tracer
	Logs      *logs.Log
	// Regions are the clients' shared memory; nil is a registry that is not enabled.
	Regions *shm.Registry
	// MaxInput bounds a request in bytes; 0 for DefaultMaxInput.
	MaxInput int64
}

// Server answers the v2 protocol over HTTP.
type Server struct {
	infer    infer.Inferer
	catalog  infer.Catalog
	alloc    tensor.Allocator
	isLive   func() bool
	maxInput int64
	about    about
	routes   *table
	http     http.Server
	exiting  atomic.Bool

	lifecycle infer.Lifecycle
	tracer    *tracing.Tracer
	logs      *logs.Log
	regions   *shm.Registry
	since     time.Time
	legacyIDs atomic.Uint64
}

var _ http.Handler = (*Server)(nil)

const (
	headerTimeout = time.Minute // how long a client may take to send its headers
	idleTimeout   = 10 * time.Minute
)

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	s := &Server{
		infer:    set.Infer,
		catalog:  set.Catalog,
		alloc:    set.Alloc,
		isLive:   set.Live,
		maxInput: set.MaxInput,
		about:    about{Name: set.Name, Version: set.Version, Extensions: set.Extensions},
		routes:   compile(routes()),

		lifecycle: set.Lifecycle,
		tracer:    set.Tracer,
		logs:      set.Logs,
		regions:   set.Regions,
		since:     time.Now(),
	}
	if s.regions == nil {
		s.regions = shm.NewRegistry(false)
	}
	if s.maxInput <= 0 {
		s.maxInput = DefaultMaxInput
	}
	s.http.Handler = s
	s.http.ReadHeaderTimeout = headerTimeout
	s.http.IdleTimeout = idleTimeout
	if set.Log != nil {
		s.http.ErrorLog = slog.NewLogLogger(set.Log.Handler(), slog.LevelWarn)
	}
	return s
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops accepting and waits for the requests at hand; when ctx is over
// first, it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.exiting.Store(true)
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

// ServeHTTP answers one request.
//
// hot: no allocation.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var t target
	p := s.routes.find(r.URL.Path, &t)
	switch {
	case p == nil:
		writeErrorText(w, http.StatusNotFound, "Not Found")
	case !p.allows(r.Method):
		writeErrorText(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	default:
		p.serve(s, w, r, t)
	}
}
