package sequence

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
)

// book knows all sequences of a model. The caller has a lock around it.
type book struct {
	rules  Rules
	model  string
	hurry  bool // no batch waits for more requests
	batchy bool // the model has a batch dimension
	policy scheduler.Policy
	fits   func(id) error // whether the model can be told an id
	fresh  func() *slot   // makes a slot without a place
	gone   func(*lane)    // takes back a lane that was removed

	live    map[id]*sequence // those that further requests may belong to
	lanes   []*lane
	counted int // lanes so far, for their numbers
	room    int // slots that may yet be made
	free    heap[*slot]
	backlog heap[*sequence]
	idle    chain
	// earliest is when the backlog gives a sequence up next, at the earliest.
	earliest int64
	spare    *sequence // for reuse

	arrivals  uint64
	assigned  uint64 // the last id given to an iterative request
	queued    int    // requests waiting
	draining  int    // callers that wait for the end
	held      bool   // rules.Queued or rules.Backlog hold back
	items     []scheduler.Item
	positions []int32
	sweepable []*sequence
}

// longestName bounds the bytes of a correlation id, as Triton does.
const longestName = 128

func newBook(r Rules, lanes int) *book {
	b := &book{
		rules: r, earliest: math.MaxInt64, live: map[id]*sequence{}, held: r.Queued > 0 || r.Backlog > 0,
		fits: func(id) error { return nil }, fresh: func() *slot { return new(slot) }, gone: func(*lane) {},
	}
	for range lanes {
		b.add()
	}
	return b
}

// admit takes a request in. An error refuses it; conflict tells that it starts a
// sequence whose predecessor of the same id did not end.
func (b *book) admit(w *scheduler.Task, now int64) (conflict bool, err error) {
	q := &w.Meta.Sequence
	key, start, end := idOf(q), q.Start, q.End
	switch {
	case len(key.name) > longestName:
		return false, status.Errorf(status.InvalidArg, "inference request to model '%s' has a correlation ID of %d bytes, expected at most %d",
			b.model, len(key.name), longestName)
	case b.batchy && w.Rows != 1:
		return false, status.Errorf(status.InvalidArg, "inference request to model '%s' must specify batch-size 1 due to requirements of sequence batcher", b.model)
	case key.none() && !b.rules.Iterative:
		return false, status.Errorf(status.InvalidArg, "inference request to model '%s' must specify a non-zero or non-empty correlation ID", b.model)
	case key.none():
		key, start, end = b.assign(), true, true
	}
	s := b.live[key]
	if s == nil && b.rules.Iterative && !start {
		start, end = true, true
	}
	switch {
	case s == nil && !start:
		return false, status.Errorf(status.InvalidArg,
			"inference request for sequence %s to model '%s' must specify the START flag on the first request of the sequence", key, b.model)
	case s == nil:
		if err := b.fits(key); err != nil {
			return false, err
		}
		s = b.open(key, w)
	case start:
		conflict = true
	}
	b.enqueue(s, w, now)
	if end {
		s.ended = true
		b.forget(s)
	}
	return conflict, nil
}

// assign returns an id that no sequence has.
func (b *book) assign() id {
	for {
		b.assigned++
		if key := (id{number: b.assigned}); !key.none() && b.live[key] == nil {
			return key
		}
	}
}

// open starts a sequence, in a slot when there is one.
func (b *book) open(key id, first *scheduler.Task) *sequence {
	s := b.spare
	if s == nil {
		s = new(sequence)
	} else {
		b.spare = s.next
	}
	b.arrivals++
	*s = sequence{id: key, fresh: true, priority: first.Meta.Priority, arrived: b.arrivals, place: -1}
	b.live[key] = s
	if sl := b.vacantFor(first); sl != nil {
		sl.seq, s.at, s.state = s, sl, idle
		b.idle.push(s)
	} else {
		b.backlog.push(s)
	}
	return s
}

