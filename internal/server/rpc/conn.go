package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

const (
	// smallBuffer is the read buffer of a connection, and largeBuffer that of one whose client sends large messages.
	smallBuffer = 4 << 10
	largeBuffer = 64 << 10
	// slowCall is how long a call may take on the goroutine that reads its connection. After a slower one the next fastCalls ones of the
	// connection that may execute there do not.
	slowCall  = time.Millisecond
	fastCalls = 16
	// lingerTime is how long a connection stays open after its last frame is written, unless the client closes it. Closing at once would
	// reset a connection with unread bytes, and the client could lose the last frames.
	lingerTime = time.Second
)

// conn is a connection. Its leader is the goroutine that reads it. Methods without another word belong to the leader.
type conn struct {
	srv  *Server
	nc   net.Conn
	base context.Context //nolint:containedctx // calls derive theirs from it
	slow atomic.Int32    // short calls that must execute elsewhere
	lent atomic.Uint64   // odd while the lead is lent; see lend
	keep keeper

	// Of the watch.
	listed  atomic.Bool
	watched uint64 // lent at the last look; guarded by the watch's mu

	// Owned by the leader.
	buf       []byte // buf[r:w] is read and not yet consumed
	r, w      int
	need      int // how many bytes the next frame has
	got       int // bytes of the last read
	small     []byte
	large     *[]byte // buf while it is a large one
	data      dataFrame
	block     headerBlock
	heads     heads
	unstarted []*stream // calls whose message has not arrived, and whose handler does not run
	ready     []*stream // calls whose message has arrived as a whole
	idle      int       // frames in a row that served no call
	taken     int64     // received bytes of DATA that the client has no new window for
	quota     int64     // what the client may send

	mu       sync.Mutex
	room     sync.Cond          // out has been written, or a handler has returned; uses mu
	streams  map[uint32]*stream // that are not complete; guarded by mu, as what follows
	running  int                // handlers
	maxID    uint32             // of the streams that have begun
	draining bool               // new streams are ignored
	closed   bool
	output
}

// newConn makes the handshake of the credentials.
func newConn(s *Server, raw net.Conn) (*conn, error) {
	if err := raw.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, err
	}
	nc := raw
	var auth credentials.AuthInfo
	if s.set.Credentials != nil {
		var err error
		if nc, auth, err = s.set.Credentials.ServerHandshake(raw); err != nil {
			return nil, err
		}
	}
	c := &conn{srv: s, nc: nc, small: make([]byte, smallBuffer), streams: map[uint32]*stream{}, quota: int64(s.set.ConnWindow)}
	c.buf = c.small
	c.room.L = &c.mu
	c.output = output{window: defaultWindow, initial: defaultWindow, maxFrame: minMaxFrame}
	c.base = peer.NewContext(context.Background(), &peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(), AuthInfo: auth})
	c.heads.init(c)
	return c, nil
}

var clientPreface = []byte(http2.ClientPreface)

// greet exchanges the first settings.
func (c *conn) greet(raw net.Conn) error {
	set := &c.srv.set
	settings := []http2.Setting{
		{ID: http2.SettingMaxFrameSize, Val: minMaxFrame},
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(set.MaxStreams)}, //nolint:gosec // a small number
		{ID: http2.SettingMaxHeaderListSize, Val: set.MaxHeaders},
	}
	if set.Window != defaultWindow {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(set.Window)}) //nolint:gosec // positive
	}
	c.mu.Lock()
	c.appendSettings(settings)
	if more := set.ConnWindow - defaultWindow; more > 0 {
		c.appendWindowUpdate(0, uint32(more)) //nolint:gosec // positive
	}
	c.flush()
	c.mu.Unlock()
	first := make([]byte, len(clientPreface)+frameHead)
	if _, err := io.ReadFull(c.nc, first); err != nil {
		return fmt.Errorf("the client has sent no preface of HTTP/2: %w", err)
	}
	preface, head := first[:len(clientPreface)], first[len(clientPreface):]
	if !bytes.Equal(preface, clientPreface) {
		return fmt.Errorf("expected the preface of HTTP/2, found %q", preface)
	}
	if kind := http2.FrameType(head[3]); kind != http2.FrameSettings {
		return fmt.Errorf("expected SETTINGS as the first frame of HTTP/2, found %v", kind)
	}
	c.w = copy(c.buf, head)
	c.keep.start(c)
	return raw.SetDeadline(time.Time{})
}

