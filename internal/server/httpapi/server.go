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
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

// What holds when the settings do not say.
const (
	// DefaultMaxInput is how large a request may be.
	DefaultMaxInput = 64 << 20
	// DefaultMaxHeader is how large a request's header may be.
	DefaultMaxHeader = 64 << 10
	// DefaultStallTimeout is how long a client may send or take nothing.
	DefaultStallTimeout = time.Minute
)

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
	// MaxInput bounds a request in bytes, before and after decompression; 0 for DefaultMaxInput.
	MaxInput int64
	// MaxHeader bounds a request's header in bytes; 0 for DefaultMaxHeader.
	MaxHeader int
	// InFlight counts the bytes of requests, and refuses those beyond its limit; nil for neither.
	InFlight *infer.InFlight
	// StallTimeout is how long a client may send nothing of a body that it has
	// announced, or take nothing of a large answer; 0 for DefaultStallTimeout,
	// negative for ever.
	StallTimeout time.Duration
	// Regions are the clients' shared memory; nil is a registry that is not enabled.
	Regions *shm.Registry
	// TLS, as from certs.Load, encrypts every connection; nil for none.
	TLS *tls.Config
	// Forward makes parameters of the headers of an inference request whose name it
	// matches anywhere; Triton's patterns ignore case: compile them with (?i). Nil for none.
	Forward *regexp.Regexp
	// UI answers everything under /ui/; nil for nothing there.
	UI http.Handler
	// Restricted lists the categories that are not for everybody, each at most once.
	Restricted []infer.Restriction
	// NoFastPath serves every connection with net/http, also those that package http1 could serve.
	NoFastPath bool
}

// Server answers the v2 protocol over HTTP.
type Server struct {
	infer    infer.Inferer
	catalog  infer.Catalog
	alloc    tensor.Allocator
	isLive   func() bool
	maxInput int64
	inFlight *infer.InFlight
	stall    time.Duration // 0 for ever
	regions  *shm.Registry
	forward  *regexp.Regexp
	limited  infer.Restrictions
	about    about
	routes   *table
	ui       http.Handler
	http     http.Server
	plain    *http1.Server // serves plain connections, and shuts http down

	noFastPath bool
	others     atomic.Int64 // connections that net/http has
	exiting    atomic.Bool

	lifecycle infer.Lifecycle
	tracer    *tracing.Tracer
	logs      *logs.Log
	log       *slog.Logger
	since     time.Time
	legacyIDs atomic.Uint64
}

var _ http.Handler = (*Server)(nil)

// uiPath begins the addresses that are not of the protocol.
const uiPath = "/ui"

const (
	headerTimeout = time.Minute // how long a client may take to send its headers
	idleTimeout   = 10 * time.Minute
	// http2Window is how much of a body HTTP/2 lets a client send ahead.
	http2Window = 1 << 20
)

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	s := &Server{
		infer:    set.Infer,
		catalog:  set.Catalog,
		alloc:    set.Alloc,
		isLive:   set.Live,
		maxInput: set.MaxInput,
		inFlight: set.InFlight,
		stall:    set.StallTimeout,
		forward:  set.Forward,
		limited:  infer.Restrict(set.Restricted),
		about:    about{Name: set.Name, Version: set.Version, Extensions: set.Extensions},
		routes:   compile(routes()),
		ui:       set.UI,

		lifecycle: set.Lifecycle,
		tracer:    set.Tracer,
		logs:      set.Logs,
		log:       set.Log,
		regions:   set.Regions,

		noFastPath: set.NoFastPath,
		since:      time.Now(),
	}
	if s.regions == nil {
		s.regions = shm.NewRegistry(false)
	}
	if s.maxInput <= 0 {
		s.maxInput = DefaultMaxInput
	}
	switch {
	case s.stall == 0:
		s.stall = DefaultStallTimeout
	case s.stall < 0:
		s.stall = 0
	}
	s.listenSettings(&set)
	s.plain = http1.New(&s.http)
	return s
}

// listenSettings prepares what net/http does for the server.
func (s *Server) listenSettings(set *Settings) {
	h := &s.http
	h.Handler = s
	h.ReadHeaderTimeout = headerTimeout
	h.ReadTimeout = s.stall // for the whole request, and moved on while a body arrives
	h.IdleTimeout = idleTimeout
	h.MaxHeaderBytes = set.MaxHeader
	if h.MaxHeaderBytes <= 0 {
		h.MaxHeaderBytes = DefaultMaxHeader
	}
	h.TLSConfig = set.TLS
	h.ConnState = s.connState
	h.DisableGeneralOptionsHandler = true // there is no OPTIONS * here
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	h.HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerConnection: 2 * http2Window,
		MaxReceiveBufferPerStream:     http2Window,
	}
	if s.stall > 0 {
		h.HTTP2.WriteByteTimeout = s.stall
	}
	if set.Log != nil {
		h.ErrorLog = slog.NewLogLogger(set.Log.Handler(), slog.LevelWarn)
	}
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	var err error
	switch {
	case s.http.TLSConfig != nil:
		err = s.http.ServeTLS(l, "", "")
	case s.noFastPath:
		err = s.http.Serve(l)
	default:
		err = s.plain.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// connState counts the connections of net/http.
func (s *Server) connState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.others.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.others.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// Connections returns how many connections are open.
func (s *Server) Connections() int { return s.plain.Connections() + int(s.others.Load()) }

// Leave has clients look for another server: health says that this one exits, and each response closes its connection.
// Requests are served as before.
func (s *Server) Leave() { s.exiting.Store(true) }

// Shutdown stops accepting and waits for the requests at hand; when ctx is over
// first, it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Leave()
	err := s.plain.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.plain.Close())
	}
	return err
}

// ServeHTTP answers one request.
//
// hot: no allocation.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	if len(r.TransferEncoding) > 0 {
		r.Body = newChunks(r.Body)
	}
	if s.exiting.Load() {
		w.Header()["Connection"] = closeValue
	}
	if s.ui != nil && ofUI(r.URL.Path) {
		s.ui.ServeHTTP(w, r)
		return
	}
	var t target
	p := s.routes.find(r.URL.Path, &t)
	switch {
	case p == nil:
		s.reject(w, r, http.StatusNotFound, "Not Found")
	case !s.admits(p.api, r.Header):
		s.reject(w, r, http.StatusForbidden, "This API is restricted, expecting header '"+s.limited.Of(p.api).Key+"'")
	case !p.allows(r.Method):
		w.Header()["Content-Type"] = p.errorType
		s.reject(w, r, http.StatusMethodNotAllowed, "Method Not Allowed")
	case p.infers:
		p.serve(s, w, r, t)
	default:
		if p.errorType != nil {
			w.Header()["Content-Type"] = p.errorType
		}
		if r.ContentLength != 0 {
			r.Body = newArrival(w, r, s.stall)
		}
		p.serve(s, w, r, t)
		s.drain(w, r, nil)
	}
}

// ofUI reports whether a path is that of the dashboard or below it.
func ofUI(path string) bool {
	rest, ok := strings.CutPrefix(path, uiPath)
	return ok && (rest == "" || rest[0] == '/')
}

// reject answers a request that no handler sees.
func (s *Server) reject(w http.ResponseWriter, r *http.Request, code int, text string) {
	s.drain(w, r, nil)
	writeErrorText(w, code, text)
}
