package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// stream is one ModelStreamInfer call. The method's goroutine sends, so that it can end the stream at any time; a
// second one receives and submits.
type stream struct {
	svc    *service
	ctx    context.Context //nolint:containedctx // a stream is one call, and its requests end with it
	cancel context.CancelFunc
	// plain closes the stream with a status at the first error, instead of sending a message.
	plain bool
	conn  *connection   // nil if nothing is limited
	wake  chan struct{} // has a token when there is something to send
	sends atomic.Int64  // of SendMsg, the calls and the returns: odd while it waits for the client
	waits atomic.Bool   // the receiver waits for room

	mu                       sync.Mutex
	first, last              *response   // ready to send; guarded by mu
	count, size              int         // responses in that queue, and their bytes; guarded by mu
	inFlightBytes, heldBytes int         // bytes of the requests in flight, and of responses that wait for earlier ones; guarded by mu
	head, tail               *streamCall // requests with ordered responses; guarded by mu
	open                     int         // requests without a final response; guarded by mu
	received                 bool        // nothing more is received; guarded by mu
	err                      error       // the reason, nil after the client's half-close; guarded by mu
	closed                   bool        // nothing more is sent; guarded by mu
	// room is closed when a decoupled model or the receiver may continue. Nil if none waits. guarded by mu
	room chan struct{}
}

// stallLooks is how often in the stall time the stream is looked at.
const stallLooks = 4

// modelStreamInfer handles ModelStreamInfer: any number of requests, until the client's half-close.
func modelStreamInfer(srv any, ss grpc.ServerStream) error {
	s := srv.(*service) //nolint:errcheck,forcetypeassert // registered as this
	st := &stream{svc: s, wake: make(chan struct{}, 1)}
	st.ctx, st.cancel = beforeDeadline(ss.Context())
	st.conn = connectionOf(ss.Context(), s.set.InFlight)
	st.plain = slices.Contains(metadata.ValueFromIncomingContext(ss.Context(), "triton_grpc_error"), "true")
	s.compress(ss.Context())
	s.streams.Add(1)
	s.set.Load.OpenStream()
	s.open.Add(1)
	defer func() {
		s.open.Add(-1)
		s.set.Load.CloseStream()
	}()
	go st.receive(ss)
	defer st.close()
	return st.watch(ss)
}

// watch sends responses until the stream ends, or until its client has taken nothing for a minute. A decoupled model, whose instance
// waits for the client, is free then.
func (st *stream) watch(ss grpc.ServerStream) error {
	sent := make(chan error, 1)
	go func() { sent <- st.send(ss) }()
	stall := cmp.Or(st.svc.set.StallTimeout, defaultStall)
	tick := time.NewTicker(stall / stallLooks)
	defer tick.Stop()
	for last, looks := int64(0), 0; ; {
		select {
		case err := <-sent:
			return err
		case <-st.svc.cut:
			return errCut
		case <-tick.C:
		}
		n := st.sends.Load()
		if looks++; n != last || n%2 == 0 {
			last, looks = n, 0
		}
		if looks >= stallLooks {
			st.closeCrowded()
			return grpcstatus.Errorf(codes.Unavailable, "the client has taken no response of this stream for %v: read responses while the requests are executed", stall)
		}
	}
}

// errCut is the status of a stream whose requests are not complete when the server stops.
var errCut = wireError(status.Reasonf(status.Draining, "GRPC server stopped before the requests of this stream were complete: send them again, to another server."))

// send sends responses as they become ready, until the stream ends.
func (st *stream) send(ss grpc.ServerStream) error {
	exit := st.svc.exit
	for {
		if deadlinePassed(st.ctx.Err()) {
			return wireError(st.ctx.Err()) // takes precedence over the failures that follow from it
		}
		r, err := st.next()
		switch {
		case err == io.EOF: //nolint:errorlint // take's own
			return nil
		case err != nil:
			return err
		case r != nil:
			st.sends.Add(1)
			err := ss.SendMsg(r)
			st.sends.Add(1)
			if err != nil {
				return err
			}
			continue
		}
		select {
		case <-st.wake:
		case <-exit:
			exit = nil // take knows
		case <-st.ctx.Done():
			return st.cause()
		}
	}
}

// cause returns why the stream was cancelled.
func (st *stream) cause() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return cmp.Or(st.err, wireError(st.ctx.Err()))
}

