package sequence

import (
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
)

// batcher knows all sequences of a model and forms their batches. The caller's lock guards it.
type batcher struct {
	rules   Rules
	model   string
	flush   bool // no batch waits for more requests
	batchy  bool // the model has a batch dimension
	policy  scheduler.Policy
	checkID func(id) error  // returns an error for an id that the model cannot receive
	newSlot func() *slot    // returns a slot without an instance
	removed func(*instance) // called with a removed instance that has no sequence left

	live      map[id]*sequence // sequences that accept further requests
	instances []*instance
	counted   int // instances added so far, for their numbers
	room      int // slots that may still be made
	free      heap[*slot]
	backlog   heap[*sequence]
	idle      chain
	// earliest is a lower bound of when the next sequence of the backlog expires.
	earliest int64
	spare    *sequence // for reuse

	broken map[id]error // why sequences have ended whose instance is lost, until a request starts or ends one; see Lose
	lost   error        // why no instance is left

	arrivals  uint64
	assigned  uint64 // the last id assigned to an iterative request
	queued    int    // requests that wait
	draining  int    // callers of Drain
	held      bool   // rules.Queued or rules.Backlog delay batches
	items     []scheduler.Item
	positions []int32
	sweepable []*sequence
}

// longestName bounds the bytes of a correlation id, as in Triton.
const longestName = 128

func newBatcher(r Rules, instances int) *batcher {
	b := &batcher{
		rules: r, earliest: math.MaxInt64, live: map[id]*sequence{}, broken: map[id]error{}, held: r.Queued > 0 || r.Backlog > 0,
		checkID: func(id) error { return nil }, newSlot: func() *slot { return new(slot) }, removed: func(*instance) {},
	}
	for range instances {
		b.add()
	}
	return b
}

