package python

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
)

// executions are those that a worker has at hand: one, unless the model is decoupled.
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
	if i := slices.Index(l.list, e); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
}

// find returns the execution of an EXECUTE, nil when it is over.
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

// context returns that of the only request at hand, else nil.
func (l *executions) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) != 1 {
		return nil
	}
	return l.list[0].context()
}

// trace returns what makes a call part of the trace of the only request at hand.
func (l *executions) trace() tracing.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) != 1 {
		return tracing.Context{}
	}
	return l.list[0].trace()
}

func (l *executions) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) > 0
}

// execution is a batch that a worker executes, for what other threads of the worker say about it.
type execution struct {
	id   uint32
	idle chan struct{} // gets one when nothing is open any more

	mu        sync.Mutex
	batch     *backends.Batch // nil when it takes no more answers; guarded by mu
	decoupled bool            // guarded by mu
	over      []bool          // by request: its last answer is there; guarded by mu
	left      int             // guarded by mu
	sending   int             // answers being handed on; guarded by mu

	turn  sync.Mutex // of handing on an answer
	sends sends
}

func newExecution() *execution { return &execution{idle: make(chan struct{}, 1)} }

func (e *execution) begin(id uint32, b *backends.Batch, decoupled bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.idle:
	default:
	}
	e.id, e.batch, e.decoupled, e.left = id, b, decoupled, len(b.Requests)
	e.over = e.over[:0]
	for range b.Requests {
		e.over = append(e.over, false)
	}
}

func (e *execution) context() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || len(e.batch.Requests) != 1 {
		return nil
	}
	return e.batch.Requests[0].Ctx
}

func (e *execution) trace() tracing.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || len(e.batch.Requests) != 1 {
		return tracing.Context{}
	}
	q := &e.batch.Requests[0]
	return q.Trace.Context(q.Step, q.SubRun)
}

// settled says that request i has its last answer.
func (e *execution) settled(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settle(i)
}

// settle is settled for whoever holds mu.
func (e *execution) settle(i int) {
	if i < len(e.over) && !e.over[i] {
		e.over[i] = true
		e.left--
	}
	e.signal()
}

func (e *execution) signal() {
	if e.left == 0 && e.sending == 0 {
		select {
		case e.idle <- struct{}{}:
		default:
		}
	}
}

// end takes no more answers and waits for one being handed on: nobody uses the batch after that.
func (e *execution) end() {
	e.mu.Lock()
	e.batch = nil
	busy := e.sending > 0
	e.mu.Unlock()
	if busy {
		e.turn.Lock()   // whoever hands on an answer has it
		e.turn.Unlock() //nolint:staticcheck // having had the turn is all
	}
}

// open reports whether responses are still to come.
func (e *execution) open() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left > 0 || e.sending > 0
}

// wait waits until all requests of an instance's batch have their last answer.
func (e *execution) wait(w *worker, b *backends.Batch) error {
	limit := w.m.b.set.timeout
	tick := min(time.Second, limit/2)
	t := time.NewTicker(tick)
	defer t.Stop()
	over := time.Duration(0)
	for {
		select {
		case <-e.idle:
			return nil
		case <-w.ctx.Done():
			return w.gone(io.EOF)
		case <-t.C:
			if over = patience(b, over, tick); over > limit {
				return status.ErrCancelled // the model may go on, in vain
			}
		}
	}
}

// cancelled reports whether nobody waits for a request any more.
func (e *execution) cancelled(id uint32, i int) bool {
	if e == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || e.id != id || i < 0 || i >= len(e.batch.Requests) {
		return true
	}
	return unwanted(e.batch.Requests[i].Ctx)
}

func (s *side) tellCancelled(p *packet) {
	r := reader{b: p.body}
	id, i := r.u32(), r.u32()
	flags := flagFinal
	if s.w.running.find(id).cancelled(id, int(i)) {
		flags |= flagYes
	}
	s.reply(p.id, flags, nil)
}

// ended reports whether request i has its last response.
func (e *execution) ended(i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return i < len(e.over) && e.over[i]
}

// enter returns the batch of an execution for an answer to request i, which leave ends.
func (e *execution) enter(id uint32, i int) (*backends.Batch, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || e.id != id || i < 0 || i >= len(e.over) || e.over[i] {
		return nil, false, errOver()
	}
	e.sending++
	return e.batch, e.decoupled, nil
}

func (e *execution) leave(i int, final bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sending--
	if final {
		e.settle(i)
	}
	e.signal()
}

// sendHead is what stands before the answer of a SEND.
const sendHead = 8

// errOver is the reply to a response that nobody waits for any more. The sender of a worker knows when it has sent the last one,
// so the request was given up by others, which is no fault of the model's.
func errOver() error {
	return status.Errorf(status.Cancelled, "the request is over, it takes no more responses")
}

// deliver hands on what a response sender sends.
func (w *worker) deliver(p *packet) error {
	r := reader{b: p.body}
	id, i := r.u32(), int(r.u32())
	var a answer
	a.read(&r)
	if r.bad {
		return status.Errorf(status.Internal, "unexpected response of %d bytes", len(p.body))
	}
	e := w.running.find(id)
	if e == nil {
		return errOver()
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	b, decoupled, err := e.enter(id, i)
	if err != nil {
		return err
	}
	final := p.flags&flagFinal != 0 || !decoupled
	err = w.m.hand(b, i, &a, p, decoupled, final)
	e.leave(i, final || status.CodeOf(err) == status.Cancelled && err != nil)
	return err
}

// hand gives request i of a batch one answer.
func (m *model) hand(b *backends.Batch, i int, a *answer, p *packet, decoupled, final bool) error {
	q := &b.Requests[i]
	switch a.state {
	case stateError:
		b.SendError(i, a.err(), final)
		return nil
	case stateNone:
		return nil
	}
	mem := memory{mem: p.body[sendHead:], alloc: m.alloc, base: sendHead}
	if p.mapped {
		buf := newMapping(p)
		defer buf.Release()
		mem.keep = func() *tensor.Buffer { return buf }
	}
	out := make([]tensor.Tensor, len(m.sig.Outputs))
	if err := m.outputs(a, &mem, q.Rows, out); err != nil {
		tensor.ReleaseAll(out)
		q.Err = err
		return err
	}
	if decoupled {
		return b.SendParams(i, out, a.params, final)
	}
	q.ResponseParams = append(q.ResponseParams, a.params...)
	q.Out = out
	return nil
}
