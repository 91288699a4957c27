package transport

import (
	"context"
	"net/http"
)

// eventType is the Content-Type of server-sent events, shared like the others.
var eventType = []string{"text/event-stream; charset=utf-8"}

// EventWriter writes server-sent events. A client that reads nothing holds the model back, so each event must be read within the stall time.
// The handler's goroutine owns it. Send is called for each event, then End.
type EventWriter struct {
	W http.ResponseWriter

	cancel context.CancelFunc // cancels the request
	slow   Writer
	begun  bool
	broken bool // the client has disconnected, or the handler has given up
}

// EventWriter returns an EventWriter to w. cancel cancels the request, when its client has disconnected.
func (s *Shared) EventWriter(w http.ResponseWriter, cancel context.CancelFunc) EventWriter {
	return EventWriter{W: w, cancel: cancel, slow: s.Writer(w)}
}

// Begun reports whether an event was sent.
func (e *EventWriter) Begun() bool { return e.begun }

// Broken reports whether no further event may be sent.
func (e *EventWriter) Broken() bool { return e.broken }

// Send sends an event, "data: ...\n\n". The first one has the status. An error of the connection cancels the request.
func (e *EventWriter) Send(event []byte, code int) {
	if e.broken {
		return
	}
	if !e.begun {
		e.begun = true
		e.W.Header()["Content-Type"] = eventType
		e.W.WriteHeader(code)
	}
	_, err := e.slow.Write(event)
	if err == nil {
		err = http.NewResponseController(e.W).Flush()
	}
	if err != nil {
		e.Break()
	}
}

// Break cancels the request: no further event is sent.
func (e *EventWriter) Break() {
	e.broken = true
	e.cancel()
}

// End completes the stream, also one without an event.
func (e *EventWriter) End() {
	if !e.begun {
		e.W.Header()["Content-Type"] = eventType
		return
	}
	e.slow.End()
}
