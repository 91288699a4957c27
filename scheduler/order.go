package scheduler

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
)

// order has answers leave in the order in which their requests came, whatever the
// order of their execution (preserve_ordering). Who finds the first in line answered
// sends it and those behind it that are; one goroutine does so at a time.
//
// Answers of a decoupled model that came before their turn are sent by a worker of
// their own, for sending them may wait for a client or for steps that follow: nobody
// does who has other works at hand.
type order struct {
	done func(list TaskList, t *RunLoop) // completes works

	mu         sync.Mutex
	head, tail *ticket   // guarded by mu
	sending    bool      // somebody sends, guarded by mu
	spare      []*ticket // guarded by mu
}

// ticket is a work's place in the line.
type ticket struct {
	order *order
	work  *Task
	next  *ticket
	ended bool     // the work is done, guarded by order.mu
	open  bool     // it is the first and its answers may go at once, guarded by order.mu
	early []answer // what came before its turn, guarded by order.mu
}

// answer is one of a decoupled model, kept until its request's turn.
type answer struct {
	to     Responder
	out    []tensor.Tensor
	params infer.Params
	final  bool
}

// join puts works at the end of the line; called in the order of their arrival.
func (o *order) join(list *TaskList) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := list.Head; w != nil; w = w.next {
		var k *ticket
		if n := len(o.spare); n > 0 {
			k, o.spare = o.spare[n-1], o.spare[:n-1]
		} else {
			k = &ticket{order: o}
		}
		k.work, w.queued.line = w, k
		if o.tail == nil {
			o.head, k.open = k, !o.sending
		} else {
			o.tail.next = k
		}
		o.tail = k
	}
}

// end marks works as done and completes those at the head of the line. true: the first
// one left has answers that came before its turn, and the caller has a worker send them.
func (o *order) end(list TaskList, t *RunLoop) bool {
	o.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		w.queued.line.ended = true
	}
	if o.sending {
		o.mu.Unlock()
		return false
	}
	o.sending = true
	o.mu.Unlock()
	return o.send(t)
}

// send completes works while the first in line is done and has kept no answers, and
// reports whether it has.
func (o *order) send(t *RunLoop) bool {
	for {
		ready, kept := o.next()
		if ready.n == 0 {
			return kept
		}
		o.done(ready, t)
	}
}

// next takes the works out of the line whose turn it is. Where there is none the first
// one may send its answers from now on, unless some are kept.
func (o *order) next() (ready TaskList, kept bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k := o.head; k != nil && k.ended && len(k.early) == 0; k = o.head {
		o.leave(k, &ready)
	}
	k := o.head
	switch {
	case ready.n > 0:
	case k == nil:
		o.sending = false
	case len(k.early) > 0:
		kept = true
	default:
		k.open, o.sending = true, false
	}
	return ready, kept
}

// early is what a station has the workers help while answers are kept for which it is time.
type early struct{ *Queue }

// Help sends them, and completes what may leave then.
func (e early) Help(t *RunLoop) bool {
	for again := true; again; again = e.order.send(t) {
		t.Leave() // nobody waits with works at hand
		e.order.flush()
		t.Tick(0)
	}
	e.workers.Reserve(-1)
	return true
}

// flush sends the answers that the first in line has kept. The work may be executing,
// but whoever sends here does not hold its place and gives none up.
func (o *order) flush() {
	o.mu.Lock()
	k := o.head
	kept := k.early
	k.early = nil
	o.mu.Unlock()
	host := k.work.queued.host
	k.work.queued.host = nil
	for _, a := range kept {
		// Who has gone is told by what the model sends next.
		_ = a.to.Respond(k.work, a.out, a.params, a.final)
	}
	k.work.queued.host = host
}

// leave takes the first ticket out of the line; called with the lock held.
func (o *order) leave(k *ticket, ready *TaskList) {
	if o.head = k.next; o.head == nil {
		o.tail = nil
	}
	k.work.queued.line = nil
	ready.Push(k.work)
	*k = ticket{order: o, early: k.early}
	o.spare = append(o.spare, k)
}

// respond sends an answer of a decoupled model, or keeps it until its request's turn.
func (k *ticket) respond(to Responder, w *Task, out []tensor.Tensor, params infer.Params, final bool) error {
	k.order.mu.Lock()
	if k.open {
		k.order.mu.Unlock()
		return to.Respond(w, out, params, final)
	}
	kept := make([]tensor.Tensor, len(out))
	for i := range out {
		kept[i] = out[i].Move()
	}
	k.early = append(k.early, answer{to, kept, slices.Clone(params), final})
	k.order.mu.Unlock()
	return nil
}
