package httpapi

import (
	"context"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/pool"
)

// aheadLimit is how many answers a decoupled model may be ahead of its client.
const aheadLimit = 4

// answers is the Sink of a request with any number of answers: the model puts them
// in, the handler takes them out in the same order, and a model that is ahead of its
// client is held back in Pace, so that a slow client costs no memory.
type answers struct {
	some chan struct{} // a token: there is something to take
	room chan struct{} // a token: a producer may look again

	mu     sync.Mutex
	queue  []*infer.Response // guarded by mu
	closed bool              // guarded by mu
	err    error             // guarded by mu
}

var _ infer.Pacer = (*answers)(nil)

// A stray token of a request before only makes somebody look in vain, so that
// answers can be used again as soon as they are closed and empty.
var answerPool = pool.Of[answers]{New: func() *answers {
	return &answers{some: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}}

func newAnswers() *answers { return answerPool.Get() }

// release returns a, from which everything has been taken, for reuse.
func (a *answers) release() {
	a.mu.Lock()
	a.closed, a.err = false, nil
	a.mu.Unlock()
	answerPool.Put(a)
}

// wake leaves a token unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Send keeps an answer for the handler.
//
// hot: no allocation once the queue has grown.
func (a *answers) Send(r *infer.Response) {
	a.mu.Lock()
	a.queue = append(a.queue, r)
	a.mu.Unlock()
	wake(a.some)
}

// Close ends the answers.
func (a *answers) Close(err error) {
	a.mu.Lock()
	a.closed, a.err = true, err
	a.mu.Unlock()
	wake(a.some)
}

// Pace returns when fewer than aheadLimit answers wait to be taken.
func (a *answers) Pace(ctx context.Context) error {
	for {
		a.mu.Lock()
		free := aheadLimit - len(a.queue)
		a.mu.Unlock()
		if free > 0 {
			if free > 1 {
				wake(a.room) // for whoever else waits
			}
			return ctx.Err()
		}
		select {
		case <-a.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Full reports whether aheadLimit answers wait to be taken.
func (a *answers) Full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue) >= aheadLimit
}

// next waits for the next answer, which moves to the caller. After the last one it
// returns nil and how the request ended.
func (a *answers) next() (*infer.Response, error) {
	for {
		a.mu.Lock()
		if len(a.queue) > 0 {
			r := a.queue[0]
			n := copy(a.queue, a.queue[1:])
			a.queue[n] = nil
			a.queue = a.queue[:n]
			a.mu.Unlock()
			wake(a.room)
			return r, nil
		}
		closed, err := a.closed, a.err
		a.mu.Unlock()
		if closed {
			return nil, err
		}
		<-a.some
	}
}