// admit appends a request to its sequence. conflict reports that it starts one while another of its id lives.
func (b *batcher) admit(w *scheduler.Task, now int64) (conflict bool, err error) {
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
	if s == nil {
		if err := b.refusal(key, start, end); err != nil {
			return false, err
		}
	}
	switch {
	case s == nil && !start:
		return false, status.Errorf(status.InvalidArg,
			"inference request for sequence %s to model '%s' must specify the START flag on the first request of the sequence", key, b.model)
	case s == nil:
		if err := b.checkID(key); err != nil {
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

// assign returns an unused id.
func (b *batcher) assign() id {
	for {
		b.assigned++
		if key := (id{number: b.assigned}); !key.none() && b.live[key] == nil {
			return key
		}
	}
}

// open starts a sequence, in a free slot if there is one, else in the backlog.
func (b *batcher) open(key id, first *scheduler.Task) *sequence {
	s := b.spare
	if s == nil {
		s = new(sequence)
	} else {
		b.spare = s.next
	}
	b.arrivals++
	*s = sequence{id: key, fresh: true, priority: first.Meta.Priority, arrived: b.arrivals, heapIndex: -1}
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
func (b *batcher) enqueue(s *sequence, w *scheduler.Task, now int64) {
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
		markReady(s)
	case ready, running:
	}
}

// markReady appends a sequence in a slot to its instance's ready sequences.
func markReady(s *sequence) {
	s.state, s.key = ready, shapeKey(s.head())
	s.at.instance.ready.push(s)
}

// makeSlot adds a slot to the instance with the fewest, or returns nil when every instance has all its slots.
func (b *batcher) makeSlot() *slot {
	if b.room == 0 {
		return nil
	}
	var l *instance
	for _, x := range b.instances {
		if x.leaving == nil && (l == nil || len(x.slots) < len(l.slots)) {
			l = x
		}
	}
	sl := b.newSlot()
	sl.instance, sl.number, sl.heapIndex = l, len(l.slots), -1
	l.slots = append(l.slots, sl)
	b.room--
	return sl
}

// vacant returns the lowest free slot, or nil.
func (b *batcher) vacant() *slot {
	if len(b.free.list) > 0 {
		return b.free.pop()
	}
	return b.makeSlot()
}

// vacantFor returns a free slot for a new sequence, or nil. It prefers an instance at the request's device.
func (b *batcher) vacantFor(first *scheduler.Task) *slot {
	at, bound := first.Bound()
	if !bound || !slices.ContainsFunc(b.instances, func(l *instance) bool { return l.at == at }) {
		return b.vacant()
	}
	for {
		var best *slot
		for _, sl := range b.free.list {
			if sl.instance.at == at && (best == nil || sl.before(best)) {
				best = sl
			}
		}
		if best != nil {
			b.free.remove(best)
			return best
		}
		sl := b.makeSlot()
		if sl == nil {
			return b.vacant()
		}
		b.free.push(sl)
	}
}

// reclassify sets the stage of a sequence in a slot that is in no chain: ready, over or idle.
func (b *batcher) reclassify(s *sequence, now int64) {
	switch {
	case s.head() != nil:
		markReady(s)
	case s.ended:
		b.release(s)
	default:
		s.state, s.idleSince = idle, now
		b.idle.push(s)
	}
}

// release ends a sequence in a slot. The first sequence of the backlog takes the slot.
func (b *batcher) release(s *sequence) {
	sl := s.at
	b.recycle(s)
	sl.forget()
	sl.seq, sl.outer, sl.again = nil, nil, false
	switch {
	case sl.instance.leaving != nil:
		b.dismiss(sl.instance)
	case len(b.backlog.list) == 0:
		b.free.push(sl)
	default:
		b.inherit(sl)
	}
}

// inherit moves the first sequence of the backlog to a slot.
func (b *batcher) inherit(sl *slot) {
	heir := b.backlog.pop()
	sl.seq, heir.at, heir.expires = heir, sl, 0
	markReady(heir)
}

// forget keeps further requests from joining a sequence.
func (b *batcher) forget(s *sequence) {
	if b.live[s.id] == s {
		delete(b.live, s.id)
	}
}

// recycle stores a sequence for reuse. It must be in no chain and hold no request.
func (b *batcher) recycle(s *sequence) {
	b.forget(s)
	*s = sequence{next: b.spare}
	b.spare = s
}

// reap ends the sequences that were idle for too long and drops those of the backlog whose timeout has passed.
func (b *batcher) reap(now int64, dropped *scheduler.TaskList) {
	for s := b.idle.head; s != nil; s = b.idle.head {
		draining := b.draining > 0 && len(b.backlog.list) > 0
		if !draining && now-s.idleSince < int64(b.rules.Idle) {
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

// reject drops a sequence of the backlog whose timeout has passed.
func (b *batcher) reject(s *sequence, now int64, dropped *scheduler.TaskList) {
	for w := s.queue.Pop(); w != nil; w = s.queue.Pop() {
		if w.Err = w.Expired(now); w.Err == nil {
			w.Err = status.Reasonf(status.SequenceEnded, "timeout of the corresponding sequence has been expired")
		}
		b.queued--
		dropped.Push(w)
	}
	b.backlog.remove(s)
	b.recycle(s)
}

// sweep drops the requests of disconnected clients.
func (b *batcher) sweep(now int64, dropped *scheduler.TaskList) {
	b.sweepable = append(b.sweepable[:0], b.backlog.list...)
	for _, l := range b.instances {
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
		b.dropGone(s, now, dropped)
	}
	clear(b.sweepable)
	b.releaseUnused()
}

// dropGone drops the first queued request of a sequence whose client has disconnected or whose deadline has passed,
// and the requests that follow it up to the next START: the model must not miss a request within a sequence. A
// sequence in the backlog, of which the model has executed nothing, is dropped from its START on. All end as
// cancelled, as Triton documents.
func (b *batcher) dropGone(s *sequence, now int64, dropped *scheduler.TaskList) {
	if !s.anyExpired(now) {
		return
	}
	broken := s.headExpired(now)
	if broken {
		s.at.outer.Err = s.at.outer.Expired(now)
		dropped.Push(s.at.outer)
		s.at.outer, s.at.again = nil, false
		b.queued--
	}
	var kept scheduler.TaskList
	for w := s.queue.Pop(); w != nil; w = s.queue.Pop() {
		if w.Meta.Sequence.Start {
			broken = false
			for x := s.queue.Head; s.state == backlogged && x != nil && !x.Meta.Sequence.Start; x = x.Next() {
				broken = broken || x.Expired(now) != nil // one of the requests up to the next START
			}
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
	switch {
	case s.state == running: // until its batch is done
	case s.state == ready:
		s.at.instance.ready.remove(s)
		b.reclassify(s, now)
	case s.queue.Len() == 0:
		b.backlog.remove(s)
		b.recycle(s)
	}
}

// headExpired reports whether the request that is to be executed once more has expired.
func (s *sequence) headExpired(now int64) bool {
	return s.state == ready && s.at.outer != nil && s.at.outer.Expired(now) != nil
}

// anyExpired reports whether a queued request has expired.
func (s *sequence) anyExpired(now int64) bool {
	if s.headExpired(now) {
		return true
	}
	for w := s.queue.Head; w != nil; w = w.Next() {
		if w.Expired(now) != nil {
			return true
		}
	}
	return false
}

// due returns when reap must run next, or MaxInt64.
func (b *batcher) due(now int64) int64 {
	at := b.earliest
	if s := b.idle.head; s != nil {
		at = min(at, s.idleSince+int64(b.rules.Idle))
		if b.draining > 0 && len(b.backlog.list) > 0 {
			at = now
		}
	}
	return at
}
