package grpcapi

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/tutti-server/tutti/core/infer"
)

// connection is the connection of calls. It looks for messages that do not come, and counts the responses that wait to be sent: it is closed
// when its client reads nothing. Its methods may be called concurrently.
type connection struct {
	net.Conn
	credentials.AuthInfo // gives calls access to their connection
	f                    *infer.InFlight
	stall                time.Duration // how long a client may send nothing of a message, and read nothing

	mu     sync.Mutex
	closed bool // guarded by mu
	// Messages that calls wait for, and the looks for late ones; guarded by mu.
	late     []*lateMessage
	lateLook *time.Timer // nil until a call has waited
	looking  bool        // the timer runs
	looks    uint32
	// watch looks whether the client reads while unsent is large. Nil if it never was; guarded by mu.
	unsent   int64 // bytes of large tensors that wait to be sent; guarded by mu
	watch    *time.Timer
	watching bool         // guarded by mu
	seen     int64        // written at its last look; guarded by mu
	written  atomic.Int64 // bytes
}

const (
	// unsentSlack is the number of unsent bytes that close no connection.
	unsentSlack = 1 << 20
	// defaultStall is how long a client may pause.
	defaultStall = time.Minute
)

// Write counts what it writes.
func (l *connection) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.written.Add(int64(n))
	return n, err
}

// Add counts bytes of responses that wait to be sent.
func (l *connection) Add(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.f.Add(n)
	if l.unsent += n; l.unsent <= unsentSlack || l.watching {
		return
	}
	l.watching, l.seen = true, l.written.Load()
	if l.watch == nil {
		l.watch = time.AfterFunc(l.stall, l.look)
	} else {
		l.watch.Reset(l.stall)
	}
}

// Release subtracts bytes that Add has counted. A closed connection has subtracted them: the transport may drop them unsent.
func (l *connection) Release(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.f.Release(n)
		l.unsent -= n
	}
}

// look closes the connection of a client that has read nothing for the stall time while much waits for it.
func (l *connection) look() {
	l.mu.Lock()
	written := l.written.Load()
	stalled := l.unsent > unsentSlack && written == l.seen
	l.seen = written
	if l.watching = l.unsent > unsentSlack && !l.closed; l.watching && !stalled {
		l.watch.Reset(l.stall)
	}
	l.mu.Unlock()
	if stalled {
		_ = l.Close() // the transport ends the calls
	}
}

// Close releases the counted bytes.
func (l *connection) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.f.Release(l.unsent)
		l.unsent = 0
	}
	l.mu.Unlock()
	return l.Conn.Close()
}

// connectionOf returns the connection of a call, or nil if nothing is limited.
func connectionOf(ctx context.Context, f *infer.InFlight) *connection {
	if f.Limit() == 0 {
		return nil
	}
	if p, ok := peer.FromContext(ctx); ok {
		l, _ := p.AuthInfo.(*connection)
		return l
	}
	return nil
}

// countingCredentials wraps every connection, inside its encryption, in a connection.
type countingCredentials struct {
	credentials.TransportCredentials
	f     *infer.InFlight
	stall time.Duration
}

// countConnections returns credentials whose connections count. c may be nil.
func countConnections(c credentials.TransportCredentials, f *infer.InFlight, stall time.Duration) credentials.TransportCredentials {
	if f.Limit() == 0 {
		return c
	}
	if c == nil {
		c = insecure.NewCredentials()
	}
	if stall <= 0 {
		stall = defaultStall
	}
	return countingCredentials{c, f, stall}
}

// ServerHandshake wraps the connection.
func (c countingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	l := &connection{Conn: conn, AuthInfo: info, f: c.f, stall: c.stall}
	return l, l, nil
}

// Clone copies the credentials, as grpc requires.
func (c countingCredentials) Clone() credentials.TransportCredentials {
	return countingCredentials{c.TransportCredentials.Clone(), c.f, c.stall}
}
