package grpcapi

import (
	"cmp"
	"context"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// A stream bounds what waits for its client: a decoupled model waits in Pace, the receiver in awaitRoom. What waits is charged to the bytes in
// flight: a request that is executed, a response that is not sent, and what the transport holds of the requests that are not received.

const (
	// paceCount and paceSize bound the responses that wait for a slow client. Beyond them a decoupled model must
	// wait.
	paceCount = 32
	paceSize  = 8 << 20
	// maxPendingCount and maxPendingSize bound a stream's requests in flight and waiting responses. Beyond them no
	// more requests are received. They are far above the needs of clients that send everything before they read.
	maxPendingCount = 1 << 16
	maxPendingSize  = 128 << 20
	// requestCost is charged for each request of a stream besides its bytes, and for its response besides its tensors, refusalCost for an error.
	requestCost = 2 << 10
	refusalCost = 512
	// maxWaiting is how many streams of all connections may wait for room while there is none in flight for what the transport holds.
	maxWaiting = 32
	// roomLooks is how often in the stall time a stream that waits for room is looked at.
	roomLooks = 60
)

// awaitRoom waits until another request may be received. Meanwhile the transport holds up to window bytes of what the client sends, which are
// charged. Without room for them only maxWaiting streams may wait; the connection of a further one is closed, unless its client reads: the
// transport would hold the bytes of a stream that ends until its client reads the status.
func (st *stream) awaitRoom() {
	room, _ := st.roomOf((*stream).crowded)
	if room == nil {
		return
	}
	st.waits.Store(true)
	defer st.waits.Store(false)
	unread, over := st.svc.set.InFlight.Charge(), false
	defer unread.Release()
	if unread.Acquire(window) != nil {
		defer st.svc.waiting.Add(-1)
		over = st.svc.waiting.Add(1) > maxWaiting
	}
	look := time.NewTicker(cmp.Or(max(0, st.svc.set.StallTimeout), defaultStall) / roomLooks)
	defer look.Stop()
	for looks := 0; room != nil; room, _ = st.roomOf((*stream).crowded) {
		select {
		case <-room:
		case <-st.ctx.Done():
			return // RecvMsg has the reason
		case <-look.C:
			if looks++; over && looks > 1 {
				st.closeCrowded()
				return
			}
		}
	}
}

// closeCrowded closes the connection of a stream whose receiver waits for room.
func (st *stream) closeCrowded() {
	if st.waits.Load() && st.conn != nil {
		_ = st.conn.Close() // the transport ends its calls
	}
}

// signalRoom wakes those that wait for room. mu must be held.
func (st *stream) signalRoom() {
	if st.room != nil && st.count <= paceCount/2 && st.size <= paceSize/2 {
		close(st.room)
		st.room = nil
	}
}

// unread reports whether a decoupled model must wait for the client to read. mu must be held.
func (st *stream) unread() bool { return st.count >= paceCount || st.size >= paceSize }

// crowded reports whether too much is in flight or unread to receive more requests. While there is no room for requests, each is refused with a
// response: a client that does not read those must not have more. mu must be held.
func (st *stream) crowded() bool {
	return st.open+st.count >= maxPendingCount || st.inFlightBytes+st.heldBytes+st.size >= maxPendingSize ||
		st.count >= paceCount && st.svc.set.InFlight.Full()
}

// waitForRoom waits while full is true and the stream is open.
func (st *stream) waitForRoom(ctx context.Context, full func(*stream) bool) error {
	for {
		room, err := st.roomOf(full)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-st.ctx.Done():
			return st.ctx.Err()
		}
	}
}

// roomOf returns a channel that signalRoom closes, or nil if full is false or, with an error, nothing more is sent.
func (st *stream) roomOf(full func(*stream) bool) (<-chan struct{}, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.closed:
		return nil, status.ErrCancelled
	case !full(st):
		return nil, nil
	case st.room == nil:
		st.room = make(chan struct{})
	}
	return st.room, nil
}
