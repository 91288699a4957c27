package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/internal/server/sock"
)

const (
	// readSize is the read buffer of a connection. A plain head must fit in it; a small body comes in the same read.
	readSize = 4 << 10
	// drainLimit is how much of an unread body is discarded to reuse the connection; it closes when more is left.
	drainLimit = 256 << 10
	// lingerTime is how long a closing connection waits for its client to read the response, and lingerLimit how much the
	// client may send meanwhile. Closing at once would reset the connection, and the client could lose the response.
	lingerTime  = 500 * time.Millisecond
	lingerLimit = 16 << 20
)

// The states of a connection.
const (
	waiting int32 = iota // for a request
	responding
	retired // closed, or closes after the current response
)

// conn is a connection while this package serves it. Its own goroutine owns every field but doing; the watcher may cancel gone
// and set read deadlines.
type conn struct {
	srv   *Server
	nc    *sock.Conn
	raw   syscall.RawConn
	gone  context.CancelFunc // cancels the context of the connection's requests
	state atomic.Int32

	buf  []byte // buf[r:w] is read and not yet consumed
	r, w int
	set  time.Time // when the idle deadline was set; zero when another deadline is in force

	head  head
	base  *http.Request // the part that all requests share
	req   http.Request
	body  body
	resp  response
	watch *watcher
}

func newConn(s *Server, tcp *net.TCPConn) (*conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	nc, err := sock.New(tcp)
	if err != nil {
		return nil, err
	}
	c := &conn{srv: s, nc: nc, raw: raw, buf: make([]byte, readSize)}
	ctx, gone := context.WithCancel(context.WithValue(context.Background(), connKey{}, c))
	c.gone = gone
	c.base = (&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: nc.RemoteAddr().String(),
	}).WithContext(ctx)
	shard := &s.watchers.shards[s.watchers.next.Add(1)%uint32(len(s.watchers.shards))] //nolint:gosec // a small constant
	c.watch = &watcher{c: c, all: s.watchers, shard: shard, over: make(chan struct{}, 1)}
	c.body.c, c.resp.c = c, c
	c.resp.header = make(http.Header)
	return c, nil
}

// serve serves the connection's requests until the connection ends or moves to net/http.
func (c *conn) serve() {
	defer c.srv.remove(c)
	defer c.gone()
	handedOver := false
	defer func() {
		if p := recover(); p != nil {
			c.report(p)
		}
		if !handedOver {
			_ = c.nc.Close() // the connection is finished
		}
	}()
	c.expect(c.srv.std.ReadHeaderTimeout)
	c.set = time.Time{} // the idle time between requests is another
	for c.receive() && c.state.CompareAndSwap(waiting, responding) {
		n := c.head.read(c.buf[c.r:c.w])
		if n == 0 {
			handedOver = c.handOver()
			return
		}
		c.r += n
		if !c.respond() || !c.state.CompareAndSwap(responding, waiting) {
			return
		}
	}
}

// retire closes the connection, after the current response if there is one.
func (c *conn) retire() {
	if c.state.Swap(retired) == waiting {
		_ = c.nc.Close() // which ends receive
	}
}

// kill closes the connection at once.
func (c *conn) kill() {
	c.state.Store(retired)
	_ = c.nc.Close() // which ends everything
}

// expect sets the read deadline to d from now; 0 means none.
func (c *conn) expect(d time.Duration) {
	now := time.Now()
	c.set = now
	var t time.Time
	if d > 0 {
		t = now.Add(d)
	}
	_ = c.nc.SetReadDeadline(t) // a closed connection fails in the next read
}

const (
	// maxBlank is how many bytes of empty lines are skipped before a request.
	maxBlank = 4
	// minNext is how many bytes net/http waits for before it reads a second request. A connection that ends before them has no
	// response; an incomplete first request has one.
	minNext = 4
)

// receive waits for the first bytes of a request. It skips the empty line that old clients send after the body of a POST
// (RFC 9112, 2.2).
func (c *conn) receive() bool {
	first := c.head.method == ""
	for c.w-c.r < minNext && (!first || c.r == c.w) {
		if !c.fill() {
			return false
		}
	}
	for blank := 0; blank < maxBlank && c.head.method == http.MethodPost && (c.buf[c.r] == '\r' || c.buf[c.r] == '\n'); blank++ {
		if c.r++; c.r == c.w {
			return c.fill()
		}
	}
	return true
}

// fill reads more bytes behind those that are not consumed, of which there are few.
func (c *conn) fill() bool {
	c.r, c.w = 0, copy(c.buf, c.buf[c.r:c.w])
	n, err := c.nc.Read(c.buf[c.w:])
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.arrived() {
		n, err = c.nc.Read(c.buf[c.w:])
	}
	c.w += n
	return n > 0 && err == nil
}

