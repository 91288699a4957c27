package http1

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
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

// drain reads and discards the unread rest of the request. The connection closes if too much is left or the rest cannot be read.
func (r *response) drain() {
	switch b := &r.c.body; {
	case b.left == 0:
	case b.cut:
		r.spent = true
	case b.left > drainLimit:
		r.close = true
	default:
		b.closed = false
		if _, err := io.Copy(io.Discard, b); err != nil {
			r.close = true
		}
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
	if r.out != nil {
		buffers.Put(r.out)
		r.out = nil
	}
}

// sniffLength is how many bytes of a body http.DetectContentType looks at.
const sniffLength = 512

// formattedSecond is a second with its text in a Date field.
type formattedSecond struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[formattedSecond]

// date formats a time for the Date field.
//
// hot: one allocation per second.
func date(now time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &formattedSecond{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

// appendHead appends the status line and the header. The body begins with r.held, then next; its first bytes decide the
// Content-Type that the handler did not set.
func (r *response) appendHead(b, next []byte) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(r.code), 10)
	b = append(b, ' ')
	if text := http.StatusText(r.code); text != "" {
		b = append(b, text...)
	} else {
		b = strconv.AppendInt(append(b, "status code "...), int64(r.code), 10)
	}
	b = append(b, "\r\n"...)
	r.keys = r.keys[:0]
	for key := range r.header {
		if sendable(key) {
			r.keys = append(r.keys, key)
		}
	}
	slices.Sort(r.keys)
	for _, key := range r.keys {
		for _, v := range r.header[key] {
			b = appendField(b, key, v)
		}
	}
	if r.header["Date"] == nil {
		b = appendField(b, "Date", date(r.now))
	}
	if r.header["Content-Type"] == nil && r.header["Content-Encoding"] == nil && len(r.held)+len(next) > 0 && !r.bodiless() {
		first := next
		if len(r.held) > 0 {
			first = slices.Concat(r.held, next[:min(len(next), sniffLength)])
		}
		b = appendField(b, "Content-Type", http.DetectContentType(first))
	}
	return append(r.appendFraming(b), "\r\n"...)
}

// appendFraming appends Content-Length or Transfer-Encoding, and Connection if the connection closes.
func (r *response) appendFraming(b []byte) []byte {
	switch {
	case r.bodiless():
	case r.chunks:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	default:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), r.size, 10), "\r\n"...)
	}
	if c := r.header["Connection"]; len(c) == 1 && strings.EqualFold(c[0], "close") {
		r.close = true
	}
	if r.close {
		b = append(b, "Connection: close\r\n"...)
	}
	return b
}

// sendable reports whether a field of the handler's header is sent as it is: it must be a valid name, and none of the fields
// that appendFraming decides.
func sendable(key string) bool {
	switch key {
	case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
		return false
	}
	return key != "" && all([]byte(key), &tokens)
}

// appendField appends a header line. Line breaks in the value become spaces, so that no value can add a line.
func appendField(b []byte, key, value string) []byte {
	b = append(append(b, key...), ": "...)
	for i := range len(value) {
		if c := value[i]; c == '\r' || c == '\n' {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return append(b, "\r\n"...)
}
