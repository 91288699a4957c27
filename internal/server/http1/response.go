package http1

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/internal/pool"
)

const (
	// bufferSize is the size up to which head and body leave in one write.
	bufferSize = 8 << 10
	// holdLimit is how many bytes of a body of unknown length are held back. A body that ends within it is sent with a
	// Content-Length; a longer one is chunked, and the rest of the request is drained or given up before it.
	holdLimit = 2 << 10
)

var buffers = pool.Of[[]byte]{New: func() *[]byte {
	b := make([]byte, 0, bufferSize+bufferSize/4)
	return &b
}}

// response is the http.ResponseWriter of a connection. begin prepares it for each request, end completes it.
type response struct {
	c      *conn
	header http.Header
	out    *[]byte // bytes not yet sent; nil between requests
	keys   []string
	now    time.Time
	code   int   // 0 until WriteHeader
	size   int64 // Content-Length, -1 while unknown
	body   int64 // body bytes that the handler has written
	held   []byte
	sent   bool // the head is in out, or sent
	chunks bool
	close  bool  // send "Connection: close", then close
	duplex bool  // the handler reads the body after it has begun to respond
	spent  bool  // close after this response, without saying so in its head
	err    error // first error of the connection
}

var (
	_ http.ResponseWriter = (*response)(nil)
	_ http.Flusher        = (*response)(nil)
)

// begin prepares r for the next request.
func (r *response) begin(now time.Time, last bool) {
	r.out = buffers.Get()
	*r.out = (*r.out)[:0]
	clear(r.header)
	r.now, r.code, r.size, r.body, r.held = now, 0, -1, 0, r.held[:0]
	r.sent, r.chunks, r.close, r.duplex, r.spent, r.err = false, false, last, false, false, nil
}

// Header returns the header to send.
func (r *response) Header() http.Header { return r.header }

// WriteHeader sets the status. Only the first call counts; informational statuses are not sent.
func (r *response) WriteHeader(code int) {
	switch {
	case code < 100 || code > 999:
		panic("invalid WriteHeader code " + strconv.Itoa(code))
	case r.code != 0 || code < 200:
		return
	}
	r.code = code
	if v := r.header["Content-Length"]; len(v) == 1 && !r.bodiless() {
		r.size = parseDigits(v[0])
	}
}

// Begun reports whether the status is set, so that no other can be sent.
func (r *response) Begun() bool { return r.code != 0 }

// bodiless reports whether the status allows no body.
func (r *response) bodiless() bool {
	return r.code == http.StatusNoContent || r.code == http.StatusNotModified
}

// Write sends a part of the body. A part that exceeds the handler's Content-Length is not sent; the connection closes after
// the response, since the client cannot find the next response behind a body of another length.
//
// hot: no allocation.
func (r *response) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.body += int64(len(p))
	switch {
	case len(p) == 0:
		return 0, r.err
	case r.bodiless():
		return 0, http.ErrBodyNotAllowed
	case r.size >= 0 && r.body > r.size:
		r.spent = true
		return 0, http.ErrContentLength
	case (r.size < 0 || r.c.body.left > 0 && !r.duplex) && !r.sent && len(r.held)+len(p) <= holdLimit: // the body may still be read
		r.held = append(r.held, p...)
		return len(p), nil
	}
	r.start(false, p)
	r.part(p)
	if r.err != nil {
		return 0, r.err
	}
	return len(p), nil
}

// start sends the head and the held bytes. next is the part that follows at once; done means that no part follows.
func (r *response) start(done bool, next []byte) {
	if r.sent {
		return
	}
	r.sent = true
	if !r.duplex {
		r.drain()
	}
	if r.size < 0 && !r.bodiless() {
		if done {
			r.size = int64(len(r.held))
		} else {
			r.chunks = true
		}
	}
	*r.out = r.appendHead(*r.out, next)
	if len(r.held) > 0 {
		r.part(r.held)
		r.held = r.held[:0]
	}
}

// drain reads the unread rest of the request.
func (r *response) drain() {
	switch r.c.body.drain() {
	case drainedNot:
		r.close = true
	case drainedCut:
		r.spent = true
	}
}

// part sends a part of the body, as a chunk if need be.
func (r *response) part(p []byte) {
	if r.chunks {
		*r.out = append(strconv.AppendInt(*r.out, int64(len(p)), 16), "\r\n"...)
	}
	if len(*r.out)+len(p) <= bufferSize {
		*r.out = append(*r.out, p...)
	} else {
		r.send()
		r.raw(p)
	}
	if r.chunks {
		*r.out = append(*r.out, "\r\n"...)
	}
}

// send writes the buffered bytes to the connection.
func (r *response) send() {
	r.raw(*r.out)
	*r.out = (*r.out)[:0]
}

func (r *response) raw(p []byte) {
	if r.err == nil && len(p) > 0 {
		_, r.err = r.c.nc.Write(p)
	}
}

// FlushError sends everything written so far.
func (r *response) FlushError() error {
	r.WriteHeader(http.StatusOK)
	r.start(false, nil)
	r.send()
	return r.err
}

// Flush is FlushError for callers that know http.Flusher only.
func (r *response) Flush() {
	_ = r.FlushError() // the next Write returns it
}

// SetReadDeadline sets the deadline for reading the body.
func (r *response) SetReadDeadline(t time.Time) error {
	r.c.set = time.Time{}
	return r.c.nc.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline for sending the response.
func (r *response) SetWriteDeadline(t time.Time) error { return r.c.nc.SetWriteDeadline(t) }

// EnableFullDuplex lets the handler read the body after it has begun to respond.
func (r *response) EnableFullDuplex() error {
	r.duplex = true
	return nil
}

var errShort = errors.New("the response is shorter than its Content-Length")

// end sends the rest of the response and reports whether the connection may serve another request.
func (r *response) end() bool {
	r.WriteHeader(http.StatusOK)
	r.start(true, nil)
	if r.chunks {
		*r.out = append(*r.out, "0\r\n\r\n"...)
	}
	r.send()
	if r.err == nil && r.size >= 0 && r.body < r.size {
		r.err = errShort
	}
	r.drop()
	r.drain()
	return r.err == nil && !r.close && !r.spent
}

// drop returns the buffer to its pool, with the bytes that are not sent.
func (r *response) drop() {
	if r.out == nil {
		return
	}
	buffers.Put(r.out)
	r.out = nil
}
