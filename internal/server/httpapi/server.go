package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/http1"
	"github.com/tutti-server/tutti/internal/server/httpapi/admin"
	"github.com/tutti-server/tutti/internal/server/httpapi/inference"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/server/httpapi/trtis"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Defaults of Settings.
const (
	// DefaultMaxInput is the most bytes of a request.
	DefaultMaxInput = 64 << 20
	// DefaultMaxHeader is the most bytes of a request's header.
	DefaultMaxHeader = 64 << 10
	// DefaultStallTimeout is how long a client may send or read nothing.
	DefaultStallTimeout = time.Minute
)

// Settings is what a Server is made from.
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
	// Lifecycle, Tracer and Logs serve the repository, trace and log endpoints. With nil these respond "not supported".
	Lifecycle infer.Lifecycle
	Tracer    *tracing.Tracer
	Logs      *logs.Log
	// MaxInput is the most bytes of a request, before and after decompression; 0 for DefaultMaxInput.
	MaxInput int64
	// MaxHeader is the most bytes of a request's header; 0 for DefaultMaxHeader.
	MaxHeader int
	// InFlight counts the bytes of all requests and rejects those beyond its limit; nil does neither.
	InFlight *infer.InFlight
	// StallTimeout is how long a client may send nothing of an announced body, or read nothing of a large response; 0 for
	// DefaultStallTimeout, negative for no limit.
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
	// NoFastPath serves every connection with net/http, also those that package http1 could serve.
	NoFastPath bool
}

// Server serves the v2 protocol over HTTP. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. New. ServeHTTP works from now on, for example in tests.
//  2. Serve, for one or more listeners. It blocks.
//  3. Leave, optionally: health reports that the server exits, requests are still served.
//  4. Shutdown, which ends every Serve. It may be called several times.
type Server struct {
	set     Settings
	limits  transport.Limits
	limited infer.Restrictions
	table   *table
	http    http.Server
	plain   *http1.Server // serves plain connections, and shuts http down
	others  atomic.Int64  // connections of net/http
	exiting atomic.Bool

	inference *inference.Service
	admin     *admin.Service
	trtis     *trtis.Service
}

var _ http.Handler = (*Server)(nil)

// uiPath is the path of the dashboard.
const uiPath = "/ui"

const (
	headerTimeout = time.Minute // for the header of a request
	idleTimeout   = 10 * time.Minute
	// http2Window is how much of a body a client may send ahead over HTTP/2.
	http2Window = 1 << 20
)

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	if set.Regions == nil {
		set.Regions = shm.NewRegistry(false)
	}
	if set.MaxInput <= 0 {
		set.MaxInput = DefaultMaxInput
	}
	if set.MaxHeader <= 0 {
		set.MaxHeader = DefaultMaxHeader
	}
	if set.StallTimeout == 0 {
		set.StallTimeout = DefaultStallTimeout
	}
	if set.Live == nil {
		set.Live = func() bool { return true }
	}
	s := &Server{
		set: set, limited: infer.Restrict(set.Restricted),
		limits: transport.Limits{MaxInput: set.MaxInput, Stall: max(set.StallTimeout, 0), InFlight: set.InFlight},
	}
	s.inference = inference.New(inference.Settings{
		Inferer: set.Infer, Catalog: set.Catalog, Alloc: set.Alloc, Regions: set.Regions, Forward: set.Forward, Tracer: set.Tracer,
		Limits: &s.limits,
	})
	s.admin = admin.New(admin.Settings{
		Catalog: set.Catalog, Regions: set.Regions, Lifecycle: set.Lifecycle, Tracer: set.Tracer, Logs: set.Logs,
		Name: set.Name, Version: set.Version, Extensions: set.Extensions, Live: set.Live, Exiting: s.exiting.Load, Limits: &s.limits,
	})
	s.trtis = trtis.New(trtis.Settings{
		Catalog: set.Catalog, Lifecycle: set.Lifecycle, Name: set.Name, Version: set.Version,
		Live: set.Live, Exiting: s.exiting.Load, Admits: s.admits,
	})
	s.table = compile(s.routes())
	s.configureHTTP()
	s.plain = http1.New(&s.http)
	return s
}

