// Package httpapi serves the KServe v2 protocol and Triton's extensions of it over HTTP.
//
// This package has the server and the table of routes. Its rooms, each of which imports only those before it:
//
//   - jsonwire: JSON as RapidJSON reads and prints it
//   - transport: request bodies from the connection, errors and responses to it
//   - tensorjson: tensor elements in JSON
//   - inference, admin, textapi, trtis, tools: the handlers; none imports another
//
// A request passes server.go, which finds its row in the table of routes.go and checks that it may use it, and the handler. For example,
// POST /v2/models/m/infer is inference.Service.Infer: transport.Body reads and bounds the body, jsonwire parses its JSON,
// tensorjson fills the input tensors, infer.Inferer executes, and the response is encoded into one buffer.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/server/http1"
	"github.com/tutti-server/tutti/internal/server/httpapi/inference"
	"github.com/tutti-server/tutti/internal/server/httpapi/textapi"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// Settings is what a Server is made from.
type Settings = transport.Settings

// Server serves the v2 protocol over HTTP. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. New. ServeHTTP works from now on, for example in tests.
//  2. Serve, for one or more listeners. It blocks.
//  3. Announce and Leave, optionally: health reports that the server exits, requests are still served.
//  4. Shutdown, which ends every Serve. It may be called several times.
type Server struct {
	shared *transport.Shared
	infers *inference.Service
	table  *table
	http   http.Server
	plain  *http1.Server // serves plain connections, and shuts http down
	others atomic.Int64  // connections of net/http
	cut    sync.Once     // of the streams
}

// http2Window is how much of a body a client may send ahead over HTTP/2.
const http2Window = 1 << 20

// New returns a server that does not listen yet.
func New(set Settings) *Server {
	s := &Server{shared: transport.NewShared(set)}
	s.infers = inference.New(s.shared)
	var texts *textapi.Service
	if !set.NoTextAPI {
		texts = textapi.New(s.shared)
	}
	s.table = compile(routes(s.shared, s.infers, texts))
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
	h.ReadHeaderTimeout = time.Minute
	h.ReadTimeout = s.shared.StallTimeout // for the whole request; extended while a body arrives
	h.IdleTimeout = 10 * time.Minute
	h.MaxHeaderBytes = s.shared.MaxHeader
	h.TLSConfig = s.shared.TLS
	h.ConnState = s.connState
	h.DisableGeneralOptionsHandler = true // OPTIONS * is not part of the API
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	h.HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerConnection: 2 * http2Window, MaxReceiveBufferPerStream: http2Window, WriteByteTimeout: s.shared.StallTimeout,
	}
	if s.shared.Log != nil {
		h.ErrorLog = slog.NewLogLogger(s.shared.Log.Handler(), slog.LevelWarn)
	}
}

// Serve accepts connections on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	var err error
	switch {
	case s.http.TLSConfig != nil:
		err = s.http.ServeTLS(l, "", "")
	case s.shared.NoFastPath:
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

// Replay executes a stored inference request as the endpoint of inference does, and returns the response, whose body the caller
// closes.
func (s *Server) Replay(ctx context.Context, req *job.Request) *job.Reply {
	return s.infers.Replay(ctx, req)
}

// Leave makes clients look for another server: health reports that this one exits, and each response closes its connection.
// Requests are served as before.
func (s *Server) Leave() {
	s.shared.Exiting.Store(true)
	s.shared.Closing.Store(true)
}

// HandOver makes each response close its connection, and leaves health as it is: another process serves at the same address.
func (s *Server) HandOver() { s.shared.Closing.Store(true) }

// Announce makes health report that the server stops soon. Requests are served as before, and connections kept.
func (s *Server) Announce() { s.shared.Leaving.Store(true) }

// cutTime bounds the time in which streams that are cut off get their last event.
const cutTime = time.Second

// Shutdown stops accepting and waits for the requests in progress. When ctx ends first it closes their connections, after streams
// have got an error as their last event.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.shared.Closing.Load() {
		s.Leave()
	}
	err := s.plain.Shutdown(ctx)
	if err != nil {
		s.cut.Do(func() { s.shared.Streams.Cut(cutTime) })
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
	if s.shared.Closing.Load() {
		w.Header()["Connection"] = transport.Close
	}
	if at := r.URL.Path; s.shared.UI != nil && (at == "/ui" || strings.HasPrefix(at, "/ui/")) {
		s.shared.UI.ServeHTTP(w, r)
		return
	}
	var path transport.Path
	p := s.table.find(r.URL.Path, &path)
	if p != nil && s.shared.Guard.Required() {
		if r = s.identify(w, r, p, path); r == nil {
			return
		}
	}
	switch {
	case p == nil && r.URL.Path == "/" && r.Method == http.MethodGet:
		s.root(w, r)
	case p == nil:
		s.reject(w, r, transport.FormV2, http.StatusNotFound, errNoPath)
	case !s.shared.Admits(p.api, r.Header):
		s.shared.Drain(w, r, nil)
		p.form.WriteAs(w, http.StatusForbidden, status.Reasonf(status.PermissionDenied, "This API is restricted, expecting header '%s'", s.shared.Restrictions.Of(p.api).Key))
	case !p.allows(r.Method):
		w.Header()["Content-Type"] = p.errorType
		s.reject(w, r, p.form, http.StatusMethodNotAllowed, errMethod)
	case p.infers && len(r.Header["Prefer"]) > 0 && s.shared.Guard.Audits():
		s.record(w, r, p, path)
	case p.infers:
		p.serve(w, r, path)
	case p.controls && s.refuseChange(w, r, p, path):
	default:
		if p.errorType != nil {
			w.Header()["Content-Type"] = p.errorType
		}
		if r.ContentLength != 0 {
			r.Body = s.shared.StallBody(w, r)
		}
		if p.changes(r) && s.shared.Guard.Audits() {
			s.record(w, r, p, path)
		} else {
			p.serve(w, r, path)
		}
		s.shared.Drain(w, r, nil)
	}
}

// The errors of requests that reach no handler.
var (
	errNoPath = status.Errorf(status.NotFound, "Not Found")
	errMethod = status.Errorf(status.Unsupported, "Method Not Allowed")
)

// reject responds to a request that reaches no handler.
func (s *Server) reject(w http.ResponseWriter, r *http.Request, form transport.ErrorForm, code int, err error) {
	s.shared.Drain(w, r, nil)
	form.WriteAs(w, code, err)
}

// recovered, when deferred, logs a panic of a handler and responds with 500. If the response may have begun it closes the
// connection instead, so that no client takes a part of a response for all of it. The writer of package http1 knows.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the handler wants the connection closed
	}
	err := recovery.Report(p, s.shared.Log, r.Method+" "+r.URL.Path, slog.String("method", r.Method), slog.String("path", r.URL.Path))
	if b, ok := w.(interface{ Begun() bool }); !ok || b.Begun() {
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	w.Header().Set("Connection", "close") // the rest of the request is unread
	form := transport.FormV2
	if p := s.table.find(r.URL.Path, new(transport.Path)); p != nil {
		form = p.form
	}
	form.WriteAs(w, http.StatusInternalServerError, err)
}
