package httpapi

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// beginner is an http.ResponseWriter that knows whether its response has begun. Package http1 has one.
type beginner interface {
	// Begun reports whether the status is set.
	Begun() bool
}

// recovered, when deferred, logs a panic of a handler and responds with 500. If the response may have begun it closes the
// connection instead, so that no client takes a part of a response for all of it.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // the handler wants the connection closed
	}
	err := recovery.Report(p, s.set.Log, r.Method+" "+r.URL.Path, slog.String("method", r.Method), slog.String("path", r.URL.Path))
	if b, ok := w.(beginner); !ok || b.Begun() {
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	w.Header().Set("Connection", "close") // the rest of the request is unread
	transport.WriteErrorText(w, http.StatusInternalServerError, err.Error())
}
