package load

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// conn2 is a connection over HTTP/2 for the calls of a few clients. It opens when the first call starts, and again after it
// was lost. It encodes the headers of calls once, and writes what several calls send at the same time at once, so that a
// call takes a fraction of the CPU time of a general client.
type conn2 struct {
	addr    string
	tls     *tls.Config
	limit   time.Duration
	loop    *Loop  // nil for none
	headers []byte // of every call, encoded

	mu          sync.Mutex
	changed     sync.Cond // signals more window, free streams, and the loss of the connection
	waiting     []*Task   // the coroutines that wait for that, in a loop; guarded by mu
	live        *link     // nil while there is no connection; guarded by mu
	interrupted bool      // guarded by mu
}

// link is one opened connection. Its fields, except those of the reader, are guarded by the conn2's mu.
type link struct {
	net.Conn
	calls    map[uint32]*caller
	next     uint32 // the number of the next stream
	window   int64  // the bytes that the server accepts on the connection
	initial  int64  // the bytes that it accepts on a new stream
	frame    int    // the largest frame that it accepts
	streams  int    // the most streams that it accepts
	draining bool   // it accepts no more streams
	err      error  // why the link is lost
	out      []byte // frames that nobody writes yet
	spare    []byte // the memory of the frames that were written last
	writing  bool   // a goroutine writes

	r        *frameReader
	stale    *time.Timer
	armed    bool      // stale will fire
	progress time.Time // when a response ended, or a call began on an idle link
}

const (
	initialWindow = 65535   // of a connection whose settings say nothing
	ourWindow     = 1 << 30 // what the server may send before it needs more window
	outMost       = 1 << 20 // the bytes in out above which a call waits until they are written
)

func newConn2(t *Target) *conn2 {
	c := &conn2{addr: t.GRPC, limit: t.timeout(), loop: t.Loop, headers: callHeaders(t)}
	c.changed.L = &c.mu
	if t.TLS != nil {
		c.tls = t.TLS.Clone()
		c.tls.NextProtos = []string{http2.NextProtoTLS}
	}
	return c
}

// callHeaders encodes the headers of a call. Sensitive ones enter no table, so that the encoding is the same for each call.
func callHeaders(t *Target) []byte {
	scheme := "http"
	if t.TLS != nil {
		scheme = "https"
	}
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	field := func(name, value string) {
		_ = e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // a buffer takes everything
	}
	for _, f := range [][2]string{
		{":method", http.MethodPost},
		{":scheme", scheme},
		{":path", inferMethod},
		{":authority", t.GRPC},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"user-agent", "tutti-bench"},
	} {
		field(f[0], f[1])
	}
	for name, values := range t.Header {
		for _, v := range values {
			field(strings.ToLower(name), v)
		}
	}
	return b.Bytes()
}

// start sends a call. The result of the call goes to c.done.
func (t *conn2) start(c *caller, message []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, err := t.ready()
	if err != nil {
		return err
	}
	c.id, c.window, c.response, c.status, c.text, c.http = l.next, l.initial, c.response[:0], "", "", ""
	l.next += 2
	l.calls[c.id], c.ending = c, false
	if t.loop != nil {
		c.waiting = t.loop.Running()
	}
	if len(l.calls) == 1 {
		l.progress = time.Now()
		if !l.armed {
			l.armed = true
			l.stale.Reset(t.limit)
		}
	}
	l.out = appendFrame(l.out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, c.id, t.headers)
	for len(message) > 0 {
		full := func() bool { return min(l.window, c.window) <= 0 || len(l.out) > outMost }
		for l.calls[c.id] == c && full() {
			if t.flush(l); l.calls[c.id] == c && full() {
				t.wait()
			}
		}
		if l.calls[c.id] != c { // it has ended already; the result is in c.done
			l.out = appendFrame(l.out, http2.FrameRSTStream, 0, c.id, binary.BigEndian.AppendUint32(nil, uint32(http2.ErrCodeCancel)))
			break
		}
		n := int(min(int64(len(message)), l.window, c.window, int64(l.frame)))
		l.window, c.window = l.window-int64(n), c.window-int64(n)
		flags := http2.Flags(0)
		if n == len(message) {
			flags = http2.FlagDataEndStream
		}
		l.out = appendFrame(l.out, http2.FrameData, flags, c.id, message[:n])
		message = message[n:]
	}
	t.flush(l)
	return nil
}

