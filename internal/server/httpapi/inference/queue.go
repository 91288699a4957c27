package inference

import (
	"context"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/pool"
)

// queueLimit is how many responses a decoupled model may be ahead of its client.
const queueLimit = 4

// responseQueue is the Sink of a request with any number of responses. The model sends into it and the handler takes out, in the
// same order. Pace holds the model back while queueLimit responses wait, so that a slow client costs no memory.
type responseQueue struct {
	filled chan struct{} // has a token when a response may wait
	freed  chan struct{} // has a token when a producer may check for room

	mu     sync.Mutex
	list   []*infer.Response // guarded by mu
	closed bool              // guarded by mu
	err    error             // guarded by mu
}

var _ infer.Pacer = (*responseQueue)(nil)

// A token left over from an earlier request only causes one extra check, so a queue can be reused as soon as it is closed and
// empty.
var queues = pool.Of[responseQueue]{New: func() *responseQueue {
	return &responseQueue{filled: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}}

// release returns q to the pool. It must be closed and empty.
func (q *responseQueue) release() {
	q.mu.Lock()
	q.closed, q.err = false, nil
	q.mu.Unlock()
	queues.Put(q)
}

// wake adds a token unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Send implements infer.Sink.
//
// hot: no allocation once the list has grown.
func (q *responseQueue) Send(r *infer.Response) {
	q.mu.Lock()
	q.list = append(q.list, r)
	q.mu.Unlock()
	wake(q.filled)
}

// Close implements infer.Sink.
func (q *responseQueue) Close(err error) {
	q.mu.Lock()
	q.closed, q.err = true, err
	q.mu.Unlock()
	wake(q.filled)
}

// Pace waits until fewer than queueLimit responses wait.
func (q *responseQueue) Pace(ctx context.Context) error {
	for {
		q.mu.Lock()
		free := queueLimit - len(q.list)
		q.mu.Unlock()
		if free > 0 {
			if free > 1 {
				wake(q.freed) // for another producer
			}
			return ctx.Err()
		}
		select {
		case <-q.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Full reports whether queueLimit responses wait.
func (q *responseQueue) Full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) >= queueLimit
}

// next waits for the next response, which moves to the caller. After the last one it returns nil and the error of the request.
func (q *responseQueue) next() (*infer.Response, error) {
	for {
		q.mu.Lock()
		if len(q.list) > 0 {
			r := q.list[0]
			n := copy(q.list, q.list[1:])
			q.list[n] = nil
			q.list = q.list[:n]
			q.mu.Unlock()
			wake(q.freed)
			return r, nil
		}
		closed, err := q.closed, q.err
		q.mu.Unlock()
		if closed {
			return nil, err
		}
		<-q.filled
	}
}
