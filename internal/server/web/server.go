package web

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

// Settings is what a Server is made from.
type Settings struct {
	// Inspector is nil when no traces are stored.
	Inspector inspect.Inspector
	Overview  inspect.Overview
	// Captures is nil when no tensors are kept.
	Captures inspect.Captures
	// Lifecycle is nil when models are not to be loaded here.
	Lifecycle infer.Lifecycle
	// Token lets its sender change things; nobody does when it is empty.
	Token string
	// Restricted lists the categories of the API that are not for everybody.
	Restricted []infer.Restriction
	// Pages answers everything below the mount point but api/; nil when there is none.
	Pages http.Handler

	_ struct{}
}

// Server answers below its mount point, of which requests have kept the path.
type Server struct {
	set     Settings
	limited infer.Restrictions
	routes  *http.ServeMux
	streams atomic.Int32
	over    context.Context //nolint:containedctx // ends the streams, which last longer than any request
	stop    context.CancelFunc
}

var _ http.Handler = (*Server)(nil)

// Mount is where the server is.
const Mount = "/ui/"

// maxBody bounds what a client may send.
const maxBody = 64 << 10

// New returns a server.
func New(set Settings) *Server {
	s := &Server{set: set, limited: infer.Restrict(set.Restricted), routes: http.NewServeMux()}
	s.over, s.stop = context.WithCancel(context.Background())
	read := func(path string, a infer.API, f answer) {
		s.routes.HandleFunc("GET "+Mount+"api/"+path, s.handler(a, false, f))
	}
	read("server", infer.APIMetadata, s.server)
	read("session", infer.APINone, s.session)
	read("models", infer.APIStatistics, s.models)
	read("graph/{model}", infer.APIModelConfig, s.graph)
	read("traces", infer.APITrace, s.traces)
	read("traces/{id}", infer.APITrace, s.trace)
	read("batches/{id}", infer.APITrace, s.batch)
	read("sampling", infer.APITrace, s.sampling)
	s.captureRoutes()
	s.routes.HandleFunc("PUT "+Mount+"api/sampling", s.handler(infer.APITrace, true, s.setSampling))
	s.routes.HandleFunc("POST "+Mount+"api/models/{model}/load", s.handler(infer.APIModelRepository, true, s.load))
	s.routes.HandleFunc("POST "+Mount+"api/models/{model}/unload", s.handler(infer.APIModelRepository, true, s.unload))
	s.routes.HandleFunc("GET "+Mount+"api/events", s.events)
	s.routes.HandleFunc(Mount+"api/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, status.Errorf(status.NotFound, "there is no such address"))
	})
	// Relative, so that a path before the mount point stays.
	s.routes.Handle("GET "+strings.TrimSuffix(Mount, "/"), away(strings.TrimPrefix(Mount, "/")))
	if set.Pages != nil {
		s.routes.Handle(Mount, set.Pages)
	}
	return s
}

// away sends a client to another address. http.Redirect would make it absolute.
func away(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// Close ends the streams of events.
func (s *Server) Close() { s.stop() }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	s.routes.ServeHTTP(w, r)
}

// answer answers one kind of request with something that has a JSON form, a text or a file.
type answer func(r *http.Request) (any, error)

// plain is an answer that is text.
type plain string

// handler lets those ask who may, and writes the answer.
func (s *Server) handler(a infer.API, changes bool, f answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.admit(r, a, changes); err != nil {
			writeError(w, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := f(r)
		if err != nil {
			writeError(w, err)
			return
		}
		if f, ok := v.(*file); ok {
			f.send(w)
			return
		}
		if text, ok := v.(plain); ok {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(text)) // a client that has gone gets nothing
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// forbiddenError is what is not allowed.
type forbiddenError string

func (e forbiddenError) Error() string { return string(e) }

// admit says why a request is not allowed, nil when it is.
func (s *Server) admit(r *http.Request, a infer.API, changes bool) error {
	if want := s.limited.Of(a); want != nil && !want.Met(r.Header.Get(want.Key)) {
		return forbiddenError("This API is restricted, expecting header '" + want.Key + "'")
	}
	switch {
	case !changes || s.admitted(r):
		return nil
	case s.set.Token == "":
		return forbiddenError("the dashboard is read-only: the server has no --dashboard-token")
	}
	return forbiddenError("this needs the dashboard's token, expecting header 'Authorization: Bearer TOKEN'")
}

// admitted reports whether a request has the token.
func (s *Server) admitted(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.set.Token != "" && subtle.ConstantTimeCompare([]byte(got), []byte(s.set.Token)) == 1
}

func writeError(w http.ResponseWriter, err error) {
	code := status.CodeOf(err).HTTP()
	if _, ok := err.(forbiddenError); ok { //nolint:errorlint // never wrapped
		code = http.StatusForbidden
	}
	writeJSON(w, code, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b, code = []byte(`{"error":"the answer has no JSON form"}`), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b) // a client that has gone gets nothing
}