// ready returns a link that takes one more stream.
func (t *conn2) ready() (*link, error) {
	for {
		switch l := t.live; {
		case t.interrupted:
			return nil, errInterrupted
		case l == nil || l.err != nil || l.next > 1<<30 || l.draining && len(l.calls) == 0:
			if err := t.open(); err != nil {
				return nil, err
			}
		case l.draining || len(l.calls) >= l.streams:
			t.wait()
		default:
			return l, nil
		}
	}
}

// open replaces the link.
func (t *conn2) open() error {
	if t.live != nil {
		t.lose(t.live, errors.New("the connection is replaced"))
	}
	conn, err := dialIn(t.loop, t.addr, t.tls)
	if err != nil {
		return err
	}
	l := &link{
		Conn: conn, calls: map[uint32]*caller{}, next: 1, window: initialWindow, initial: initialWindow, frame: 16 << 10, streams: 1 << 30,
		r: newFrameReader(conn),
	}
	l.out = append(l.out, http2.ClientPreface...)
	var settings []byte
	for _, s := range []http2.Setting{{ID: http2.SettingHeaderTableSize}, {ID: http2.SettingEnablePush}, {ID: http2.SettingInitialWindowSize, Val: ourWindow}} {
		settings = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(settings, uint16(s.ID)), s.Val)
	}
	l.out = appendFrame(l.out, http2.FrameSettings, 0, 0, settings)
	l.out = appendFrame(l.out, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, ourWindow))
	l.stale = time.AfterFunc(t.limit, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.expire(l)
	})
	t.live, l.armed = l, true
	if t.loop != nil {
		t.loop.Go(func() { t.read(l) })
	} else {
		go t.read(l)
	}
	return nil
}

// wait waits for broadcast. It is called with mu, and releases it meanwhile.
func (t *conn2) wait() {
	if t.loop == nil {
		t.changed.Wait()
		return
	}
	t.waiting = append(t.waiting, t.loop.Running())
	t.mu.Unlock()
	t.loop.Suspend()
	t.mu.Lock()
}

// broadcast ends all waits. It is called with mu.
func (t *conn2) broadcast() {
	t.changed.Broadcast()
	for _, task := range t.waiting {
		t.loop.Wake(task)
	}
	t.waiting = t.waiting[:0]
}

// deliver ends a call with its result. It is called with mu.
func (t *conn2) deliver(l *link, c *caller, err error) {
	delete(l.calls, c.id)
	c.done <- err
	if t.loop != nil {
		t.loop.Wake(c.waiting)
	}
}

// expire loses a link on which no call has ended for the time limit.
func (t *conn2) expire(l *link) {
	rest := t.limit - time.Since(l.progress)
	switch l.armed = len(l.calls) > 0 && rest > 0; {
	case len(l.calls) > 0 && rest <= 0:
		t.lose(l, fmt.Errorf("no response after %v", t.limit))
	case l.armed:
		l.stale.Reset(rest)
	}
}

// flush writes the frames that wait, unless a goroutine is at it, which then writes these too. It is called with mu, and
// releases it meanwhile.
func (t *conn2) flush(l *link) {
	if l.writing {
		return
	}
	for l.writing = true; len(l.out) > 0 && l.err == nil; {
		batch := l.out
		l.out, l.spare = l.spare[:0], nil
		t.mu.Unlock()
		_, err := l.Write(batch)
		t.mu.Lock()
		if l.spare = batch[:0]; err != nil {
			t.lose(l, err)
		}
		if len(batch) > outMost {
			t.broadcast()
		}
	}
	l.writing = false
}

// lose ends a link and its calls with an error. It is called with mu.
func (t *conn2) lose(l *link, err error) {
	if l.err != nil {
		return
	}
	l.err = err
	l.stale.Stop()
	_ = l.Close() // the first error matters
	for _, c := range l.calls {
		t.deliver(l, c, err)
	}
	t.broadcast()
}

func (t *conn2) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.interrupted = true; t.live != nil {
		t.lose(t.live, errInterrupted)
	}
	t.broadcast()
}

// Close closes the connection. Calls under way end with an error.
func (t *conn2) Close() error {
	t.interrupt()
	return nil
}

// appendFrame appends a frame. A payload of a frame has at most 16 MiB.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}
