package square

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Execute sends to each request the number of responses that its input asks for.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	counts := tensor.Slice[int32](&b.In[0])
	if !x.sig.Decoupled {
		return x.respondOnce(b, counts)
	}
	b.Detach()
	list := make([]request, 0, len(b.Requests))
	for i := range b.Requests {
		q := &b.Requests[i]
		if q.Rows > 1 {
			q.Err = status.Errorf(status.InvalidArg, "unexpected shape for IN input")
			continue
		}
		if n := int64(counts[q.First]); n > 0 {
			list = append(list, request{i: i, n: n})
		}
	}
	for len(list) > 0 {
		list = x.round(ctx, b, list)
	}
	return nil
}

// respondOnce sets the single response of each request of a model that is not decoupled.
func (*instance) respondOnce(b *backends.Batch, counts []int32) error {
	for i := range b.Requests {
		if n := counts[b.Requests[i].First]; n != 1 && b.Requests[i].Err == nil {
			b.Requests[i].Err = status.Errorf(status.Internal, "expected a single response, got %d", max(n, 0))
		}
	}
	out, err := b.Alloc(0, tensor.Int32, b.In[0].Shape)
	if err == nil {
		copy(tensor.Slice[int32](out), counts)
	}
	return err
}

// request is a request of the batch with responses left: e of n are done.
type request struct {
	i    int
	e, n int64
}

// round sends the next response of each request and returns the requests that have more. One delay covers the
// responses of all requests.
func (x *instance) round(ctx context.Context, b *backends.Batch, list []request) []request {
	next := list[:0]
	sleep(ctx, b.Requests, x.params.infer)
	waited := false
	for _, r := range list {
		q := &b.Requests[r.i]
		if q.Err = x.fails(ctx, q, r); q.Err == nil && r.e < r.n-x.params.empty {
			if !waited {
				waited = true
				sleep(ctx, b.Requests, x.params.output)
			}
			q.Err = x.send(b, r)
		}
		if r.e++; q.Err == nil && r.e < r.n {
			next = append(next, r)
		}
	}
	return next
}

// fails returns the error that ends a request before its next response, or nil.
func (x *instance) fails(ctx context.Context, q *backends.Request, r request) error {
	p := &x.params
	switch {
	case ctx.Err() != nil, q.Ctx != nil && q.Ctx.Err() != nil:
		sleep(context.WithoutCancel(ctx), nil, p.cancel)
		return status.ErrCancelled
	case r.e >= r.n-p.empty-p.fail && r.e < r.n-p.empty:
		return status.Errorf(status.Unknown, "simulated failure")
	}
	return nil
}

// send sends the next response of a request.
func (x *instance) send(b *backends.Batch, r request) error {
	shape := tensor.Of(1)
	if x.sig.MaxBatch > 0 {
		shape = tensor.Of(1, 1)
	}
	out, err := tensor.New(b.Allocator, tensor.Int32, shape)
	if err != nil {
		return err
	}
	tensor.Slice[int32](&out)[0] = int32(r.n)
	return b.Send(r.i, []tensor.Tensor{out}, false)
}

// sleep waits for d, or until the batch, or the only request of the batch, is cancelled.
func sleep(ctx context.Context, reqs []backends.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	gone := ctx.Done()
	if len(reqs) == 1 && reqs[0].Ctx != nil {
		gone = reqs[0].Ctx.Done()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-gone:
	}
}
