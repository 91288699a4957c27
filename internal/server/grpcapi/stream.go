package grpcapi

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// stream is a ModelStreamInfer under way. The method's own goroutine sends, so that it
// can end the stream whatever the client does; another one receives and submits.
type stream struct {
	svc    *service
	ctx    context.Context //nolint:containedctx // a stream is one call, and its requests end with it
	cancel context.CancelFunc
	// plain closes the stream with a status at the first error, which is else a
	// message among others.
	plain bool
	line  *line         // nil when nothing is limited
	wake  chan struct{} // has a token when there is something for the sender

	mu          sync.Mutex
	first, last *reply      // what can be sent now; guarded by mu
	count, size int         // of these replies, in bytes; guarded by mu
	under, kept int         // bytes of the requests under way and of the replies that wait for earlier ones; guarded by mu
	head, tail  *streamCall // requests whose answers keep their order; guarded by mu
	live        int         // requests without an end yet; guarded by mu
	received    bool        // whether nothing more is received; guarded by mu
	err         error       // why, nil after the client's half-close; guarded by mu
	closed      bool        // whether nothing more is sent; guarded by mu
	// room is closed when a decoupled model or the receiver may look again; nil when
	// none waits. guarded by mu
	room chan struct{}
}

const (
	// paceCount and paceSize bound the answers that wait for a slow client before a
	// decoupled model has to wait too.
	paceCount = 32
	paceSize  = 8 << 20
	// holdCount and holdSize bound a stream's requests under way and the answers that
	// wait for a slow client, before no more requests are received. They are far above
	// what clients have that send first and read later.
	holdCount = 1 << 16
	holdSize  = 128 << 20
)

// modelStreamInfer answers any number of requests, until the client's half-close.
func modelStreamInfer(srv any, ss grpc.ServerStream) error {
	s := srv.(*service) //nolint:errcheck,forcetypeassert // registered as this
	st := &stream{svc: s, wake: make(chan struct{}, 1)}
	st.ctx, st.cancel = inTime(ss.Context())
	st.line = lineOf(ss.Context(), s.set.InFlight)
	st.plain = slices.Contains(incoming(ss.Context())["triton_grpc_error"], "true")
	s.compress(ss.Context())
	s.streams.Add(1)
	go st.receive(ss)
	defer st.close()
	return st.send(ss)
}

// send sends what is ready, until there is nothing more to come.
func (st *stream) send(ss grpc.ServerStream) error {
	exit := st.svc.exit
	for {
		if overdue(st.ctx.Err()) {
			return errDeadline // before the failures that come of it
		}
		r, err := st.take()
		switch {
		case err == io.EOF: //nolint:errorlint // take's own
			return nil
		case err != nil:
			return err
		case r != nil:
			if err := ss.SendMsg(r); err != nil {
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
	return firstError(st.err, wireError(st.ctx.Err()))
}

// take returns the next reply, or why there will be none, io.EOF when all is well, or
// neither when it is to be waited for.
func (st *stream) take() (*reply, error) {
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
	case st.live > 0:
		return nil, nil
	case st.received:
		return nil, io.EOF
	case st.svc.leaving():
		return nil, wireError(errLeaving)
	}
	return nil, nil
}

// pop takes the first reply off the queue; mu is held.
func (st *stream) pop(r *reply) {
	if st.first, r.next = r.next, nil; st.first == nil {
		st.last = nil
	}
	st.count--
	st.size -= r.size
	st.svc.set.InFlight.Release(int64(r.size))
	st.giveRoom()
}

// giveRoom has those look again who wait for room; mu is held.
func (st *stream) giveRoom() {
	if st.room != nil && st.count <= paceCount/2 && st.size <= paceSize/2 {
		close(st.room)
		st.room = nil
	}
}

// push queues a reply, unless nobody sends any more; mu is held.
func (st *stream) push(r *reply) {
	if r == nil {
		return
	}
	if st.closed {
		r.release()
		return
	}
	r.weigh()
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

// close cancels the requests under way, whose answers nobody will have.
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
	st.line.begin()
	defer st.line.end()
	for {
		if err := st.receiveOne(ss); err != nil {
			st.end(err)
			return
		}
	}
}

// receiveOne receives and submits one request. Its error, or its panic, ends the stream.
func (st *stream) receiveOne(ss grpc.ServerStream) (err error) {
	defer st.svc.recovered(methodStream, &err)
	st.hold()
	m, came := newMessage(), st.svc.set.Tracer.Begin()
	if err = ss.RecvMsg(m); err == nil {
		err = st.request(m, came)
	}
	m.release()
	return err
}

// end notes that nothing more is received.
func (st *stream) end(err error) {
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

// request submits one request. Its error is one that ends the stream.
func (st *stream) request(m *message, came tracing.Interval) error {
	d, size := decoder{svc: st.svc, msg: m, came: came}, m.data.Len()
	err := d.admit(st.line)
	if err == nil {
		err = d.decode(st.ctx, false)
	}
	if _, ok := err.(interface{ GRPCStatus() *grpcstatus.Status }); ok {
		return err
	}
	if err == nil && st.svc.leaving() {
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
	d.req.Async = true
	st.svc.set.Infer.Submit(st.ctx, d.req, c)
	return nil
}

// begin counts a request and gives it its place.
func (st *stream) begin(c *streamCall) {
	st.svc.streams.Add(1)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.live++
	st.under += c.size
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

// answer queues an answer that need not wait for others.
func (st *stream) answer(r *reply) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.push(r)
}

// finish ends a request with its last reply, or nil for none, and queues the answers
// that waited for it.
func (st *stream) finish(c *streamCall, r *reply) {
	defer st.svc.streams.Done()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.live--
	st.under -= c.size
	st.signal()
	defer st.giveRoom()
	if !c.ordered {
		st.push(r)
		c.recycle()
		return
	}
	c.reply, c.done = r, true
	st.kept += r.weigh()
	for first := st.head; first != nil && first.done; first = st.head {
		if st.head = first.next; st.head == nil {
			st.tail = nil
		}
		st.kept -= first.reply.weigh()
		st.push(first.reply)
		first.recycle()
	}
}

// pace waits until the client has taken enough of what is queued.
func (st *stream) pace(ctx context.Context) error {
	for {
		room, err := st.full()
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

// crowded reports whether pace would wait.
func (st *stream) crowded() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.closed && (st.count >= paceCount || st.size >= paceSize)
}

// full returns what to wait for when too much is queued.
func (st *stream) full() (<-chan struct{}, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, status.ErrCancelled
	}
	if st.count < paceCount && st.size < paceSize {
		return nil, nil
	}
	return st.wait(), nil
}

// hold waits while the client has so much under way or unread that it may send no more.
func (st *stream) hold() {
	for room := st.flooded(); room != nil; room = st.flooded() {
		select {
		case <-room:
		case <-st.ctx.Done():
			return
		}
	}
}

// flooded returns what hold has to wait for, nil for nothing.
func (st *stream) flooded() <-chan struct{} {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.live+st.count < holdCount && st.under+st.kept+st.size < holdSize {
		return nil
	}
	return st.wait()
}

// wait returns a channel that giveRoom closes; mu is held.
func (st *stream) wait() <-chan struct{} {
	if st.room == nil {
		st.room = make(chan struct{})
	}
	return st.room
}