// enqueue appends a request to its sequence.
func (b *book) enqueue(s *sequence, w *scheduler.Task, now int64) {
	s.queue.Push(w)
	b.queued++
	switch s.state {
	case backlogged:
		if t := w.Meta.Timeout; t > 0 {
			if at := now + int64(micros(t)); s.expires == 0 || at < s.expires {
				s.expires, b.earliest = at, min(b.earliest, at)
			}
		}
	case idle:
		b.idle.remove(s)
		await(s)
	case ready, running:
	}
}

// await makes a sequence in a slot ready.
func await(s *sequence) {
	s.state, s.key = ready, shapeKey(s.head())
	s.at.lane.ready.push(s)
}

// vacant returns a free slot, the lowest there is, or nil.
func (b *book) vacant() *slot {
	if b.free.len() > 0 {
		return b.free.pop()
	}
	return b.make()
}

// make adds a slot to the instance with the fewest, nil when there are all.
func (b *book) make() *slot {
	if b.room == 0 {
		return nil
	}
	var l *lane
	for _, x := range b.lanes {
		if x.leaving == nil && (l == nil || len(x.slots) < len(l.slots)) {
			l = x
		}
	}
	sl := b.fresh()
	sl.lane, sl.number, sl.place = l, len(l.slots), -1
	l.slots = append(l.slots, sl)
	b.room--
	return sl
}

// vacantFor returns a free slot for the sequence of a first request: if it can be at the
// device where the request's other steps are.
func (b *book) vacantFor(first *scheduler.Task) *slot {
	at, bound := first.Bound()
	if !bound || !slices.ContainsFunc(b.lanes, func(l *lane) bool { return l.at == at }) {
		return b.vacant()
	}
	for {
		var best *slot
		for _, sl := range b.free.list {
			if sl.lane.at == at && (best == nil || sl.before(best)) {
				best = sl
			}
		}
		if best != nil {
			b.free.remove(best)
			return best
		}
		sl := b.make()
		if sl == nil {
			return b.vacant()
		}
		b.free.push(sl)
	}
}

// settle finds out what becomes of a sequence in a slot that is in no chain.
func (b *book) settle(s *sequence, now int64) {
	switch {
	case s.head() != nil:
		await(s)
	case s.ended:
		b.release(s)
	default:
		s.state, s.idleSince = idle, now
		b.idle.push(s)
	}
}

// release ends a sequence in a slot, which the backlog's first one takes over.
func (b *book) release(s *sequence) {
	sl := s.at
	b.recycle(s)
	sl.forget()
	sl.seq, sl.outer, sl.again = nil, nil, false
	switch {
	case sl.lane.leaving != nil:
		b.dismiss(sl.lane)
	case b.backlog.len() == 0:
		b.free.push(sl)
	default:
		b.inherit(sl)
	}
}

// inherit gives a slot to the backlog's first sequence.
func (b *book) inherit(sl *slot) {
	heir := b.backlog.pop()
	sl.seq, heir.at, heir.expires = heir, sl, 0
	await(heir)
}

// forget keeps further requests from joining a sequence.
func (b *book) forget(s *sequence) {
	if b.live[s.id] == s {
		delete(b.live, s.id)
	}
}

// recycle returns a sequence that is in no chain and holds no request.
func (b *book) recycle(s *sequence) {
	b.forget(s)
	*s = sequence{next: b.spare}
	b.spare = s
}

// reap ends the sequences that got no request for too long, and gives up those of the
// backlog whose time is over.
func (b *book) reap(now int64, dropped *scheduler.TaskList) {
	for s := b.idle.head; s != nil; s = b.idle.head {
		hurry := b.draining > 0 && b.backlog.len() > 0
		if !hurry && now-s.idleSince < int64(b.rules.Idle) {
			break
		}
		b.idle.remove(s)
		b.release(s)
	}
	if b.earliest > now {
		return
	}
	b.earliest = math.MaxInt64
	b.sweepable = append(b.sweepable[:0], b.backlog.list...)
	for _, s := range b.sweepable {
		switch {
		case s.expires == 0:
		case s.expires <= now:
			b.reject(s, now, dropped)
		default:
			b.earliest = min(b.earliest, s.expires)
		}
	}
	clear(b.sweepable)
}