// Extensions lists the extensions of the protocol that are served, in Triton's order. As in Triton, generate is not listed.
func Extensions() []string {
	return []string{
		"classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
		"model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
		"statistics", "trace", "logging",
	}
}

// configureHTTP sets the limits and protocols of net/http. http1 takes the times from there.
func (s *Server) configureHTTP() {
	h := &s.http
	h.Handler = s
	h.ReadHeaderTimeout = headerTimeout
	h.ReadTimeout = s.limits.Stall // for the whole request; extended while a body arrives
	h.IdleTimeout = idleTimeout
	h.MaxHeaderBytes = s.set.MaxHeader
	h.TLSConfig = s.set.TLS
	h.ConnState = s.connState
	h.DisableGeneralOptionsHandler = true // OPTIONS * is not part of the API
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	h.HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerConnection: 2 * http2Window,
		MaxReceiveBufferPerStream:     http2Window,
	}
	if s.limits.Stall > 0 {
		h.HTTP2.WriteByteTimeout = s.limits.Stall
	}
	if s.set.Log != nil {
		h.ErrorLog = slog.NewLogLogger(s.set.Log.Handler(), slog.LevelWarn)
	}
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	var err error
	switch {
	case s.http.TLSConfig != nil:
		err = s.http.ServeTLS(l, "", "")
	case s.set.NoFastPath:
		err = s.http.Serve(l)
	default:
		err = s.plain.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connState counts the connections that net/http serves.
func (s *Server) connState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.others.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.others.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// Connections returns the number of open connections.
func (s *Server) Connections() int { return s.plain.Connections() + int(s.others.Load()) }

// Leave makes clients look for another server: health reports that this one exits, and each response closes its connection.
// Requests are served as before.
func (s *Server) Leave() { s.exiting.Store(true) }

// Shutdown stops accepting and waits for the requests in progress. When ctx ends first it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	err := s.plain.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.plain.Close())
	}
	return err
}

// ServeHTTP serves one request.
//
// hot: no allocation.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	if len(r.TransferEncoding) > 0 {
		r.Body = transport.CountChunks(r.Body)
	}
	if s.exiting.Load() {
		w.Header()["Connection"] = transport.Close
	}
	if s.set.UI != nil && isUI(r.URL.Path) {
		s.set.UI.ServeHTTP(w, r)
		return
	}
	var path transport.Path
	p := s.table.find(r.URL.Path, &path)
	switch {
	case p == nil:
		s.reject(w, r, http.StatusNotFound, "Not Found")
	case !s.admits(p.api, r.Header):
		s.reject(w, r, http.StatusForbidden, "This API is restricted, expecting header '"+s.limited.Of(p.api).Key+"'")
	case !p.allows(r.Method):
		w.Header()["Content-Type"] = p.errorType
		s.reject(w, r, http.StatusMethodNotAllowed, "Method Not Allowed")
	case p.infers:
		p.serve(w, r, path)
	default:
		if p.errorType != nil {
			w.Header()["Content-Type"] = p.errorType
		}
		if r.ContentLength != 0 {
			r.Body = s.limits.StallBody(w, r)
		}
		p.serve(w, r, path)
		s.limits.Drain(w, r, nil)
	}
}

// isUI reports whether a path belongs to the dashboard.
func isUI(path string) bool {
	rest, ok := strings.CutPrefix(path, uiPath)
	return ok && (rest == "" || rest[0] == '/')
}

// reject responds to a request that reaches no handler.
func (s *Server) reject(w http.ResponseWriter, r *http.Request, code int, text string) {
	s.limits.Drain(w, r, nil)
	transport.WriteErrorText(w, code, text)
}