// lead reads the connection until it ends, or until another goroutine has the lead.
func (c *conn) lead() {
	for {
		left, err := c.frames()
		if err == nil {
			if !c.execute() {
				return
			}
			if left {
				c.awaitRoom()
				continue
			}
			err = c.fill()
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// fill reads more bytes.
func (c *conn) fill() error {
	c.adjustBuffer()
	if c.r > 0 {
		c.r, c.w = 0, copy(c.buf, c.buf[c.r:c.w])
	}
	n, err := c.nc.Read(c.buf[c.w:])
	c.w += n
	c.got = n
	if n > 0 {
		c.keep.read.Store(time.Now().UnixNano())
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

var largeBuffers = sync.Pool{New: func() any {
	b := make([]byte, largeBuffer)
	return &b
}}

// adjustBuffer selects the buffer of the next read: a large one while much arrives.
func (c *conn) adjustBuffer() {
	much := max(c.need, c.data.left, c.got+1) > len(c.small)
	switch {
	case c.large == nil && much:
		c.large = largeBuffers.Get().(*[]byte) //nolint:errcheck,forcetypeassert // New makes them
		c.w = copy(*c.large, c.buf[c.r:c.w])
		c.r, c.buf = 0, *c.large
	case c.large != nil && c.r == c.w && c.data.left == 0 && c.got < len(c.buf):
		c.r, c.w, c.buf = 0, 0, c.small
		largeBuffers.Put(c.large)
		c.large = nil
	}
}

// connError ends a connection, with GOAWAY.
type connError struct {
	code http2.ErrCode
	text string
}

// Error returns the text.
func (e *connError) Error() string { return e.code.String() + ": " + e.text }

func failure(code http2.ErrCode, format string, args ...any) error {
	return &connError{code, fmt.Sprintf(format, args...)}
}

// end ends the connection because of an error. The client gets GOAWAY if it has broken the protocol.
func (c *conn) end(err error) {
	defer c.srv.remove(c)
	if broken, ok := errors.AsType[*connError](err); ok {
		c.mu.Lock()
		c.draining = true
		c.appendGoAway(c.maxID, broken.code, broken.text)
		c.flush()
		c.mu.Unlock()
		c.linger()
	}
	c.close()
	if c.large != nil {
		largeBuffers.Put(c.large)
		c.buf, c.large = nil, nil
	}
}

// linger discards what the client sends until it closes the connection, for a bounded time.
func (c *conn) linger() {
	if c.nc.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		for n := 0; n < lingerLimit; {
			m, err := c.nc.Read(c.buf)
			if n += m; err != nil {
				return
			}
		}
	}
}

// lingerLimit is how much a client may send meanwhile.
const lingerLimit = 16 << 20

// close closes the connection at once and cancels its calls. It may be called by any goroutine, more than once.
func (c *conn) close() {
	c.mu.Lock()
	c.closeLocked()
	c.mu.Unlock()
}

// closeLocked is close while mu is held.
func (c *conn) closeLocked() {
	if c.closed {
		return
	}
	c.closed, c.draining = true, true
	c.keep.stop()
	_ = c.nc.Close() // it ends the leader's read
	for _, s := range c.streams {
		s.drop()
	}
	c.out = nil
	c.room.Broadcast()
}

// lend lets another goroutine become the leader, and returns what reclaim needs. A leader calls it before it executes a call or writes:
// either may take long. The watch gives the lead away when it is lent for long, so that the connection is read again: a call may be
// cancelled, and other calls may arrive. The state of the leader must be complete, between two frames.
//
// hot: an addition, and a load.
func (c *conn) lend() uint64 {
	v := c.lent.Add(1)
	c.srv.watch.see(c)
	return v
}

// reclaim ends lend and reports whether the caller still leads.
func (c *conn) reclaim(v uint64) bool { return c.lent.CompareAndSwap(v, v+1) }
