package python

import (
	"io"
	"sync"
	"time"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
)

// execution is the batch that a worker executes, for what other threads of the worker say about it.
type execution struct {
	idle chan struct{} // gets one when nothing is open any more

	mu        sync.Mutex
	id        uint32          // guarded by mu
	batch     *backends.Batch // nil between executions; guarded by mu
	decoupled bool            // guarded by mu
	over      []bool          // by request: its last answer is there; guarded by mu
	left      int             // guarded by mu
	sending   int             // answers being handed on; guarded by mu

	turn sync.Mutex // of handing on an answer
}

func (e *execution) begin(id uint32, b *backends.Batch, decoupled bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.idle:
	default:
	}
	e.id, e.batch, e.decoupled, e.left = id, b, decoupled, len(b.Reqs)
	e.over = e.over[:0]
	for range b.Reqs {
		e.over = append(e.over, false)
	}
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

// forget takes no more answers and waits for those being handed on.
func (e *execution) forget() {
	e.mu.Lock()
	e.left = 0
	for i := range e.over {
		e.over[i] = true
	}
	busy := e.sending > 0
	if !busy {
		e.batch = nil
	}
	e.mu.Unlock()
	if busy {
		e.turn.Lock() // whoever hands on an answer has it
		e.turn.Unlock()
	}
}

// end makes sure that nobody uses the batch after its execution.
func (e *execution) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batch = nil
}

// wait waits until all requests have their last answer.
func (e *execution) wait(x *instance) error {
	e.mu.Lock()
	b := e.batch
	done := e.left == 0 && e.sending == 0
	e.mu.Unlock()
	if done {
		return nil
	}
	tick := min(time.Second, x.m.b.set.timeout/2)
	t := time.NewTicker(tick)
	defer t.Stop()
	over := time.Duration(0)
	for {
		select {
		case <-e.idle:
			return nil
		case <-x.w.ctx.Done():
			e.forget()
			err := x.w.gone(io.EOF)
			x.lost()
			return err
		case <-t.C:
			if over = x.m.patience(b, over, tick); over > x.m.b.set.timeout {
				x.w.kill("it did not end its responses within " + x.m.b.set.timeout.String() + " after its requests were cancelled")
			}
		}
	}
}

// cancelled reports whether nobody waits for a request any more.
func (e *execution) cancelled(id uint32, i int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || e.id != id || i >= len(e.batch.Reqs) {
		return true
	}
	ctx := e.batch.Reqs[i].Ctx
	return ctx != nil && ctx.Err() != nil
}

func (w *worker) tellCancelled(p *packet) {
	r := reader{b: p.body}
	id, i := r.u32(), r.u32()
	flags := flagFinal
	if w.running.cancelled(id, int(i)) {
		flags |= flagYes
	}
	w.reply(p.id, flags, nil)
}

// enter returns the batch of an execution for an answer to request i, which leave ends.
func (e *execution) enter(id uint32, i int) (*backends.Batch, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.batch == nil || e.id != id || i >= len(e.over) || e.over[i] {
		return nil, false, status.Errorf(status.NotFound, "the request is over, it takes no more responses")
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

// deliver hands on what a response sender sends.
func (w *worker) deliver(p *packet) error {
	r := reader{b: p.body}
	id, i := r.u32(), int(r.u32())
	var a answer
	a.read(&r)
	if r.bad {
		return status.Errorf(status.Internal, "unexpected response of %d bytes", len(p.body))
	}
	e := &w.running
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
	q := &b.Reqs[i]
	switch a.state {
	case stateError:
		if q.Err == nil {
			q.Err = a.err()
		}
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
	q.Reply = append(q.Reply, a.params...)
	q.Out = out
	return nil
}
