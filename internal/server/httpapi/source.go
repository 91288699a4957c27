package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// slowest is the rate in bytes a second below which a body does not count as
// arriving: it bounds how long a client that sends a byte now and then holds memory.
const slowest = 4 << 10

// stalledError is what has come of a body whose client sends no more.
type stalledError struct{ after time.Duration }

func (e stalledError) Error() string {
	return "the request's body did not arrive in time: nothing, or too little, was received for " + e.after.String()
}

// source reads a body from its connection, for as long as the client sends.
type source struct {
	r     io.Reader
	w     http.ResponseWriter
	left  int64 // -1 when only the end will tell
	stall time.Duration
	got   int64
	more  bool      // a read before this one left something
	began time.Time // a body that comes in one or two reads costs no look at the clock
	set   time.Time // when the deadline was moved last
}

func (s *source) begin(w http.ResponseWriter, r *http.Request, stall time.Duration) {
	*s = source{r: r.Body, w: w, left: r.ContentLength, stall: stall}
}

// Read reads what the client has sent.
//
// hot: no allocation, and nothing but the read when the body is complete.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left > 0 {
		s.left -= int64(n)
	}
	switch {
	case err == nil && s.left != 0 && s.stall > 0:
		s.got += int64(n)
		if s.more {
			s.wait()
		}
		s.more = true
	case err != nil && errors.Is(err, os.ErrDeadlineExceeded):
		err = stalledError{s.stall}
	}
	return n, err
}

// wait moves the time until which the next bytes must be there.
func (s *source) wait() {
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	} else if now.Sub(s.set) < s.stall/4 {
		return
	}
	s.set = now
	until := now.Add(s.stall)
	if last := s.began.Add(s.stall + time.Duration(s.got/slowest)*time.Second); last.Before(until) {
		until = last
	}
	// What cannot set a deadline is no connection.
	_ = http.NewResponseController(s.w).SetReadDeadline(until)
}

// arrival is a source as a request's body, for the handlers that read just that.
type arrival struct {
	source
	io.Closer
}

func newArrival(w http.ResponseWriter, r *http.Request, stall time.Duration) *arrival {
	a := &arrival{Closer: r.Body}
	a.begin(w, r, stall)
	return a
}

// readError says why a body cannot be read: any failure is the client's, such as a malformed chunk.
func readError(err error) error {
	_, coded := errors.AsType[*status.Error](err)
	_, late := errors.AsType[stalledError](err)
	if coded || late {
		return err
	}
	return status.Errorf(status.InvalidArg, "failed to read the request: %w", err)
}

// refuse answers a request with err, and reads what is left of it. A client that is
// refused for want of room is told so before it has sent everything.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if !full(err) || r.ProtoMajor != 1 || len(r.Header["Expect"]) > 0 {
		s.drain(w, r, err)
		writeError(w, err)
		return
	}
	c := http.NewResponseController(w)
	early := c.EnableFullDuplex() == nil
	if !early {
		s.drain(w, r, err)
	}
	writeError(w, err)
	if early && c.Flush() == nil {
		s.drain(w, r, err)
	}
}

// full reports whether err is about the bytes in flight.
func full(err error) bool {
	return errors.Is(err, infer.ErrFull) || errors.Is(err, infer.ErrTooLarge)
}

// drain reads what is left of a request that was refused because of err, so that the
// connection can be used again; net/http itself gives up after 256 KiB.
func (s *Server) drain(w http.ResponseWriter, r *http.Request, err error) {
	_, late := errors.AsType[stalledError](err)
	switch {
	case r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody:
		return
	case errors.Is(err, errChunks) || late:
		w.Header().Set("Connection", "close")
		return
	case len(r.Header["Expect"]) > 0 || r.ContentLength > 2*s.maxInput:
		return // a client that still waits to be told must not be told to go on
	}
	// A failure, such as the end of the time for all of it, shows again when net/http reads on.
	_, _ = io.CopyN(io.Discard, r.Body, 2*s.maxInput)
}
