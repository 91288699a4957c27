package grpcapi

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/tutti-server/tutti/core/infer"
)

// line is a connection that counts what comes in of messages that are not complete
// yet: grpc tells of a message only when it has all of it. One that brings more while
// too much is in flight ends, for there is no way to refuse one of its calls.
type line struct {
	net.Conn
	f *infer.InFlight

	mu        sync.Mutex
	pending   int64 // bytes that are charged to no message yet; guarded by mu
	charged   int64 // those of them that f counts; guarded by mu
	receiving int   // calls that wait for a message, far below zero once closed; guarded by mu
	// The reader's own: how long a client may send nothing of a large message, and when
	// the deadline for that was set, zero for none.
	stall time.Duration
	set   time.Time
	more  bool // whether the last bytes were of something large
}

const (
	// lineSlack is how much of a line's bytes may be what is around messages, or small
	// ones: less than that ends no connection.
	lineSlack = 1 << 20
	// lineStep is how many bytes are counted at a time, so that small messages are not.
	lineStep = 64 << 10
	// defaultStall is how long a client may send nothing of a message of which it has
	// sent more than lineSlack.
	defaultStall = time.Minute
	// lineClosed is below any number of calls.
	lineClosed = math.MinInt32 / 2
)

// Read counts what it reads while a call waits for it.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.read(p)
	if l.more = n > 0 && l.came(int64(n)); !l.more {
		return n, err
	}
	if full := l.f.Exceeded(); full != nil {
		return 0, full
	}
	return n, err
}

// came counts n bytes, and reports whether they are of something large.
func (l *line) came(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.receiving <= 0 {
		return false
	}
	l.pending += n
	if l.pending-l.charged >= lineStep {
		l.f.Add(l.pending - l.charged)
		l.charged = l.pending
	}
	return l.pending > lineSlack
}

// large reports whether the bytes of something large have come.
func (l *line) large() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending > lineSlack
}

// read gives a client who has sent some of a large message the time to send more.
func (l *line) read(p []byte) (int, error) {
	for {
		if l.more {
			l.wait()
		}
		n, err := l.Conn.Read(p)
		if n > 0 || l.set.IsZero() || !errors.Is(err, os.ErrDeadlineExceeded) || l.large() {
			return n, err
		}
		// The message was complete: nothing is waited for any more.
		l.set, l.more = time.Time{}, false
		if err := l.SetReadDeadline(l.set); err != nil {
			return 0, err
		}
	}
}

// wait moves the deadline, now and then.
func (l *line) wait() {
	now := time.Now()
	if now.Sub(l.set) < l.stall/4 {
		return
	}
	l.set = now
	_ = l.SetReadDeadline(now.Add(l.stall)) // what fails here, fails in Read
}

// Close gives back what has come.
func (l *line) Close() error {
	l.wants(lineClosed)
	return l.Conn.Close()
}

// wants changes the number of calls that wait for messages; with the last one, what
// has come is forgotten.
func (l *line) wants(calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.receiving += calls; l.receiving <= 0 {
		l.keep(0)
	}
}

// keep forgets all but pending of the bytes that have come; mu is held.
func (l *line) keep(pending int64) {
	l.pending = pending
	if l.charged > pending {
		l.f.Release(l.charged - pending)
		l.charged = pending
	}
}

// begin has bytes counted, for a call that waits for messages.
func (l *line) begin() {
	if l != nil {
		l.wants(1)
	}
}

// end takes begin back.
func (l *line) end() {
	if l != nil {
		l.wants(-1)
	}
}

// settle charges a message of n bytes that is complete with what was counted of it.
func (l *line) settle(c *infer.Charge, n int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := max(0, l.pending-n)
	if rest < lineSlack { // what is around messages
		rest = 0
	}
	if mine := min(n, l.charged-rest); mine > 0 {
		c.Adopt(mine)
		l.charged -= mine
	}
	l.keep(rest)
}

// lineOf returns the line of a call, nil when nothing is limited.
func lineOf(ctx context.Context, f *infer.InFlight) *line {
	if f.Limit() == 0 {
		return nil
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(lined); ok {
			return info.line
		}
	}
	return nil
}

// lined is what a call knows of its connection.
type lined struct {
	credentials.AuthInfo
	line *line
}

// lines makes a line of every connection, within its encryption.
type lines struct {
	credentials.TransportCredentials
	f     *infer.InFlight
	stall time.Duration
}

// counted returns credentials that count what comes in; nil is none.
func counted(c credentials.TransportCredentials, f *infer.InFlight, stall time.Duration) credentials.TransportCredentials {
	if f.Limit() == 0 {
		return c
	}
	if c == nil {
		c = insecure.NewCredentials()
	}
	if stall <= 0 {
		stall = defaultStall
	}
	return lines{c, f, stall}
}

// ServerHandshake makes the line.
func (c lines) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	l := &line{Conn: conn, f: c.f, stall: c.stall}
	return l, lined{info, l}, nil
}

// Clone is what grpc copies credentials with.
func (c lines) Clone() credentials.TransportCredentials {
	return lines{c.TransportCredentials.Clone(), c.f, c.stall}
}
