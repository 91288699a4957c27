package transport

import (
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/job"
)

// WriteReply responds with the result of an asynchronous request, and closes it. The response is compressed as the client of
// this request accepts, as that to the request itself had been.
func (s *Shared) WriteReply(w http.ResponseWriter, r *http.Request, reply *job.Reply) {
	defer reply.Body.Close()
	h := w.Header()
	maps.Copy(h, reply.Header)
	if reply.Code == http.StatusOK && Negotiate(r.Header, h) != Identity {
		c := codingOf(h.Get("Content-Encoding"))
		w.WriteHeader(reply.Code)
		_ = Compress(w, c, func(z io.Writer) error { _, err := io.Copy(z, reply.Body); return err }) // the client may have disconnected
		return
	}
	h["Content-Length"] = []string{strconv.FormatInt(reply.Size, 10)}
	w.WriteHeader(reply.Code)
	slow := s.Writer(w)
	_, _ = io.Copy(&slow, reply.Body) // as above
	slow.End()
}
