package grpcapi

import (
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// A call whose message does not come holds a goroutine, its headers and what has come of the message. grpc has no limit of time for that, so
// each connection has a list of calls that wait for their first message or for the rest of one, and looks at it a few times in the stall
// time while there are any.

const (
	// lateLooks is how often in the stall time a connection looks for late messages.
	lateLooks = 4
	// slowestRate is the rate in bytes per second at which a message must come, as over HTTP.
	slowestRate = 4 << 10
	// largeMessage is the number of bytes after which a client may pause for the stall time only, whatever its rate was.
	largeMessage = 1 << 20
)

// lateMessage is a message that a call waits for. await and forget bracket the wait.
type lateMessage struct {
	received atomic.Int64 // bytes of it

	// Guarded by the connection's mu.
	from  transportStream // of the call
	since uint32          // the look at which the wait began
	moved uint32          // the look that last saw more bytes
	seen  int64           // received at that look
	at    int             // index in the connection's list plus one; 0 when it is in none
}

// await begins the wait for a message, if it has not begun.
//
// hot: no allocation in steady state, and no clock.
func (l *connection) await(m *lateMessage, from transportStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.at != 0 || l.closed {
		return
	}
	l.late = append(l.late, m)
	m.received.Store(0)
	m.from, m.since, m.moved, m.seen, m.at = from, l.looks, l.looks, 0, len(l.late)
	if l.looking {
		return
	}
	l.looking = true
	if l.lateLook == nil {
		l.lateLook = time.AfterFunc(l.stall/lateLooks, l.lookForLate)
	} else {
		l.lateLook.Reset(l.stall / lateLooks)
	}
}

// forget ends the wait, if it has begun.
func (l *connection) forget(m *lateMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(m)
}

// remove removes a message from the list. mu must be held.
func (l *connection) remove(m *lateMessage) {
	if m.at == 0 {
		return
	}
	n := len(l.late) - 1
	l.late[m.at-1] = l.late[n]
	l.late[m.at-1].at = m.at
	l.late[n] = nil
	l.late = l.late[:n]
	m.from, m.at = nil, 0
}

// isLate reports whether a call has waited too long: for the stall time, and for the time that the bytes take at the slowest rate, or for a
// pause of the stall time in a large message. mu must be held.
func (l *connection) isLate(m *lateMessage) bool {
	received := m.received.Load()
	if received != m.seen {
		m.seen, m.moved = received, l.looks
	}
	perLook := slowestRate * max(1, int64(l.stall/time.Second)) / lateLooks
	return int64(l.looks-m.since) > lateLooks+received/perLook || received > largeMessage && l.looks-m.moved > lateLooks
}

// lateCall is a call that is to end because its message is late.
type lateCall struct {
	from     transportStream
	received int64
}

// lookForLate ends the calls whose messages are late.
func (l *connection) lookForLate() {
	l.mu.Lock()
	l.looks++
	var ended []lateCall
	for _, m := range slices.Clone(l.late) {
		if l.isLate(m) {
			ended = append(ended, lateCall{m.from, m.seen})
			l.remove(m)
		}
	}
	if l.looking = len(l.late) > 0 && !l.closed; l.looking {
		l.lateLook.Reset(l.stall / lateLooks)
	}
	l.mu.Unlock()
	for _, c := range ended {
		// It ends the call's wait. An error means that the client has left.
		_ = c.from.WriteStatus(c.status(l.stall))
	}
}

// status returns why the call ends.
func (c lateCall) status(stall time.Duration) *grpcstatus.Status {
	if c.received == 0 {
		return grpcstatus.Newf(codes.DeadlineExceeded, "no message of this call has come for %v: send it, and close calls that are not needed", stall)
	}
	return grpcstatus.Newf(codes.DeadlineExceeded,
		"the rest of a message of this call is late after %d bytes: send at least %d bytes per second, without a pause of %v", c.received, slowestRate, stall)
}
