package grpcapi

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/tutti-server/tutti/core/infer"
)

// connection counts received bytes of incomplete messages, because grpc reports a message only when it is complete.
// A connection that sends more while too many bytes are in flight is closed: a single call of it cannot be
// rejected.
type connection struct {
	net.Conn
	credentials.AuthInfo // gives calls access to their connection
	f                    *infer.InFlight

	mu        sync.Mutex
	early     int64 // bytes that came while no call waited, at most what may be on its way; guarded by mu
	pending   int64 // bytes that are not charged to a message yet; guarded by mu
	charged   int64 // the part of pending that f counts; guarded by mu
	receiving int   // calls that wait for a message, far below zero once closed; guarded by mu
	unsent    int64 // bytes of large tensors that wait to be sent; guarded by mu
	closed    bool  // guarded by mu
	// Calls that wait for their first message, and the looks for late ones; guarded by mu.
	first     []*firstMessage
	firstLook *time.Timer // nil until a call has waited
	firstOn   bool        // the timer runs
	looks     uint32
	// watch looks whether the client reads while unsent is large. Nil if it never was; guarded by mu.
	watch    *time.Timer
	watching bool          // guarded by mu
	seen     int64         // written at its last look; guarded by mu
	written  atomic.Int64  // bytes
	stall    time.Duration // how long a client may send nothing of a large message
	deadline bool          // for that is set; guarded by mu
	// The reader's own.
	extended time.Time // when it last set the deadline
	inLarge  bool      // the last bytes belonged to a large message
}

const (
	// framingSlack is the number of bytes that may be framing or small messages: fewer bytes close no connection.
	framingSlack = 1 << 20
	// countStep is the number of bytes that are counted at once, so that small messages are not.
	countStep = 64 << 10
	// defaultStall is how long a client may pause within a message after more than framingSlack bytes.
	defaultStall = time.Minute
	// closedCalls is below any number of calls.
	closedCalls = math.MinInt32 / 2
)

// Read counts what it reads while a call waits for it.
func (l *connection) Read(p []byte) (int, error) {
	n, err := l.read(p)
	if l.inLarge = n > 0 && l.count(int64(n)); !l.inLarge {
		return n, err
	}
	if full := l.f.Exceeded(); full != nil {
		return 0, full
	}
	return n, err
}

// count adds n bytes, and reports whether they belong to a large message.
func (l *connection) count(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.receiving <= 0 {
		l.early = min(l.early+n, 2*window)
		return false
	}
	l.pending += n
	l.chargePending()
	return l.pending > framingSlack
}

// chargePending counts pending bytes. mu must be held.
func (l *connection) chargePending() {
	if l.pending-l.charged >= countStep {
		l.f.Add(l.pending - l.charged)
		l.charged = l.pending
	}
}

// read reads under the stall deadline if a large message is incomplete.
func (l *connection) read(p []byte) (int, error) {
	for {
		if l.inLarge {
			l.extendDeadline()
		}
		n, err := l.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !l.endDeadline() {
			return n, err
		}
		l.extended, l.inLarge = time.Time{}, false
	}
}

// extendDeadline sets the read deadline again, if it is old enough.
func (l *connection) extendDeadline() {
	now := time.Now()
	if now.Sub(l.extended) < l.stall/4 {
		return
	}
	l.extended = now
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginDeadline(now)
}

// beginDeadline sets the read deadline, also for a Read that waits. mu must be held.
func (l *connection) beginDeadline(now time.Time) {
	l.deadline = true
	_ = l.SetReadDeadline(now.Add(l.stall)) // an error shows in Read
}

// endDeadline removes the read deadline after the message was complete. It reports false if it is not, or if the deadline is another's.
func (l *connection) endDeadline() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.deadline || l.receiving > 0 && l.pending > framingSlack {
		return false
	}
	l.deadline = false
	return l.SetReadDeadline(time.Time{}) == nil
}

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
	if l.unsent += n; l.unsent <= framingSlack || l.watching {
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
	stalled := l.unsent > framingSlack && written == l.seen
	l.seen = written
	if l.watching = l.unsent > framingSlack && !l.closed; l.watching && !stalled {
		l.watch.Reset(l.stall)
	}
	l.mu.Unlock()
	if stalled {
		_ = l.Close() // the transport ends the calls
	}
}

// Close releases the counted bytes.
func (l *connection) Close() error {
	l.addWaiting(closedCalls)
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.f.Release(l.unsent)
		l.unsent = 0
	}
	l.mu.Unlock()
	return l.Conn.Close()
}

// addWaiting changes the number of calls that wait for messages, which are counted. Without any, the pending bytes are
// forgotten.
func (l *connection) addWaiting(calls int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait(calls)
}

// wait is addWaiting. mu must be held. Much of the first call's message may have come before the call began: all bytes since the last
// message are taken for it, also those of small calls of other methods, until it is complete.
func (l *connection) wait(calls int) {
	first := l.receiving == 0 && calls > 0
	if l.receiving += calls; l.receiving <= 0 {
		l.setPending(0)
	} else if first {
		l.pending, l.early = l.early, 0
		l.chargePending()
		if l.pending > framingSlack { // the reader may wait already, without a deadline
			l.beginDeadline(time.Now())
		}
	}
}

// setPending reduces the counted bytes to pending. mu must be held.
func (l *connection) setPending(pending int64) {
	l.pending = pending
	if l.charged > pending {
		l.f.Release(l.charged - pending)
		l.charged = pending
	}
}

// chargeMessage moves the count of a complete message of n bytes to its charge.
func (l *connection) chargeMessage(c *infer.Charge, n int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := max(0, l.pending-n)
	if rest < framingSlack { // framing
		rest = 0
	}
	if mine := min(n, l.charged-rest); mine > 0 {
		c.Adopt(mine)
		l.charged -= mine
	}
	l.setPending(rest)
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
