package scheduler

import (
	"slices"
	"sync"

	"tutti/core/infer"
	"tutti/core/tensor"
)

// order has answers leave in the order in which their requests came, whatever the
// order of their execution (preserve_ordering). Who finds the first in line answered
// sends it and those behind it that are; one goroutine does so at a time.
type order struct {
	done func(list List, t *Turn) // completes works

	mu         sync.Mutex
	head, tail *ticket   // guarded by mu
	sending    bool      // somebody sends, guarded by mu
	spare      []*ticket // guarded by mu
}

// ticket is a work's place in the line.
type ticket struct {
	order *order
	work  *Work
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
func (o *order) join(list *List) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := list.Head; w != nil; w = w.next {
		var k *ticket
		if n := len(o.spare); n > 0 {
			k, o.spare = o.spare[n-1], o.spare[:n-1]
		} else {
			k = &ticket{order: o}
		}
		k.work, w.line = w, k
		if o.tail == nil {
			o.head, k.open = k, !o.sending
		} else {
			o.tail.next = k
		}
		o.tail = k
	}
}

// end marks works as done and sends what is first in line.
func (o *order) end(list List, t *Turn) {
	o.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		w.line.ended = true
	}
	if o.sending {
		o.mu.Unlock()
		return
	}
	o.sending = true
	o.mu.Unlock()
	for o.send(t) {
	}
}

// send sends what may leave now, and reports whether to look again.
func (o *order) send(t *Turn) bool {
	o.mu.Lock()
	var ready List
	for k := o.head; k != nil && k.ended && len(k.early) == 0; k = o.head {
		o.leave(k, &ready)
	}
	k := o.head
	var early []answer
	switch {
	case ready.n > 0:
	case k == nil:
		o.sending = false
	case len(k.early) > 0:
		early, k.early = k.early, nil
	default:
		k.open, o.sending = true, false
	}
	again := o.sending
	o.mu.Unlock()
	if ready.n > 0 {
		o.done(ready, t)
	}
	for _, a := range early {
		// Who has gone is told by what the model sends next.
		_ = a.to.Respond(k.work, a.out, a.params, a.final)
	}
	return again
}

// leave takes the first ticket out of the line; called with the lock held.
func (o *order) leave(k *ticket, ready *List) {
	if o.head = k.next; o.head == nil {
		o.tail = nil
	}
	k.work.line = nil
	ready.Push(k.work)
	*k = ticket{order: o, early: k.early}
	o.spare = append(o.spare, k)
}

// respond sends an answer of a decoupled model, or keeps it until its request's turn.
func (k *ticket) respond(to Responder, w *Work, out []tensor.Tensor, params infer.Params, final bool) error {
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
	w.host = nil // what is sent by somebody else gives no place up
	k.order.mu.Unlock()
	return nil
}