// arrived reports whether a request has arrived although the read deadline has passed, and then extends the deadline. This happens when the
// process does not run, for example while the machine is suspended or overloaded: both are then noticed together, the deadline first. To close
// the connection would reset it, and the client would not know what became of its request.
func (c *conn) arrived() (some bool) {
	c.expect(c.srv.std.ReadHeaderTimeout)
	c.set = time.Time{}
	err := c.raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		some = err == nil && n > 0
		return true
	})
	return err == nil && some
}

// lateHTTP2 refuses the preface of HTTP/2 behind a request of HTTP/1.1. net/http would take it for that of a new connection, and a proxy
// in front, which reads HTTP/1.1, would not see the requests in it.
const lateHTTP2 = "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\nContent-Length: 62\r\nConnection: close\r\n\r\n" +
	`{"error":"HTTP/2 begins with a connection, not behind HTTP/1"}`

// handOver moves the connection to net/http, and reports whether it has.
func (c *conn) handOver() bool {
	if p := c.srv.std.Protocols; p != nil && p.UnencryptedHTTP2() && c.head.method != "" && bytes.HasPrefix(c.buf[c.r:c.w], []byte("PRI ")) {
		_, _ = c.nc.Write([]byte(lateHTTP2)) // the client may have left
		c.linger()
		return false
	}
	_ = c.nc.SetReadDeadline(time.Time{}) // net/http sets its own
	c.srv.handoff.pass(&replayConn{c.nc.TCPConn, c.buf[c.r:c.w:c.w]})
	return true
}

// respond calls the handler for the request in c.head and reports whether the connection may serve another request.
//
// hot: no allocation.
func (c *conn) respond() (again bool) {
	h := &c.head
	c.req = *c.base
	c.req.Method, c.req.URL, c.req.RequestURI = h.method, &h.url, h.url.Path
	c.req.Header, c.req.Host, c.req.ContentLength, c.req.Close = h.header, h.host, h.length, h.last
	now := time.Now()
	c.body.begin(h.length)
	c.req.Body = http.NoBody
	if h.length > 0 {
		c.req.Body = &c.body
		if h.length > int64(c.w-c.r) && c.srv.std.ReadTimeout > 0 {
			c.set = time.Time{}
			_ = c.nc.SetReadDeadline(now.Add(c.srv.std.ReadTimeout)) // a closed connection fails in the next read
		}
	}
	c.resp.begin(now, h.last || c.state.Load() == retired)
	c.watch.begin(now)
	defer c.recovered(&again)
	c.srv.std.Handler.ServeHTTP(&c.resp, &c.req)
	again = c.resp.end()
	c.watch.end()
	if !again {
		c.linger()
		return false
	}
	if idle := c.srv.std.IdleTimeout; c.set.IsZero() || idle > 0 && now.Sub(c.set) > idle/8 {
		c.expect(idle)
	}
	return true
}

// recovered, when deferred, ends the connection of a handler that panics. The server goes on.
func (c *conn) recovered(again *bool) {
	p := recover()
	if p == nil {
		return
	}
	*again = false
	c.resp.drop()
	c.watch.end()
	if err, is := p.(error); is && errors.Is(err, http.ErrAbortHandler) {
		return
	}
	c.report(p)
}

// report logs a panic with its stack.
func (c *conn) report(p any) {
	stack := make([]byte, 64<<10)
	c.srv.logf("http: panic serving %s: %v\n%s", c.base.RemoteAddr, p, stack[:runtime.Stack(stack, false)])
}

// linger lets the client read the last response although it may still be sending.
func (c *conn) linger() {
	if c.nc.CloseWrite() == nil && c.nc.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.nc, lingerLimit) // the outcome does not matter
	}
}

// body reads a request body of known length.
type body struct {
	c       *conn
	left    int64
	closed  bool
	cut     bool        // the handler has read io.ErrUnexpectedEOF
	arrived atomic.Bool // left is 0; read by the watcher
}

func (b *body) begin(n int64) {
	b.left, b.closed, b.cut = n, false, false
	b.arrived.Store(n == 0)
}

// Read returns the bytes that came with the head, then reads from the connection.
//
// hot: no allocation.
func (b *body) Read(p []byte) (n int, err error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	if c := b.c; c.r < c.w {
		n = copy(p, c.buf[c.r:c.w])
		c.r += n
	} else if n, err = c.nc.Read(p); err == io.EOF { //nolint:errorlint // a connection returns it unwrapped
		b.cut, err = true, io.ErrUnexpectedEOF
	}
	b.left -= int64(n)
	if b.left == 0 {
		b.arrived.Store(true)
		err = io.EOF
	}
	return n, err
}

// Close makes later reads fail. The server drains the rest.
func (b *body) Close() error {
	b.closed = true
	return nil
}
