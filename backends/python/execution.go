package python

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// executions are the batches in flight at a worker: one, unless the model is decoupled.
type executions struct {
	mu   sync.Mutex
	list []*execution // guarded by mu
}

func (l *executions) add(e *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, e)
}

func (l *executions) remove(e *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(x *execution) bool { return x == e })
}

// find returns the execution with the id of its EXECUTE packet, or nil when it has ended.
func (l *executions) find(id uint32) *execution {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if e.id == id {
			return e
		}
	}
	return nil
}

// caller returns the context, the trace and the client of the only request in flight, for calls that the model makes. The context is nil
// when there are none or several.
func (l *executions) caller() (ctx context.Context, trace tracing.Context, client *infer.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) != 1 {
		return nil, trace, nil
	}
	e := l.list[0]
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || len(e.batch.Requests) != 1 {
		return nil, trace, nil
	}
	q := &e.batch.Requests[0]
	if q.Meta != nil {
		client = q.Meta.Client
	}
	return q.Ctx, q.Trace.Context(q.Step, q.SubRun), client
}

func (l *executions) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) > 0
}

// execution is a batch in flight. Packets of the side channel refer to it.
type execution struct {
	id   uint32
	idle chan struct{} // receives a value when no request is open

	mu       sync.Mutex
	batch    *backends.Batch // nil after end; guarded by mu
	over     []bool          // for each request: its final response was handled; guarded by mu
	sent     []int           // for each request: the responses that response senders have sent; guarded by mu
	left     int             // number of open requests; guarded by mu
	lastSend chan struct{}   // closed when the last received response was delivered; nil before the first; guarded by mu

	deliverMu sync.Mutex // held while a response is delivered
}

func (e *execution) begin(id uint32, b *backends.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.idle:
	default:
	}
	e.id, e.batch, e.left = id, b, len(b.Requests)
	e.over = slices.Grow(e.over[:0], len(b.Requests))[:len(b.Requests)]
	clear(e.over)
	e.sent = slices.Grow(e.sent[:0], len(b.Requests))[:len(b.Requests)]
	clear(e.sent)
}

// responded counts a response of request i.
func (e *execution) responded(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i < len(e.sent) {
		e.sent[i]++
	}
}

// lost returns the error of request i after the worker has exited with err. It says whether the request may be sent again: one that has
// had responses gets them again then. e is nil when the batch was not sent, and
// times is how many workers have exited with its inputs.
func (e *execution) lost(i, times int, err error) error {
	after, sent := status.RetryAfter(err), 0
	if !lostWorker(err) {
		return err // another reason
	}
	if e != nil {
		e.mu.Lock()
		sent = e.sent[i]
		e.mu.Unlock()
	}
	if sent > 0 {
		return status.Errorf(status.Internal, "%s; it had sent %d responses, which come again if the request is sent again", err, sent)
	}
	return crash.Lost(err.Error(), after, times)
}

// raised is the error of an exception. It may have the delay of an error that the model has passed on; no worker was lost then.
type raised struct{ error }

// Unwrap returns the error.
func (r raised) Unwrap() error { return r.error }

// lostWorker reports whether err says that a worker has exited, or is not there, so that the request may be sent again.
func lostWorker(err error) bool {
	_, own := errors.AsType[raised](err)
	return !own && status.RetryAfter(err) > 0
}

// settled marks the final response of request i.
func (e *execution) settled(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i >= len(e.over) || e.over[i] {
		return
	}
	e.over[i] = true
	if e.left--; e.left == 0 {
		e.idle <- struct{}{}
	}
}

// end rejects further responses and waits until the current delivery is done. Nothing uses the batch afterwards.
func (e *execution) end() {
	e.mu.Lock()
	e.batch = nil
	e.mu.Unlock()
	e.deliverMu.Lock()
	e.deliverMu.Unlock() //nolint:staticcheck // it waits for the holder
}

// open reports whether any request lacks its final response.
func (e *execution) open() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left > 0
}

// wait waits until every request of the batch has its final response.
func (e *execution) wait(w *worker, b *backends.Batch) error {
	limit := w.m.b.set.timeout
	tick := min(time.Second, limit/2)
	t := time.NewTicker(tick)
	defer t.Stop()
	abandoned := time.Duration(0)
	for {
		select {
		case <-e.idle:
			return nil
		case <-w.ctx.Done():
			return w.lost(io.EOF)
		case <-t.C:
			if abandoned = e.abandonedFor(b, abandoned, tick); abandoned > limit {
				return status.ErrCancelled // the model may continue; its responses are dropped
			}
		}
	}
}

