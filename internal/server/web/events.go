package web

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
)

const (
	// maxStreams bounds the pages that are kept up to date.
	maxStreams = 64
	// maxNews bounds the traces told of at a time.
	maxNews = 20
	// tellEvery is how often a page hears something.
	tellEvery = time.Second
	// patience is how long a page may take nothing.
	patience = 10 * time.Second
)

// events keeps a page up to date until it goes or the server does.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		writeError(w, status.Errorf(status.Unavailable, "too many pages are kept up to date, at most %d are", maxStreams))
		return
	}
	if err := s.admit(r, infer.APIMetadata, false); err != nil {
		writeError(w, err)
		return
	}
	f := &feed{w: w, c: http.NewResponseController(w)}
	// What bounds a request does not bound a stream; not every writer has a deadline.
	_ = f.c.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if s.set.Inspector != nil {
		f.newest = newestOf(s.set.Inspector)
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for s.tell(f, r) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.over.Done():
			return
		}
	}
}

// newestOf returns how many traces were stored until now.
func newestOf(i inspect.Inspector) uint64 {
	list, err := i.Traces(&inspect.TraceQuery{Limit: 1})
	if err != nil {
		return 0
	}
	return list.Newest
}

// feed is a stream of events.
type feed struct {
	w      http.ResponseWriter
	c      *http.ResponseController
	newest uint64
	buf    []byte
	broken bool
}

// tell sends what is new and reports whether anybody listens.
func (s *Server) tell(f *feed, r *http.Request) bool {
	_ = f.c.SetWriteDeadline(time.Now().Add(patience))
	f.send("server", s.set.Overview.Server())
	if s.admit(r, infer.APIStatistics, false) == nil {
		f.send("models", s.set.Overview.Models())
	}
	if s.set.Inspector != nil && s.admit(r, infer.APITrace, false) == nil {
		f.news(s.set.Inspector)
	}
	return !f.broken && f.c.Flush() == nil
}

// news tells of the traces that were stored since it did so last, the oldest first.
func (f *feed) news(i inspect.Inspector) {
	list, err := i.Traces(&inspect.TraceQuery{After: f.newest, Limit: maxNews})
	if err != nil {
		return
	}
	f.newest = list.Newest
	for n := len(list.Traces) - 1; n >= 0; n-- {
		f.send("trace", &list.Traces[n])
	}
}

// send sends one event.
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
