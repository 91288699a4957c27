package transport

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// slowestRate is the lowest rate of a body, in bytes per second. It bounds how long a client that sends a byte now and then
// holds memory.
const slowestRate = 4 << 10

// stalledError is the error of a body that the client stopped sending.
type stalledError struct{ after time.Duration }

// Error implements error.
func (e stalledError) Error() string {
	return "the request's body did not arrive in time: nothing, or too little, was received for " + e.after.String()
}

// stallReader reads a body from its connection and extends the read deadline while bytes arrive.
type stallReader struct {
	r     io.Reader
	w     http.ResponseWriter
	left  int64 // -1 when the length is unknown
	stall time.Duration
	got   int64
	more  bool      // an earlier read left bytes to come
	began time.Time // zero until the third read: a body in one or two reads needs no clock
	set   time.Time // when the deadline was last extended
}

func (s *stallReader) begin(w http.ResponseWriter, r *http.Request, stall time.Duration) {
	*s = stallReader{r: r.Body, w: w, left: r.ContentLength, stall: stall}
}

// Read implements io.Reader.
//
// hot: no allocation, and no system call but the read once the body is complete.
func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left > 0 {
		s.left -= int64(n)
	}
	switch {
	case err == nil && s.left != 0 && s.stall > 0:
		s.got += int64(n)
		if s.more {
			s.extend()
		}
		s.more = true
	case err != nil && errors.Is(err, os.ErrDeadlineExceeded):
		err = stalledError{s.stall}
	}
	return n, err
}

// extend moves the deadline for the next bytes, at most to the time at which the body is too slow as a whole.
func (s *stallReader) extend() {
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	} else if now.Sub(s.set) < s.stall/4 {
		return
	}
	s.set = now
	until := now.Add(s.stall)
	if last := s.began.Add(s.stall + time.Duration(s.got/slowestRate)*time.Second); last.Before(until) {
		until = last
	}
	// A writer without deadlines, as in tests, has no connection.
	_ = http.NewResponseController(s.w).SetReadDeadline(until)
}

// stallBody is a stallReader as the body of a request, for handlers that read r.Body.
type stallBody struct {
	stallReader
	io.Closer
}

// StallBody returns r's body with the deadlines of l.
func (l *Limits) StallBody(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	b := &stallBody{Closer: r.Body}
	b.begin(w, r, l.Stall)
	return b
}

// readError returns the error of a failed read. Every failure is the client's, such as a malformed chunk.
func readError(err error) error {
	_, coded := errors.AsType[*status.Error](err)
	_, stalled := errors.AsType[stalledError](err)
	if coded || stalled {
		return err
	}
	return status.Errorf(status.InvalidArg, "failed to read the request: %w", err)
}
