package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
)

// The response to GET /: where a reader goes on. It names no models and no version, which may be restricted.
const (
	rootText = "{" + rootRest
	// rootWithPages is that of a server with a dashboard.
	rootWithPages = `{"dashboard":"/ui/",` + rootRest

	rootRest = `"metadata":"/v2","ready":"/v2/health/ready","live":"/v2/health/live","docs":"https://github.com/tutti-server/tutti/tree/main/docs"}`
)

// root serves GET /, which Triton responds to with 404 and which none of its clients sends. A browser is sent to the
// dashboard, others get the addresses.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	s.shared.Drain(w, r, nil)
	h := w.Header()
	text := rootText
	if s.shared.UI != nil {
		text = rootWithPages
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			h["Location"] = []string{"ui/"} // relative: a proxy may have put a path before it
			h["Content-Length"] = []string{"0"}
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
	}
	h["Content-Type"] = transport.JSONType
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}
