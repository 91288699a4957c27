package rpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// stream is a call: a stream of HTTP/2. It is the grpc.ServerStream of its handler and the grpc.ServerTransportStream of its context.
//
// Lifecycle:
//
//  1. open adds it to its connection, when the headers have arrived.
//  2. serve calls its handler, once, on any goroutine.
//  3. finish sends the status, and drop or forget end the call without one. The first of them counts. After it, done is set, the
//     context is cancelled, and nothing more is received or sent but what waits for the client's window.
type stream struct {
	c      *conn
	id     uint32
	head   *head
	ctx    context.Context //nolint:containedctx // a stream is one call
	cancel context.CancelFunc
	stop   func() bool // of the deadline; nil without one
	whole  bool        // the message had arrived before the handler was called; set by the leader before that
	begun  bool        // the handler has been called, or must not be; owned by the leader

	// Of the handler.
	inflater     encoding.Compressor // nil if messages are not compressed
	deflater     encoding.Compressor
	deflaterName string
	received     bool // the first message

	// Guarded by the connection's mu.
	done   bool // the status is sent or the call was reset
	ended  bool // all messages have arrived
	in     inbox
	quota  int64 // bytes that the client may send
	taken  int64 // bytes that were read and that the client has no new window for
	out    []outgoing
	queued int    // bytes in out
	tail   []byte // the frames of the status, which follow out
	window int64  // bytes that the client accepts
	paused bool   // in the connection's list of streams with bytes to send

	sendCompress    string
	header, trailer metadata.MD
	headerSent      bool
	reads, writes   waiter // the handler waits for messages, and for room to send
}

var (
	_ grpc.ServerStream          = (*stream)(nil)
	_ grpc.ServerTransportStream = transportStream{}
)

// transportStream is the stream as the context of a call has it.
type transportStream struct{ *stream }

// SetTrailer adds to the trailers.
func (t transportStream) SetTrailer(md metadata.MD) error { return t.setTrailer(md) }

// waiter is a goroutine that waits for a change of its stream. Only one may wait. The fields are guarded by the connection's mu.
type waiter struct {
	wake    chan struct{} // has capacity 1
	waiting bool
}

// wait releases mu, waits for signal or the end of the call, and takes mu.
func (w *waiter) wait(mu *sync.Mutex, done <-chan struct{}) {
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	w.waiting = true
	mu.Unlock()
	select {
	case <-w.wake:
	case <-done:
	}
	mu.Lock()
	w.waiting = false
}

