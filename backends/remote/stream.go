package remote

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// stream sends each request of a batch of a decoupled model on a separate stream, and passes the responses on as they arrive. A
// slow client slows its stream down by gRPC's flow control.
func (m *model) stream(ctx context.Context, b *backends.Batch) error {
	if len(b.Requests) == 1 {
		return m.streamOne(ctx, b, 0, b.In, nil)
	}
	var mu sync.Mutex // held while the batch is used
	m.each(ctx, b, func(ctx context.Context, b *backends.Batch, i int) error {
		err := m.streamOne(ctx, b, i, b.Requests[i].In, &mu)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			b.SendError(i, err, true)
		}
		return nil
	})
	return nil
}

// streamOne streams request i with those inputs. mu is held while the batch is used; it may be nil.
func (m *model) streamOne(ctx context.Context, b *backends.Batch, i int, in []tensor.Tensor, mu *sync.Mutex) error {
	members := b.Requests[i : i+1]
	ctx, stop := contextOf(ctx, members)
	defer stop()
	ctx, cancel := context.WithCancel(ctx) // ends the stream when a client stops reading
	defer cancel()
	x := m.requests.Get()
	ended := false // grpc uses x until the stream has ended; else the garbage collector frees it
	defer func() {
		if x.resp.free(); ended {
			m.recycle(x)
		}
	}()
	x.req.fill(members, in)
	limited, end := m.set.limited(ctx)
	defer end()
	s, err := m.channel.conn().NewStream(m.outgoing(limited, members), streamDesc, methodStream, x.options...)
	if err != nil {
		return m.set.callError(ctx, err, nil)
	}
	if err := errors.Join(s.SendMsg(&x.req), s.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return m.set.callError(ctx, err, nil) // RecvMsg knows the reason of io.EOF
	}
	x.resp.stream = true
	for {
		err := s.RecvMsg(&x.resp)
		ended = err != nil
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return m.set.callError(ctx, err, &x.call)
		}
		if err := m.deliver(b, i, x, mu); err != nil {
			return err
		}
	}
}

// deliver passes one response of a stream on.
func (m *model) deliver(b *backends.Batch, i int, x *exchange, mu *sync.Mutex) error {
	defer x.resp.free()
	if err := x.resp.scan(); err != nil {
		return x.resp.bad("is malformed (%v), expected a message of KServe v2", err)
	}
	if len(x.resp.failure) > 0 {
		return status.Errorf(status.Internal, "%s: %s", m.set.where(nil), x.resp.failure)
	}
	out := make([]tensor.Tensor, len(m.Sig.Outputs))
	if mu != nil {
		mu.Lock()
		defer mu.Unlock()
	}
	if len(x.resp.outputs) == 0 && x.resp.final {
		return nil // says only that nothing follows
	}
	if err := x.resp.tensors(b.Allocator, b.Requests[i].Rows, out); err != nil {
		return err
	}
	return b.SendParams(i, out, x.resp.params, x.resp.final)
}
