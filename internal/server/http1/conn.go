package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/internal/server/sock"
)

const (
	// readSize is what a connection reads at once: a head has to fit in, and a small body comes with it.
	readSize = 4 << 10
	// drainLimit is how much of a body is read that the handler did not want, to use the connection again.
	drainLimit = 256 << 10
	// lingerTime is how long the client of a connection that is closed early may take the answer, and lingerLimit what it
	// may send meanwhile: closing at once would take the answer away from it.
	lingerTime  = 500 * time.Millisecond
	lingerLimit = 16 << 20
)

// What a connection does.
const (
	waiting int32 = iota // for a request
	answering
	retired // nothing more
)

// conn is a connection while this package serves it.
type conn struct {
	srv   *Server
	nc    *sock.Conn
	raw   syscall.RawConn
	gone  context.CancelFunc // ends the requests' context
	doing atomic.Int32

	buf  []byte // buf[r:w] has been read and not used
	r, w int
	set  time.Time // when the deadline for reading was set; zero when it is not that of waiting

	head  head
	base  *http.Request // what is the same in every request
	req   http.Request
	body  body
	ans   answer
	watch *watch
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
	c.body.c, c.ans.c, c.watch = c, c, newWatch(c, s.watches)
	c.ans.header = make(http.Header)
	return c, nil
}

// serve answers the connection's requests until it ends or goes to net/http.
func (c *conn) serve() {
	defer c.srv.remove(c)
	defer c.gone()
	given := false
	defer func() {
		if p := recover(); p != nil {
			c.report(p)
		}
		if !given {
			_ = c.nc.Close() // nothing is expected of it any more
		}
	}()
	c.expect(c.srv.std.ReadHeaderTimeout)
	c.set = time.Time{} // between requests another time is given
	for c.receive() && c.doing.CompareAndSwap(waiting, answering) {
		n := c.head.read(c.buf[c.r:c.w])
		if n == 0 {
			given = true
			c.handOver()
			return
		}
		c.r += n
		if !c.answer() || !c.doing.CompareAndSwap(answering, waiting) {
			return
		}
	}
}

// retire ends the connection unless a request is being answered, after which it ends.
func (c *conn) retire() {
	if c.doing.Swap(retired) == waiting {
		_ = c.nc.Close() // which ends receive
	}
}

// kill ends the connection whatever it does.
func (c *conn) kill() {
	c.doing.Store(retired)
	_ = c.nc.Close() // which ends everything
}

// expect gives the client d from now on to send the next byte, 0 for ever.
func (c *conn) expect(d time.Duration) {
	now := time.Now()
	c.set = now
	var t time.Time
	if d > 0 {
		t = now.Add(d)
	}
	_ = c.nc.SetReadDeadline(t) // what is closed fails when it is read
}

// maxBlank is how much of empty lines is passed over before a request.
const maxBlank = 4

// receive waits for the first bytes of a request. Old clients end a body that they post with an empty line, which is
// passed over (RFC 9112, 2.2).
func (c *conn) receive() bool {
	for blank := 0; ; {
		for ; c.r < c.w && blank < maxBlank && c.head.method == http.MethodPost && (c.buf[c.r] == '\r' || c.buf[c.r] == '\n'); c.r++ {
			blank++
		}
		if c.r < c.w {
			return true
		}
		n, err := c.nc.Read(c.buf)
		if c.r, c.w = 0, n; n == 0 || err != nil {
			return false
		}
	}
}

// handOver gives the connection to net/http.
func (c *conn) handOver() {
	_ = c.nc.SetReadDeadline(time.Time{}) // net/http sets its own
	c.srv.rest.give(&begun{c.nc.TCPConn, c.buf[c.r:c.w:c.w]})
}

// answer has the handler answer the request in c.head, and reports whether the connection can go on.
//
// hot: no allocation.
func (c *conn) answer() (again bool) {
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
			_ = c.nc.SetReadDeadline(now.Add(c.srv.std.ReadTimeout)) // what is closed fails when it is read
		}
	}
	c.ans.begin(now, h.last || c.doing.Load() == retired)
	c.watch.begin(now)
	defer c.recovered(&again)
	c.srv.std.Handler.ServeHTTP(&c.ans, &c.req)
	again = c.ans.end()
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

// recovered is deferred: it closes the connection of a handler that panics, and nothing else.
func (c *conn) recovered(again *bool) {
	p := recover()
	if p == nil {
		return
	}
	*again = false
	c.ans.drop()
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

// linger lets the client take the last answer although it may still be sending.
func (c *conn) linger() {
	if c.nc.CloseWrite() == nil && c.nc.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.nc, lingerLimit) // whatever comes of it
	}
}
