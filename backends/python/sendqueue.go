package python

import "sync"

// queuedSend is a received SEND packet and its side channel.
type queuedSend struct {
	from   *side
	packet *packet
}

// sendQueue has the responses of an execution that were received and not yet delivered.
type sendQueue struct {
	mu      sync.Mutex
	list    []queuedSend // in order of arrival; guarded by mu
	running bool         // a goroutine delivers them; guarded by mu
}

// send delivers a response after the earlier ones of the same execution: threads of a model that send one after the other rely
// on the order.
func (s *side) send(p *packet) {
	r := reader{b: p.body}
	e := s.w.running.find(r.u32())
	if e == nil {
		s.w.sides.Go(func() { s.execute(p) }) // it replies that the request has ended
		return
	}
	if e.queue.push(queuedSend{s, p}) {
		s.w.sides.Go(e.queue.drain)
	}
}

// push adds a response, and reports whether the caller must start drain.
func (q *sendQueue) push(x queuedSend) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, x)
	start := !q.running
	q.running = true
	return start
}

// drain delivers responses until the queue is empty.
func (q *sendQueue) drain() {
	for x, ok := q.next(); ok; x, ok = q.next() {
		x.from.execute(x.packet)
	}
}

func (q *sendQueue) next() (x queuedSend, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		q.running = false
		return queuedSend{}, false
	}
	x = q.list[0]
	n := copy(q.list, q.list[1:])
	q.list[n] = queuedSend{}
	q.list = q.list[:n]
	return x, true
}
