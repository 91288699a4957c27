package http1

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/internal/pool"
)

const (
	// gatherSize is up to what size an answer leaves in one piece.
	gatherSize = 8 << 10
	// heldLimit is how much of an answer is kept until its length is known, and the request's body is read; beyond, it goes
	// in chunks, and what is left of the request is dealt with.
	heldLimit = 2 << 10
)

var gathers = pool.Of[[]byte]{New: func() *[]byte {
	b := make([]byte, 0, gatherSize+gatherSize/4)
	return &b
}}

// answer is the http.ResponseWriter of one request after the other.
type answer struct {
	c      *conn
	header http.Header
	out    *[]byte // what has not been sent; nil between requests
	keys   []string
	now    time.Time
	code   int   // 0 until the head is decided
	size   int64 // of the body, -1 when unknown
	body   int64 // how much there was so far
	held   []byte
	sent   bool // the head is in out, or gone
	chunks bool
	close  bool
	duplex bool  // the handler reads on after it has answered
	spent  bool  // the connection has ended with the request
	err    error // of the connection
}

var (
	_ http.ResponseWriter = (*answer)(nil)
	_ http.Flusher        = (*answer)(nil)
)

func (a *answer) begin(now time.Time, last bool) {
	a.out = gathers.Get()
	*a.out = (*a.out)[:0]
	clear(a.header)
	a.now, a.code, a.size, a.body, a.held = now, 0, -1, 0, a.held[:0]
	a.sent, a.chunks, a.close, a.duplex, a.spent, a.err = false, false, last, false, false, nil
}

// Header returns the header to send.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader decides the answer's status.
func (a *answer) WriteHeader(code int) {
	switch {
	case code < 100 || code > 999:
		panic("invalid WriteHeader code " + strconv.Itoa(code))
	case a.code != 0 || code < 200: // once decided; what comes before it nobody here sends
		return
	}
	a.code = code
	if v := a.header["Content-Length"]; len(v) == 1 && !a.bodiless() {
		a.size = digits(v[0])
	}
}

// Begun reports whether the status is decided, so that no other can be sent.
func (a *answer) Begun() bool { return a.code != 0 }

// bodiless tells of an answer that has no body by its status.
func (a *answer) bodiless() bool {
	return a.code == http.StatusNoContent || a.code == http.StatusNotModified
}

// Write sends a part of the body.
//
// hot: no allocation.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body += int64(len(p))
	switch {
	case len(p) == 0:
		return 0, a.err
	case a.bodiless():
		return 0, http.ErrBodyNotAllowed
	case a.size >= 0 && a.body > a.size:
		a.close = true
		return 0, http.ErrContentLength
	case (a.size < 0 || a.c.body.left > 0 && !a.duplex) && !a.sent && len(a.held)+len(p) <= heldLimit: // the body may be read yet
		a.held = append(a.held, p...)
		return len(p), nil
	}
	a.start(false, p)
	a.part(p)
	if a.err != nil {
		return 0, a.err
	}
	return len(p), nil
}

// start sends the head, and what was held back. next follows at once; done says that nothing does.
func (a *answer) start(done bool, next []byte) {
	if a.sent {
		return
	}
	a.sent = true
	if !a.duplex {
		a.drain()
	}
	if a.size < 0 && !a.bodiless() {
		if done {
			a.size = int64(len(a.held))
		} else {
			a.chunks = true
		}
	}
	*a.out = a.appendHead(*a.out, next)
	if len(a.held) > 0 {
		a.part(a.held)
		a.held = a.held[:0]
	}
}

// drain reads what the handler left of the request.
func (a *answer) drain() {
	switch a.c.body.drain() {
	case tooMuch:
		a.close = true
	case cutOff:
		a.spent = true
	}
}

// part sends a part of the body, as a chunk if need be.
func (a *answer) part(p []byte) {
	if a.chunks {
		*a.out = append(strconv.AppendInt(*a.out, int64(len(p)), 16), "\r\n"...)
	}
	if len(*a.out)+len(p) <= gatherSize {
		*a.out = append(*a.out, p...)
	} else {
		a.send()
		a.raw(p)
	}
	if a.chunks {
		*a.out = append(*a.out, "\r\n"...)
	}
}

// send sends what is gathered.
func (a *answer) send() {
	a.raw(*a.out)
	*a.out = (*a.out)[:0]
}

func (a *answer) raw(p []byte) {
	if a.err == nil && len(p) > 0 {
		_, a.err = a.c.nc.Write(p)
	}
}

// FlushError sends everything written so far.
func (a *answer) FlushError() error {
	a.WriteHeader(http.StatusOK)
	a.start(false, nil)
	a.send()
	return a.err
}

// Flush is FlushError for those who cannot be told.
func (a *answer) Flush() {
	_ = a.FlushError() // the next Write tells
}

// SetReadDeadline sets until when the body is read.
func (a *answer) SetReadDeadline(t time.Time) error {
	a.c.set = time.Time{}
	return a.c.nc.SetReadDeadline(t)
}

// SetWriteDeadline sets until when the answer is sent.
func (a *answer) SetWriteDeadline(t time.Time) error { return a.c.nc.SetWriteDeadline(t) }

// EnableFullDuplex leaves the body to be read after the answer.
func (a *answer) EnableFullDuplex() error {
	a.duplex = true
	return nil
}

var errShort = errors.New("the answer is shorter than its length")

// end sends the rest, and reports whether another request may follow.
func (a *answer) end() bool {
	a.WriteHeader(http.StatusOK)
	a.start(true, nil)
	if a.chunks {
		*a.out = append(*a.out, "0\r\n\r\n"...)
	}
	a.send()
	if a.err == nil && a.size >= 0 && a.body < a.size {
		a.err = errShort
	}
	a.drop()
	a.drain()
	return a.err == nil && !a.close && !a.spent
}

// drop gives the memory back, and what is not sent with it.
func (a *answer) drop() {
	if a.out == nil {
		return
	}
	gathers.Put(a.out)
	a.out = nil
}
