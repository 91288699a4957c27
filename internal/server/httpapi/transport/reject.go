package transport

import (
	"errors"
	"io"
	"net/http"

	"github.com/tutti-server/tutti/core/infer"
)

// Reject responds with err and reads the rest of the request. When err is about the bytes in flight, the response is sent
// first: the client may have much left to send, and can stop.
func (l *Limits) Reject(w http.ResponseWriter, r *http.Request, err error) {
	if !overloaded(err) || r.ProtoMajor != 1 || len(r.Header["Expect"]) > 0 {
		l.Drain(w, r, err)
		WriteError(w, err)
		return
	}
	c := http.NewResponseController(w)
	early := c.EnableFullDuplex() == nil
	if !early {
		l.Drain(w, r, err)
	}
	WriteError(w, err)
	if early && c.Flush() == nil {
		l.Drain(w, r, err)
	}
}

// overloaded reports whether err is about the bytes in flight.
func overloaded(err error) bool {
	return errors.Is(err, infer.ErrFull) || errors.Is(err, infer.ErrTooLarge)
}

// Drain reads the rest of a request, so that the connection can serve the next one; net/http itself gives up after 256 KiB. err
// is the error of the request, nil for none: after some the connection closes instead.
func (l *Limits) Drain(w http.ResponseWriter, r *http.Request, err error) {
	_, stalled := errors.AsType[stalledError](err)
	switch {
	case r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody:
		return
	case errors.Is(err, errChunks) || stalled:
		w.Header().Set("Connection", "close")
		return
	case len(r.Header["Expect"]) > 0 || r.ContentLength > 2*l.MaxInput:
		return // reading would send "100 Continue" to a client that waits for it
	}
	// A failure, such as the read timeout, shows again when net/http reads on.
	_, _ = io.CopyN(io.Discard, r.Body, 2*l.MaxInput)
}