// reject drops a sequence of the backlog whose timeout is over.
func (b *book) reject(s *sequence, now int64, dropped *scheduler.TaskList) {
	for w := s.queue.Pop(); w != nil; w = s.queue.Pop() {
		if w.Err = w.Expired(now); w.Err == nil {
			w.Err = status.Errorf(status.Unavailable, "timeout of the corresponding sequence has been expired")
		}
		b.queued--
		dropped.Push(w)
	}
	b.backlog.remove(s)
	b.recycle(s)
}

// sweep drops the requests of clients that have gone.
func (b *book) sweep(now int64, dropped *scheduler.TaskList) {
	b.sweepable = append(b.sweepable[:0], b.backlog.list...)
	for _, l := range b.lanes {
		for s := l.ready.head; s != nil; s = s.next {
			b.sweepable = append(b.sweepable, s)
		}
		for _, sl := range l.batch {
			if l.busy && sl != nil {
				b.sweepable = append(b.sweepable, sl.seq)
			}
		}
	}
	for _, s := range b.sweepable {
		b.cut(s, now, dropped)
	}
	clear(b.sweepable)
	b.giveBack()
}

// cut drops from a sequence the first queued request whose client waits no longer, and
// what follows it up to the next START: the model must not miss a request of a sequence
// without being told. A sequence in the backlog, of which the model has seen nothing, is
// dropped as a whole. All of them end as cancelled, as Triton documents.
func (b *book) cut(s *sequence, now int64, dropped *scheduler.TaskList) {
	if !s.gone(now) {
		return
	}
	broken := s.over(now)
	if broken {
		s.at.outer.Err = s.at.outer.Expired(now)
		dropped.Push(s.at.outer)
		s.at.outer, s.at.again = nil, false
		b.queued--
	}
	var kept scheduler.TaskList
	for w := s.queue.Pop(); w != nil; w = s.queue.Pop() {
		if w.Meta.Sequence.Start {
			broken = s.state == backlogged && goneBeforeStart(s.queue.Head, now)
		}
		err := w.Expired(now)
		if broken = broken || err != nil; !broken {
			kept.Push(w)
			continue
		}
		if w.Err = err; err == nil {
			w.Err = status.Errorf(status.Cancelled, "sequence %s for model '%s' has ended because one of its requests was cancelled", s.id, b.model)
		}
		b.queued--
		dropped.Push(w)
	}
	s.queue = kept
	if broken {
		s.ended = true
		b.forget(s)
	}
	b.replace(s, now)
}

// goneBeforeStart reports whether a client has gone, of w and what follows it up to the
// next START.
func goneBeforeStart(w *scheduler.Task, now int64) bool {
	for ; w != nil && !w.Meta.Sequence.Start; w = w.Next() {
		if w.Expired(now) != nil {
			return true
		}
	}
	return false
}

// replace finds out what becomes of a sequence that lost requests.
func (b *book) replace(s *sequence, now int64) {
	switch {
	case s.state == running: // until its batch is done
	case s.state == ready:
		s.at.lane.ready.remove(s)
		b.settle(s, now)
	case s.queue.Len() == 0:
		b.backlog.remove(s)
		b.recycle(s)
	}
}

// over reports whether the request that a sequence's slot is to go on with must not be
// executed any more.
func (s *sequence) over(now int64) bool {
	return s.state == ready && s.at.outer != nil && s.at.outer.Expired(now) != nil
}

// gone reports whether a client of a queued request has gone, or waits no longer.
func (s *sequence) gone(now int64) bool {
	if s.over(now) {
		return true
	}
	for w := s.queue.Head; w != nil; w = w.Next() {
		if w.Expired(now) != nil {
			return true
		}
	}
	return false
}

// due returns when reap has something to do next, or MaxInt64.
func (b *book) due(now int64) int64 {
	at := b.earliest
	if s := b.idle.head; s != nil {
		at = min(at, s.idleSince+int64(b.rules.Idle))
		if b.draining > 0 && b.backlog.len() > 0 {
			at = now
		}
	}
	return at
}
