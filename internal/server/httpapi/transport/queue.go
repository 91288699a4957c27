package transport

import (
	"context"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/pool"
)

// queueLimit is how many responses decoupled models may be ahead of their client.
const queueLimit = 4

// Queue is the Sink of requests with any number of responses, which it has for the handler in the order in which they came. Pace holds the
// models back while queueLimit responses wait, so that a slow client costs no memory.
//
// Lifecycle:
//
//  1. NewQueue. It is the Sink of one request; Sink returns those of others.
//  2. The handler calls Next until it has the end of each request, and releases the responses.
//  3. Release returns the memory. It may be called with all ends taken only.
type Queue struct {
	filled chan struct{} // has a token when an event may wait
	freed  chan struct{} // has a token when a producer may check for room

	mu   sync.Mutex
	list []Event // guarded by mu
}

// Event is a response to one of the requests of a Queue, or the end of the request.
type Event struct {
	Request  int             // as in Sink, 0 for that of the Queue itself
	Response *infer.Response // nil at the end
	Err      error           // of the request, at its end
}

var _, _ infer.Pacer = (*Queue)(nil), queueSink{}

// A token left over from an earlier request only causes one extra check, so a queue can be reused as soon as it is empty.
var queues = pool.Of[Queue]{New: func() *Queue {
	return &Queue{filled: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}}

// NewQueue returns an empty queue.
func NewQueue() *Queue { return queues.Get() }

// Release returns q to the pool.
func (q *Queue) Release() { queues.Put(q) }

// Sink returns the Sink of a further request.
func (q *Queue) Sink(request int) infer.Pacer { return queueSink{q, request} }

type queueSink struct {
	*Queue

	request int
}

func (s queueSink) Send(r *infer.Response) { s.add(Event{Request: s.request, Response: r}) }
func (s queueSink) Close(err error)        { s.add(Event{Request: s.request, Err: err}) }

// Send implements infer.Sink.
//
// hot: no allocation once the list has grown.
func (q *Queue) Send(r *infer.Response) { q.add(Event{Response: r}) }

// Close implements infer.Sink.
func (q *Queue) Close(err error) { q.add(Event{Err: err}) }

func (q *Queue) add(e Event) {
	q.mu.Lock()
	q.list = append(q.list, e)
	q.mu.Unlock()
	wake(q.filled)
}

// wake adds a token unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Pace waits until fewer than queueLimit responses wait.
func (q *Queue) Pace(ctx context.Context) error {
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
func (q *Queue) Full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) >= queueLimit
}

// Next waits for the next event, whose response moves to the caller. It returns ErrCut instead when cut is closed.
func (q *Queue) Next(cut <-chan struct{}) (Event, error) {
	for {
		select {
		case <-cut:
			return Event{}, ErrCut
		default:
		}
		q.mu.Lock()
		if len(q.list) > 0 {
			e := q.list[0]
			n := copy(q.list, q.list[1:])
			q.list[n] = Event{}
			q.list = q.list[:n]
			q.mu.Unlock()
			wake(q.freed)
			return e, nil
		}
		q.mu.Unlock()
		select {
		case <-q.filled:
		case <-cut:
			return Event{}, ErrCut
		}
	}
}