// next returns the next response, or the reason why there will be none (io.EOF for a normal end), or neither if the
// sender must wait.
func (st *stream) next() (*response, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if r := st.first; r != nil {
		st.pop(r)
		if err := r.status; err != nil {
			r.release()
			return nil, err
		}
		return r, nil
	}
	switch {
	case st.received && st.err != nil:
		return nil, st.err
	case st.open > 0:
		return nil, nil
	case st.received:
		return nil, io.EOF
	case st.svc.shuttingDown():
		return nil, refusal(st.ctx, errLeaving)
	}
	return nil, nil
}

// pop removes the first response from the queue. mu must be held.
func (st *stream) pop(r *response) {
	if st.first, r.next = r.next, nil; st.first == nil {
		st.last = nil
	}
	st.count--
	st.size -= r.size
	st.svc.set.InFlight.Release(int64(r.size))
	st.signalRoom()
}

// push queues a response, or releases it if nothing more is sent. mu must be held.
func (st *stream) push(r *response) {
	if r == nil {
		return
	}
	if st.closed {
		r.release()
		return
	}
	r.weigh()
	r.conn = st.conn
	if st.last == nil {
		st.first = r
	} else {
		st.last.next = r
	}
	st.last = r
	st.count++
	st.size += r.size
	st.svc.set.InFlight.Add(int64(r.size))
	st.signal()
}

func (st *stream) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// close cancels the requests in flight.
func (st *stream) close() {
	st.cancel()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	for r := st.first; r != nil; r = st.first {
		st.pop(r)
		r.release()
	}
	if st.room != nil {
		close(st.room)
		st.room = nil
	}
}

// receive submits the client's requests until there are no more.
func (st *stream) receive(ss grpc.ServerStream) {
	defer st.svc.streams.Done()
	var err error
	for err == nil {
		err = st.receiveOne(ss)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	st.mu.Lock()
	st.received, st.err = true, err
	st.mu.Unlock()
	if st.signal(); err != nil {
		st.cancel()
	}
}

// receiveOne receives and submits one request. Its error, or panic, ends the stream.
func (st *stream) receiveOne(ss grpc.ServerStream) (err error) {
	defer st.svc.recovered(methodStream, &err)
	st.awaitRoom()
	m, came := messages.Get(), st.svc.set.Tracer.Begin()
	if err = ss.RecvMsg(m); err == nil {
		err = st.request(m, came)
	}
	m.release()
	return err
}

// request submits one request. An error ends the stream.
func (st *stream) request(m *message, came tracing.Interval) error {
	d, size := decoder{svc: st.svc, msg: m, received: came}, m.data.Len()
	err := m.refused
	if err == nil {
		err = d.decode(st.ctx, false)
	} else {
		_ = m.scan() // its beginning has the id
		d.id = strings.ToValidUTF8(string(m.id), "")
	}
	if _, ok := err.(interface{ GRPCStatus() *grpcstatus.Status }); ok {
		return err
	}
	if err == nil && st.svc.shuttingDown() {
		d.req.Release()
		err = errLeaving
	}
	c := newStreamCall(st, &d)
	c.size = size
	st.begin(c)
	if err != nil {
		c.Close(err)
		return nil
	}
	d.req.Async, d.req.Early = true, true
	st.svc.set.Infer.Submit(st.ctx, d.req, c)
	return nil
}

// begin counts a request and adds it to the ordered ones.
func (st *stream) begin(c *streamCall) {
	st.svc.streams.Add(1)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.open++
	st.inFlightBytes += c.size
	if !c.ordered {
		return
	}
	if st.tail == nil {
		st.head = c
	} else {
		st.tail.next = c
	}
	st.tail = c
}

// queueResponse queues a response that need not wait for others.
func (st *stream) queueResponse(r *response) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.push(r)
}

// finish ends a request with its last response, or nil, and queues the responses that waited for it.
func (st *stream) finish(c *streamCall, r *response) {
	defer st.svc.streams.Done()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.open--
	st.inFlightBytes -= c.size
	st.signal()
	defer st.signalRoom()
	if !c.ordered {
		st.push(r)
		c.recycle()
		return
	}
	c.reply, c.done = r, true
	st.heldBytes += r.weigh()
	for first := st.head; first != nil && first.done; first = st.head {
		if st.head = first.next; st.head == nil {
			st.tail = nil
		}
		st.heldBytes -= first.reply.weigh()
		st.push(first.reply)
		first.recycle()
	}
}
