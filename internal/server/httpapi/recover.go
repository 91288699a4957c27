package httpapi

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/tutti-server/tutti/internal/recovery"
)

// begun is an http.ResponseWriter that knows whether any of its response has left.
type begun interface {
	// Begun reports whether the status was sent.
	Begun() bool
}

// recovered, when deferred, logs a panic of a handler and answers 500. Where the response may have begun, it ends the
// connection instead, so that no client takes half a response for a whole one.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // which ends the connection on purpose
	}
	err := recovery.Report(p, s.log, r.Method+" "+r.URL.Path, slog.String("method", r.Method), slog.String("path", r.URL.Path))
	if b, ok := w.(begun); !ok || b.Begun() {
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	w.Header().Set("Connection", "close") // what is left of the request was not read
	writeErrorText(w, http.StatusInternalServerError, err.Error())
}
