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

// Settings configures a Server. Overview is required.
type Settings struct {
	// Inspector reads stored traces. Optional: nil when no traces are stored.
	Inspector inspect.Inspector
	Overview  inspect.Overview
	// Captures reads and changes captures. Optional: nil when no tensors are stored.
	Captures inspect.Captures
	// Lifecycle loads and unloads models. Optional: nil when the dashboard may not.
	Lifecycle infer.Lifecycle
	// Token authorizes changes. When it is empty, every change is refused.
	Token string
	// Restricted lists the protected categories of the API, each with the header that opens it.
	Restricted []infer.Restriction
	// Pages serves everything below the mount point except api/. Optional.
	Pages http.Handler

	_ struct{}
}

// Server handles requests below Mount, with their full paths. It is safe for concurrent use. Close ends its event
// streams.
type Server struct {
	set     Settings
	limited infer.Restrictions
	routes  *http.ServeMux
	streams atomic.Int32
	closing context.Context //nolint:containedctx // ends the streams, which last longer than any request
	stop    context.CancelFunc
}

var _ http.Handler = (*Server)(nil)

// Mount is the path below which the server is mounted.
const Mount = "/ui/"

// maxBody bounds the size of a request body.
const maxBody = 64 << 10

// New returns a server. The caller must close it.
func New(set Settings) *Server {
	s := &Server{set: set, limited: infer.Restrict(set.Restricted), routes: http.NewServeMux()}
	s.closing, s.stop = context.WithCancel(context.Background())
	read := func(path string, a infer.API, f endpoint) {
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
	// A relative address keeps a path prefix before the mount point.
	s.routes.Handle("GET "+strings.TrimSuffix(Mount, "/"), redirect(strings.TrimPrefix(Mount, "/")))
	if set.Pages != nil {
		s.routes.Handle(Mount, set.Pages)
	}
	return s
}

// redirect sends a client to another address. It keeps the address relative; http.Redirect would make it absolute.
func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// Close ends the event streams. It may be called twice.
func (s *Server) Close() { s.stop() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	s.routes.ServeHTTP(w, r)
}

// endpoint handles one kind of request. Its result is a *file, a plain text, or a value that is encoded as JSON.
type endpoint func(r *http.Request) (any, error)

// plain is a text response.
type plain string

// handler checks the caller's rights, calls f and writes the response. a is the category that restrictions may
// protect; with changes, the request needs the token.
func (s *Server) handler(a infer.API, changes bool, f endpoint) http.HandlerFunc {
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
			_, _ = w.Write([]byte(text)) // an error means that the client has disconnected
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// forbiddenError is the reason of a response with status 403.
type forbiddenError string

func (e forbiddenError) Error() string { return string(e) }

// admit returns an error when the caller may not send the request.
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

// admitted reports whether a request has the token. The comparison takes constant time.
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
		b, code = []byte(`{"error":"the response cannot be encoded as JSON"}`), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b) // a client that has gone gets nothing
}
