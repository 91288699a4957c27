package scheduler

import "github.com/tutti-server/tutti/internal/telemetry"

// queue holds works in order of service: the highest priority level first, in a level
// those whose time is over behind the others, and else in order of arrival. Works
// that may share a batch are a group, so that those of other shapes in between cost
// nothing. Adding and removing a work costs the same however many are queued, but
// for a logarithm of the number of shapes.
type queue struct {
	levels  levels
	groups  map[uint64]*group
	heap    groups
	last    *group // the one used last
	most    int    // groups to keep, empty ones with them
	wheel   *wheel // made when the first work has a time limit
	n       int
	rows    int32
	arrived uint64
}

// fewGroups is how many shapes are kept in mind, for their works to come.
const fewGroups = 256

func newQueue(l Levels, model string) queue {
	return queue{levels: newLevels(l, model), groups: map[uint64]*group{}, most: fewGroups}
}

// push takes w in, or says why not: false when its level is full.
func (q *queue) push(w *Task, now int64) bool {
	l := q.levels.at(w.Meta.Priority)
	if l.MaxSize > 0 && l.n >= l.MaxSize {
		return false
	}
	q.arrived++
	w.queued.at = spot{level: l, rank: l.rank(), slot: nowhere, arrival: q.arrived}
	w.queued.at.expires = l.expires(w.Meta, now)
	l.n++
	q.n++
	q.rows += w.Rows
	q.line(w)
	q.time(w, now)
	return true
}

// late reports whether the time of w is over before it is queued.
func (q *queue) late(w *Task, now int64) bool {
	if w.Meta.Arrived == 0 {
		return false
	}
	l := &q.levels.prefers
	p := l.policy(l.of(w.Meta.Priority))
	expires := p.expires(w.Meta, now)
	return expires > 0 && now >= expires
}

// line puts w at the end of its lane.
func (q *queue) line(w *Task) {
	g := q.last
	if g == nil || g.key != w.key {
		g = q.group(w.key)
		q.last = g
	}
	front := len(g.lanes) == 0 || w.queued.at.rank < g.lanes[0].rank
	g.push(w)
	switch {
	case g.pos == nowhere:
		q.heap.add(g)
	case front:
		q.heap.up(g.pos)
	}
}

// unline takes w out of its lane.
func (q *queue) unline(w *Task) {
	g := w.queued.at.group
	first := g.remove(w)
	switch {
	case len(g.lanes) == 0:
		q.heap.remove(g)
	case first:
		q.heap.down(g.pos)
	}
}

// group returns the group of a key, a new one when the key is new.
func (q *queue) group(key uint64) *group {
	if g := q.groups[key]; g != nil {
		return g
	}
	if len(q.groups) >= q.most {
		for k, g := range q.groups {
			if len(g.lanes) == 0 {
				delete(q.groups, k)
			}
		}
		q.most = max(fewGroups, 2*len(q.groups))
	}
	g := &group{key: key, pos: nowhere}
	q.groups[key] = g
	return g
}

// time has w come up when its time is over.
func (q *queue) time(w *Task, now int64) {
	w.queued.at.due = w.queued.at.expires
	if d := w.Meta.Deadline; d > 0 && (w.queued.at.due == 0 || d < w.queued.at.due) {
		w.queued.at.due = d
	}
	if w.queued.at.due == 0 {
		return
	}
	if q.wheel == nil {
		q.wheel = new(wheel)
	}
	q.wheel.add(w, now)
}

// remove takes w out.
func (q *queue) remove(w *Task) {
	q.unline(w)
	if w.queued.at.due != 0 {
		q.wheel.remove(w)
	}
	w.queued.at.level.n--
	q.n--
	q.rows -= w.Rows
}

// keeps looks at w at its turn or when it is due. A work that must not be executed any
// more is moved to dropped, with its error; one that is to wait for all others goes
// behind them. Only what stays where it is is kept.
func (q *queue) keeps(w *Task, now int64, dropped *TaskList) bool {
	err := w.Expired(now)
	why := refusalOf(err)
	if err == nil {
		if w.queued.at.expires == 0 || now < w.queued.at.expires {
			return true
		}
		if w.queued.at.level.Delay {
			q.delay(w, now)
			return false
		}
		err, why = q.levels.errLate(w.queued.at.level), telemetry.QueueTimeout
	}
	q.remove(w)
	w.Err, w.why = err, why
	dropped.Push(w)
	return false
}

// delay puts w, whose time is over, behind the others of its level.
func (q *queue) delay(w *Task, now int64) {
	q.unline(w)
	q.wheel.remove(w)
	w.queued.at.rank++
	w.queued.at.expires = 0
	q.line(w)
	q.time(w, now)
}

// expire looks at the works that are due.
func (q *queue) expire(now int64, dropped *TaskList) {
	if q.wheel == nil || q.wheel.n == 0 {
		return
	}
	for w := q.wheel.advance(now); w != nil; {
		after := w.queued.at.after
		w.queued.at.after = nil
		if q.keeps(w, now, dropped) {
			q.time(w, now) // it was told from the clock's ticks
		}
		w = after
	}
}

// sweep looks at every work, for clients that have gone.
func (q *queue) sweep(now int64, dropped *TaskList) {
	q.expire(now, dropped)
	for i := 0; i < len(q.heap); {
		g := q.heap[i]
		for w := g.after(nil); w != nil; {
			after := g.after(w)
			if w.Ctx.Err() != nil {
				q.keeps(w, now, dropped)
			}
			w = after
		}
		if i < len(q.heap) && q.heap[i] == g {
			i++
		}
	}
}

// errFull returns why a work is refused whose level is full, where a work takes perWork ns.
func (q *queue) errFull(w *Task, perWork int64) error {
	return q.levels.errFull(q.levels.at(w.Meta.Priority), perWork)
}