// abandonedFor returns how long all requests without a final response have been cancelled: soFar plus tick, or 0.
func (e *execution) abandonedFor(b *backends.Batch, soFar, tick time.Duration) time.Duration {
	for i := range b.Requests {
		if !e.ended(i) && abandonedFor(b.Requests[i:i+1], false, soFar, tick) == 0 {
			return 0
		}
	}
	return soFar + tick
}

// cancelled reports whether request i is cancelled or has ended. e may be nil.
func (e *execution) cancelled(id uint32, i int) bool {
	if e == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || e.id != id || i < 0 || i >= len(e.batch.Requests) {
		return true
	}
	return cancelledByCaller(e.batch.Requests[i].Ctx)
}

func (s *side) replyCancelled(p *packet) {
	r := reader{b: p.body}
	id, i := r.u32(), r.u32()
	flags := flagFinal
	if s.w.running.find(id).cancelled(id, int(i)) {
		flags |= flagTrue
	}
	s.reply(p.id, flags, nil)
}

// ended reports whether request i has its final response.
func (e *execution) ended(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return i < len(e.over) && e.over[i]
}

// sendHead is the number of bytes before the response in a SEND.
const sendHead = 8

// errOver is the reply to a response of a request that has ended. The worker's response sender refuses responses after the final
// one itself, so the request was cancelled, which is not an error of the model.
func errOver() error {
	return status.Errorf(status.Cancelled, "the request is over, it takes no more responses")
}

// deliver handles SEND: a response of a response sender.
func (w *worker) deliver(p *packet) error {
	r := reader{b: p.body}
	id, i := r.u32(), int(r.u32())
	var a response
	a.read(&r)
	defer func() { w.gpu.giveBackAll(appendRegions(nil, a.parts)) }()
	if r.bad {
		return status.Errorf(status.Internal, "unexpected response of %d bytes", len(p.body))
	}
	e := w.running.find(id)
	if e == nil {
		return errOver()
	}
	e.deliverMu.Lock()
	defer e.deliverMu.Unlock()
	e.mu.Lock()
	b := e.batch
	over := b == nil || e.id != id || i < 0 || i >= len(e.over) || e.over[i]
	e.mu.Unlock()
	if over {
		return errOver()
	}
	final := p.flags&flagFinal != 0 || !w.m.sig.Decoupled
	err := w.respond(b, i, &a, p, final)
	if err == nil && a.state == stateOK && w.m.sig.Decoupled {
		e.responded(i)
	}
	if final || status.CodeOf(err) == status.Cancelled && err != nil {
		e.settled(i)
	}
	return err
}

// respond sends a response to request i of a batch.
func (w *worker) respond(b *backends.Batch, i int, a *response, p *packet, final bool) error {
	m, q := w.m, &b.Requests[i]
	switch a.state {
	case stateError:
		b.SendError(i, a.err(), final)
		return nil
	case stateNone:
		return nil
	}
	mem, release := p.memory(sendHead, m.alloc)
	defer release()
	mem.gpu, mem.copied = w.gpu, b.Copied
	out := make([]tensor.Tensor, len(m.sig.Outputs))
	if err := m.outputs(a, &mem, q.Rows, out); err != nil {
		tensor.ReleaseAll(out)
		q.Err = err
		return err
	}
	if m.sig.Decoupled {
		return b.SendParams(i, out, a.params, final)
	}
	q.ResponseParams = append(q.ResponseParams, a.params...)
	q.Out = out
	return nil
}

// send delivers a response after the earlier ones of the same execution: threads of a model that send one after the other rely
// on the order.
func (s *side) send(p *packet) {
	deliver := func() { s.execute(p) } // it replies when the request has ended
	r := reader{b: p.body}
	if e := s.w.running.find(r.u32()); e != nil {
		deliver = e.inOrder(deliver)
	}
	s.w.sides.Go(deliver)
}

// inOrder returns a function that calls f once the functions that earlier calls have returned are done.
func (e *execution) inOrder(f func()) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, done := e.lastSend, make(chan struct{})
	e.lastSend = done
	return func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	}
}
