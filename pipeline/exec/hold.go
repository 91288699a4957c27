package exec

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
)

// entry is where requests wait before they begin, while Hold keeps them back.
type entry struct {
	closed  atomic.Bool // Hold was called
	waiting atomic.Int64

	mu   sync.Mutex
	list []waitingRequest // guarded by mu
}

type waitingRequest struct {
	ctx  context.Context //nolint:containedctx // of a request
	req  *infer.Request
	sink infer.Sink
}

// Hold keeps further requests waiting until Unhold. Those that have begun go on. The owner uses it to let an ensemble come to rest, for
// example when a model that it uses shall leave its device. One owner at a time may hold.
func (x *Executor) Hold() { x.entry.closed.Store(true) }

// Unhold begins the requests that wait, and those to come.
func (x *Executor) Unhold() {
	x.entry.mu.Lock()
	x.entry.closed.Store(false)
	list := x.entry.list
	x.entry.list = nil
	x.entry.mu.Unlock()
	x.entry.waiting.Add(-int64(len(list)))
	for _, w := range list {
		w.req.Async = true // this goroutine is not the request's
		x.begin(w.ctx, w.req, w.sink)
	}
}

// wait keeps a request that pending has counted, unless Unhold was called. It returns false then.
func (x *Executor) wait(ctx context.Context, req *infer.Request, sink infer.Sink) bool {
	x.entry.mu.Lock()
	defer x.entry.mu.Unlock()
	if !x.entry.closed.Load() {
		return false
	}
	x.entry.waiting.Add(1)
	x.entry.list = append(x.entry.list, waitingRequest{ctx, req, sink})
	return true
}