func (w *waiter) signal() {
	if w.waiting {
		w.waiting = false
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// open begins a call whose headers have arrived.
func (c *conn) open(id uint32, h *head, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maxID = id
	switch {
	case h.reset != 0:
		c.appendReset(id, h.reset)
		return
	case h.refusal != nil:
		c.appendRefusal(id, h.subtype, h.refusal, h.status, !last)
		return
	case c.draining:
		return // the client knows from GOAWAY
	case len(c.streams) >= c.srv.set.MaxStreams:
		c.appendReset(id, http2.ErrCodeRefusedStream)
		return
	case h.notPost != nil:
		c.appendRefusal(id, h.subtype, h.notPost, statusNotAllowed, !last)
		return
	}
	s := &stream{c: c, id: id, head: h, quota: int64(c.srv.set.Window), window: c.initial, ended: last}
	if h.timed {
		s.ctx, s.cancel = context.WithTimeout(h.ctx, h.timeout)
	} else {
		s.ctx, s.cancel = context.WithCancel(h.ctx)
	}
	if st := s.tap(); st != nil {
		s.cancel()
		c.appendRefusal(id, h.subtype, st, statusFine, !last)
		return
	}
	s.ctx = grpc.NewContextWithServerTransportStream(s.ctx, transportStream{s})
	c.streams[id] = s
	c.idle = 0
	c.keep.busy()
	if h.timed {
		s.stop = context.AfterFunc(s.ctx, s.expire)
	}
	switch {
	case h.method == nil:
		s.begun = true
		s.finishLocked(h.unknown())
	case last:
		s.begun, s.whole = true, true
		c.ready = append(c.ready, s)
	default:
		c.unstarted = append(c.unstarted, s)
	}
}

// tap returns why the call is refused. mu must be held.
func (s *stream) tap() *grpcstatus.Status {
	if handle := s.c.srv.set.Tap; handle != nil {
		ctx, err := handle(s.ctx, s.head.tapInfo())
		if err != nil {
			st, ok := grpcstatus.FromError(err)
			if !ok {
				st = grpcstatus.New(codes.PermissionDenied, err.Error())
			}
			return st
		}
		s.ctx = ctx
	}
	if s.ctx.Err() != nil {
		return grpcstatus.New(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	}
	return nil
}

// expire resets the call after its deadline.
func (s *stream) expire() {
	if !errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		return
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.done {
		c.resetLocked(s, http2.ErrCodeCancel)
		c.flush()
	}
}

// resetLocked ends a call with RST_STREAM. mu must be held.
func (c *conn) resetLocked(s *stream, code http2.ErrCode) {
	c.appendReset(s.id, code)
	c.forget(s)
}

// forget ends a call without a status, and forgets it. mu must be held.
func (c *conn) forget(s *stream) {
	s.drop()
	c.remove(s)
}

// drop ends a call without a status. mu must be held.
func (s *stream) drop() {
	s.done = true
	for i := range s.out {
		s.out[i].data.Free()
	}
	s.out, s.queued, s.tail = nil, 0, nil
	if c := s.c; s.paused {
		s.paused = false
		c.paused = slices.DeleteFunc(c.paused, func(p *stream) bool { return p == s })
	}
	s.release()
}

// release cancels the context and frees messages that are not read. mu must be held.
func (s *stream) release() {
	s.in.free()
	if s.stop != nil {
		s.stop()
	}
	s.cancel()
}

// remove removes a call of which nothing is left to send. mu must be held.
func (c *conn) remove(s *stream) {
	delete(c.streams, s.id)
	if len(c.streams) == 0 {
		c.keep.idle()
		c.depart()
	}
}

// finish sends the status of the call, with what the handler has sent before.
func (s *stream) finish(st *grpcstatus.Status) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.finishLocked(st)
	c.flush()
}

// finishLocked appends the status. mu must be held.
func (s *stream) finishLocked(st *grpcstatus.Status) {
	if s.done {
		return
	}
	c := s.c
	s.done = true
	if !c.appendStatus(s, st) {
		c.resetLocked(s, http2.ErrCodeInternal)
		return
	}
	s.release()
	if len(s.out) == 0 {
		c.remove(s)
	}
}

// WriteStatus ends the call with a status. It may be called by any goroutine.
func (s *stream) WriteStatus(st *grpcstatus.Status) error {
	s.finish(st)
	return nil
}

// over reports whether the call has ended, or will because its deadline has passed. mu must be held.
func (s *stream) over() bool { return s.done || s.ctx.Err() != nil }

// endError returns the error of a call that is over. mu must be held.
func (s *stream) endError() error {
	if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		return grpcstatus.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	}
	return grpcstatus.Error(codes.Canceled, context.Canceled.Error())
}

// Method returns the name of the method, for example "/grpc.health.v1.Health/Check".
func (s *stream) Method() string { return s.head.path }

// Context returns the context of the call.
func (s *stream) Context() context.Context { return s.ctx }

var errHeaderSent = grpcstatus.Error(codes.Internal, "transport: SendHeader called multiple times")

// SetHeader adds to the headers that precede the first message.
func (s *stream) SetHeader(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	if err := validate(md); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.headerSent || s.done {
		return errHeaderSent
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader sends the headers.
func (s *stream) SendHeader(md metadata.MD) error {
	if err := validate(md); err != nil {
		return err
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.done:
		return s.endError()
	case s.headerSent:
		return errHeaderSent
	}
	s.header = metadata.Join(s.header, md)
	err := c.sendHeader(s)
	c.flush()
	return err
}

// SetTrailer adds to the trailers, which follow the status.
func (s *stream) SetTrailer(md metadata.MD) { _ = s.setTrailer(md) }

func (s *stream) setTrailer(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.done {
		return errHeaderSent
	}
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// RecvCompress returns the name of the compression of the client's messages, empty for none.
func (s *stream) RecvCompress() string { return s.head.encoding }

// SetSendCompress selects the compression of the messages to the client.
func (s *stream) SetSendCompress(name string) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.headerSent || s.done {
		return errors.New("transport: set send compressor called after headers sent or stream done")
	}
	s.sendCompress = name
	return nil
}

// ClientAdvertisedCompressors returns the names of the compressions that the client accepts.
func (s *stream) ClientAdvertisedCompressors() []string {
	names := strings.Split(s.head.accepted, ",")
	for i, n := range names {
		names[i] = strings.TrimSpace(n)
	}
	return names
}

// ReadMessageHeader reads the five bytes before a message. It returns io.EOF at the end of the client's messages.
func (s *stream) ReadMessageHeader(header []byte) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for got := 0; ; {
		n := s.in.copy(header[got:])
		got += n
		s.returnWindow(n)
		switch {
		case got == len(header):
			return nil
		case s.over():
			return s.endError()
		case s.ended && got == 0:
			return io.EOF
		case s.ended:
			return io.ErrUnexpectedEOF
		}
		s.awaitData()
	}
}

// Read reads n bytes of a message.
func (s *stream) Read(n int) (data mem.BufferSlice, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		had := n
		data, n = s.in.move(data, n)
		s.returnWindow(had - n)
		switch {
		case n == 0:
			c.flush()
			return data, nil
		case s.over():
			err = s.endError()
		case s.ended:
			err = io.ErrUnexpectedEOF
			if len(data) == 0 {
				err = io.EOF
			}
		}
		if err != nil {
			data.Free()
			return nil, err
		}
		s.awaitData()
	}
}

// awaitData waits until bytes have arrived or none will. mu must be held.
func (s *stream) awaitData() {
	s.c.flush()
	for s.in.size == 0 && !s.ended && !s.over() { // also before the first wait: flush releases mu
		s.reads.wait(&s.c.mu, s.ctx.Done())
	}
}

// returnWindow lets the client send n more bytes of the call, in portions. mu must be held.
func (s *stream) returnWindow(n int) {
	if s.ended || s.done {
		return
	}
	if s.taken += int64(n); s.taken >= int64(s.c.srv.set.Window)/4 {
		s.c.appendWindowUpdate(s.id, uint32(s.taken)) //nolint:gosec // about a quarter of a window
		s.quota += s.taken
		s.taken = 0
	}
}

// take stores bytes of the client's messages. mu must be held.
func (s *stream) take(p []byte, last bool) {
	s.in.add(p, last)
	s.reads.signal()
}

// endMessages notes that all messages have arrived. mu must be held.
func (s *stream) endMessages() {
	s.ended = true
	s.reads.signal()
}
