package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

const (
	// maxStreams bounds the concurrent event streams.
	maxStreams = 64
	// maxTraceEvents bounds the traces sent per update.
	maxTraceEvents = 20
	// updateInterval is the time between two updates of a page.
	updateInterval = time.Second
	// writeTimeout ends a stream whose client stops reading.
	writeTimeout = 10 * time.Second
)

// events sends updates to a page until the client disconnects or the server closes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		writeError(w, status.Errorf(status.Unavailable, "too many event streams, at most %d may be open", maxStreams))
		return
	}
	if err := s.admit(r, infer.APIMetadata, false); err != nil {
		writeError(w, err)
		return
	}
	f := &feed{w: w, c: http.NewResponseController(w)}
	// A stream outlives the server's read timeout. A writer without deadlines returns an error, which is ignored.
	_ = f.c.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if s.set.Inspector != nil {
		if list, err := s.set.Inspector.Traces(&inspect.TraceQuery{Limit: 1}); err == nil {
			f.newest = list.Newest
		}
	}
	tick := time.NewTicker(updateInterval)
	defer tick.Stop()
	for s.update(f, r) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.closing.Done():
			return
		}
	}
}

// feed is a stream of server-sent events to one client.
type feed struct {
	w      http.ResponseWriter
	c      *http.ResponseController
	newest uint64
	buf    []byte
	broken bool
}

// update sends the current state and the new traces. It reports whether the client still reads.
func (s *Server) update(f *feed, r *http.Request) bool {
	_ = f.c.SetWriteDeadline(time.Now().Add(writeTimeout))
	f.send("server", s.set.Overview.Server())
	if s.admit(r, infer.APIStatistics, false) == nil {
		f.send("models", s.set.Overview.Models())
	}
	if s.set.Inspector != nil && s.admit(r, infer.APITrace, false) == nil {
		if list, err := s.set.Inspector.Traces(&inspect.TraceQuery{After: f.newest, Limit: maxTraceEvents}); err == nil {
			f.newest = list.Newest
			for i := range slices.Backward(list.Traces) { // oldest first
				f.send("trace", &list.Traces[i])
			}
		}
	}
	return !f.broken && f.c.Flush() == nil
}

// send writes one event. After a failed write it does nothing.
func (f *feed) send(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil || f.broken {
		return
	}
	f.buf = append(append(f.buf[:0], "event: "...), name...)
	f.buf = append(append(append(f.buf, "\ndata: "...), b...), "\n\n"...)
	_, err = f.w.Write(f.buf)
	f.broken = err != nil
}
