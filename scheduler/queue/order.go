package queue

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// order has responses leave in the order in which their requests arrived, whatever the order of
// execution (preserve_ordering). The goroutine that finds the first task done completes it and
// those behind it that are done; one goroutine does so at a time.
//
// Responses of a decoupled model that come before their turn are kept. A separate worker sends
// them, because it may have to wait for a client or for the steps that follow, which no goroutine
// with other tasks may do. It is safe for concurrent use.
type order struct {
	complete func(list scheduler.TaskList, t *scheduler.RunLoop)

	mu         sync.Mutex
	ring       []ticket // by sequence number modulo its length, a power of two; guarded by mu
	head, tail uint64   // sequence numbers of the first ticket and behind the last, guarded by mu
	sending    bool     // a goroutine completes tasks, guarded by mu
}

// ticket is a task's position in the order.
type ticket struct {
	task  *scheduler.Task
	ended bool       // the task is done
	open  bool       // it is the first, and its responses leave at once
	early []response // that came before its turn
}

// response is one of a decoupled model.
type response struct {
	to     scheduler.Responder
	out    []tensor.Tensor
	params infer.Params
	final  bool
}

// at returns the ticket of a sequence number; called with the lock held.
func (o *order) at(seq uint64) *ticket { return &o.ring[seq&uint64(len(o.ring)-1)] }

// join appends tasks, in the order of their arrival.
func (o *order) join(list *scheduler.TaskList) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := list.Head; w != nil; w = w.Next() {
		if o.tail-o.head == uint64(len(o.ring)) {
			old := o.ring
			o.ring = make([]ticket, max(16, 2*len(old)))
			for seq := o.head; seq != o.tail; seq++ {
				*o.at(seq) = old[seq&uint64(len(old)-1)]
			}
		}
		w.Seq = o.tail
		*o.at(o.tail) = ticket{task: w, open: o.head == o.tail && !o.sending}
		o.tail++
	}
}

// end marks tasks as done and completes those whose turn it is. True: the caller must start a worker for early ones.
func (o *order) end(list scheduler.TaskList, t *scheduler.RunLoop) bool {
	o.mu.Lock()
	for w := list.Pop(); w != nil; w = list.Pop() {
		o.at(w.Seq).ended = true
	}
	if o.sending {
		o.mu.Unlock()
		return false
	}
	o.sending = true
	o.mu.Unlock()
	return o.send(t)
}

// send completes tasks from the front while they are done. It returns true when the first has deferred responses, which
// a worker must send.
func (o *order) send(t *scheduler.RunLoop) bool {
	for {
		ready, kept := o.next()
		if ready.Len() == 0 {
			return kept
		}
		o.complete(ready, t)
	}
}

// next removes the tasks whose turn it is. Without one, the first task's responses leave at once from now on.
func (o *order) next() (ready scheduler.TaskList, kept bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.head != o.tail && o.at(o.head).ended && len(o.at(o.head).early) == 0 {
		ready.Push(o.at(o.head).task)
		*o.at(o.head) = ticket{}
		o.head++
	}
	switch {
	case ready.Len() > 0:
	case o.head == o.tail:
		o.sending = false
	case len(o.at(o.head).early) > 0:
		kept = true
	default:
		o.at(o.head).open, o.sending = true, false
	}
	return ready, kept
}

// early is what a worker helps while the first task has early responses.
type early struct{ *Queue }

// Help sends them, and completes the tasks whose turn it is then.
func (e early) Help(t *scheduler.RunLoop) bool {
	for again := true; again; again = e.order.send(t) {
		t.Finish() // no task may wait for a client
		e.order.mu.Lock()
		k := e.order.at(e.order.head) // it may still execute
		w, kept := k.task, k.early
		k.early = nil
		e.order.mu.Unlock()
		for _, a := range kept {
			// A client that has disconnected fails the model's next response, too.
			_ = a.to.Respond(w, a.out, a.params, a.final)
		}
		t.Tick(0)
	}
	e.workers.Reserve(-1)
	return true
}

// isOpen reports whether the responses of w leave at once. Once they do, they do until w completes.
func (o *order) isOpen(w *scheduler.Task) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at(w.Seq).open
}

// keep keeps a response of w until its turn, and reports whether it did; else it leaves at once.
func (o *order) deferResponse(to scheduler.Responder, w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.at(w.Seq)
	if k.open {
		return false
	}
	kept := make([]tensor.Tensor, len(out))
	for i := range out {
		kept[i] = out[i].Move()
	}
	k.early = append(k.early, response{to, kept, slices.Clone(params), final})
	return true
}
