package python

import "sync"

// sent is a SEND that a process of the model has sent.
type sent struct {
	from   *side
	packet *packet
}

// sends are the responses of an execution that were received and not yet passed on.
type sends struct {
	mu      sync.Mutex
	list    []sent // in order of arrival; guarded by mu
	running bool   // whether a goroutine passes them on; guarded by mu
}

// send passes on a response after those of the same execution that were received before it: the threads of a model that send
// one after the other rely on that order.
func (s *side) send(p *packet) {
	r := reader{b: p.body}
	e := s.w.running.find(r.u32())
	if e == nil {
		s.w.sides.Go(func() { s.answer(p) }) // which says that the request is over
		return
	}
	if e.sends.push(sent{s, p}) {
		s.w.sides.Go(e.sends.drain)
	}
}

// push queues a response, and reports whether a goroutine has to be started for it.
func (q *sends) push(x sent) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, x)
	start := !q.running
	q.running = true
	return start
}

// drain passes on what is queued.
func (q *sends) drain() {
	for x, ok := q.next(); ok; x, ok = q.next() {
		x.from.answer(x.packet)
	}
}

func (q *sends) next() (x sent, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		q.running = false
		return sent{}, false
	}
	x = q.list[0]
	n := copy(q.list, q.list[1:])
	q.list[n] = sent{}
	q.list = q.list[:n]
	return x, true
}
