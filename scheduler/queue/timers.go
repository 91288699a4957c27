package queue

import (
	"math"
	"math/bits"
	"time"

	"github.com/tutti-server/tutti/scheduler"
)

// timers wake the queue while no task arrives. The queue's lock guards them.
type timers struct {
	policy  *time.Timer // asks the policy again
	sweeper *time.Timer // drops expired tasks
	ask     int64       // when the policy is asked again, 0 for never
	sweep   int64       // when the sweeper runs, 0 for never
	full    int64       // when it checks all of the backlog, 0 when that is not set
	closed  bool
}

const (
	// short is the longest wait for which a worker sleeps; a runtime timer's lateness matters little beyond it.
	short   = 2 * time.Millisecond
	longest = time.Duration(math.MaxInt64)
)

// askLater has a worker ask the policy again after d; called with the lock held.
func (q *Queue) askLater(now int64, d time.Duration) {
	a := &q.timers
	d = min(d, time.Hour)
	at := now + int64(d)
	if a.closed || a.ask != 0 && a.ask <= at {
		return
	}
	a.ask = max(at, 1)
	switch {
	case d <= short:
		q.workers.GoAfter(asker{q}, d)
	case a.policy == nil:
		a.policy = time.AfterFunc(d, func() { q.workers.Go(asker{q}) })
	default:
		a.policy.Reset(d)
	}
}

// asker is what a worker helps after a policy's wait.
type asker struct{ *Queue }

// Help allows the next askLater, and helps the queue.
func (a asker) Help(t *scheduler.RunLoop) bool {
	a.mu.Lock()
	a.timers.ask = 0
	a.mu.Unlock()
	return a.Queue.Help(t)
}

const (
	// sweepInterval is how often queued tasks are checked for disconnected clients. It grows by sweepPerTask per queued
	// task, up to maxSweepInterval, so that the check costs a request the same however long the queue is.
	sweepInterval    = 100 * time.Millisecond
	maxSweepInterval = 500 * time.Millisecond
	sweepPerTask     = 40 * time.Microsecond
)

// sweepLater has a worker check the queue when a task is due, or for disconnected clients; the lock is held.
func (q *Queue) sweepLater(now int64) {
	a := &q.timers
	if a.full == 0 {
		a.full = now + int64(min(sweepInterval+time.Duration(q.backlog.n+q.waiting.n)*sweepPerTask, maxSweepInterval))
	}
	at := a.full
	if h := q.backlog.wheel; h != nil {
		if due, ok := h.next(); ok {
			at = min(at, due)
		}
	}
	if h := q.waiting.wheel; h != nil {
		if due, ok := h.next(); ok {
			at = min(at, due)
		}
	}
	if a.closed || a.sweep != 0 && a.sweep <= at {
		return
	}
	a.sweep = at
	if d := time.Duration(max(at-now, 1)); a.sweeper == nil {
		a.sweeper = time.AfterFunc(d, func() { q.workers.Go(sweeper{q}) })
	} else {
		a.sweeper.Reset(d)
	}
}

// sweeper is what a worker helps while tasks are queued.
type sweeper struct{ *Queue }

// Help drops expired tasks, or puts them behind the others. The rest may be another batch than before.
func (s sweeper) Help(t *scheduler.RunLoop) bool {
	var dropped scheduler.TaskList
	s.mu.Lock()
	a, now := &s.timers, t.Now()
	a.sweep = 0
	if now >= a.full {
		a.full = 0
		s.backlog.sweep(now, &dropped)
		s.waiting.sweep(now, &dropped)
	} else {
		s.backlog.expire(now, &dropped)
		s.waiting.expire(now, &dropped)
	}
	if s.backlog.n+s.waiting.n > 0 {
		s.sweepLater(now)
		if len(s.free) > 0 {
			t.Ready(s.Queue)
		}
	}
	s.mu.Unlock()
	if dropped.Len() > 0 {
		s.drop(dropped, t)
	}
	return dropped.Len() > 0
}

// wheel holds entries until they are due. It is a hierarchical timing wheel (Varghese and Lauck
// 1987): adding and removing an entry costs the same however many there are. An entry comes out at
// the end of its tick, never before it is due.
type wheel struct {
	now   int64 // the tick up to which it has been advanced
	n     int
	slots [wheelLevels][wheelSlots]*entry
	used  [wheelLevels]uint64 // which slots hold entries
}

const (
	wheelLevels = 6
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	// tickBits makes a tick about a millisecond; the last level spans two years.
	tickBits = 20
	farthest = 1<<(wheelBits*wheelLevels) - 1
	nowhere  = -1
)

// tickOf returns the tick at whose end ns has passed.
func tickOf(ns int64) int64 { return (ns-1)>>tickBits + 1 }

// add inserts e, which advance returns once e.check has passed.
func (h *wheel) add(e *entry, now int64) {
	if h.n == 0 {
		h.now = now >> tickBits
	}
	h.n++
	h.insert(e)
}

func (h *wheel) insert(e *entry) {
	tick := min(max(tickOf(e.check), h.now+1), h.now+farthest)
	level := (bits.Len64(uint64(tick-h.now)) - 1) / wheelBits
	slot := tick >> (level * wheelBits) & (wheelSlots - 1)
	head := &h.slots[level][slot]
	e.slot = int16(level*wheelSlots) + int16(slot)
	e.before, e.after = nil, *head
	if *head != nil {
		(*head).before = e
	}
	*head = e
	h.used[level] |= 1 << slot
}

// remove takes e out, if it is in the wheel.
func (h *wheel) remove(e *entry) {
	if e.slot == nowhere {
		return
	}
	level, slot := e.slot/wheelSlots, e.slot%wheelSlots
	if e.after != nil {
		e.after.before = e.before
	}
	if e.before != nil {
		e.before.after = e.after
	} else if h.slots[level][slot] = e.after; e.after == nil {
		h.used[level] &^= 1 << slot
	}
	e.before, e.after, e.slot = nil, nil, nowhere
	h.n--
}

// advance takes out the entries that are due by now, linked by after.
func (h *wheel) advance(now int64) (due *entry) {
	from, to := h.now, now>>tickBits
	if to <= from {
		return nil
	}
	h.now = to
	for level := range wheelLevels {
		shift := level * wheelBits
		first, last := from>>shift, to>>shift
		for p := max(first, last-wheelSlots) + 1; p <= last; p++ {
			slot := p & (wheelSlots - 1)
			chain := h.slots[level][slot]
			h.slots[level][slot] = nil
			h.used[level] &^= 1 << slot
			for chain != nil {
				e := chain
				chain = e.after
				if tickOf(e.check) > to {
					h.insert(e)
					continue
				}
				h.n--
				e.slot, e.before, e.after = nowhere, nil, due
				due = e
			}
		}
	}
	return due
}

// next returns when to advance again, in ns; ok is false when the wheel is empty.
func (h *wheel) next() (at int64, ok bool) {
	tick := int64(0)
	for level, used := range h.used {
		if used == 0 {
			continue
		}
		shift := level * wheelBits
		p := h.now>>shift + 1
		ahead := bits.TrailingZeros64(bits.RotateLeft64(used, -int(p&(wheelSlots-1))))
		if t := (p + int64(ahead)) << shift; !ok || t < tick {
			tick, ok = t, true
		}
	}
	return tick << tickBits, ok
}
