package queue

import (
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// backlog holds the queued tasks in order of service: the highest priority level first, in a level those past their
// timeout behind the others, and else in order of arrival. Tasks that may share a batch form a group, so that those of
// other shapes in between cost nothing. Adding and removing a task costs the same however many are queued, but for a
// logarithm of the number of shapes. It is not safe for concurrent use.
type backlog struct {
	levels  levels
	groups  map[groupKey]*group
	heap    groups
	last    *group // the one used last
	shares  shares
	most    int    // groups to keep, empty ones included
	wheel   *wheel // made when the first task has a time limit
	n       int
	rows    int32
	size    int64 // elements
	due     dueOrder
	arrived uint64
	spare   *entry // free entries, linked by next
	spares  int
}

const (
	// fewGroups is how many shapes are kept for the tasks to come.
	fewGroups = 256
	// maxSpare bounds the free entries.
	maxSpare = 1024
)

func newBacklog(l Levels, model string) backlog {
	return backlog{levels: levels{prefers: l, model: model, others: map[uint64]*level{}, most: fewLevels}, groups: map[groupKey]*group{}, most: fewGroups}
}

// push adds a task; false when its level is full.
//
// hot: no allocation in the steady state.
func (q *backlog) push(w *scheduler.Task, now int64) bool {
	l := q.levels.at(w.Meta.Priority)
	if l.MaxSize > 0 && l.n >= l.MaxSize {
		return false
	}
	e := q.spare
	if e == nil {
		e = new(entry)
	} else {
		q.spare, e.next = e.next, nil
		q.spares--
	}
	q.arrived++
	e.task, e.level, e.rank, e.slot, e.arrival = w, l, l.rank(), nowhere, q.arrived
	e.expires = l.expires(w.Meta, now)
	e.due = q.due.key(w, now)
	w.Probe = w.Meta.Probe
	l.n++
	q.n++
	q.rows += w.Rows
	q.size += w.Elements
	if w.Meta.Client != nil || q.shares.flows != nil {
		q.join(e)
	}
	q.enter(e)
	q.schedule(e, now)
	return true
}

// late reports whether the timeout of w has ended before it is queued.
func (q *backlog) late(w *scheduler.Task, now int64) bool {
	if w.Meta.Arrived == 0 {
		return false
	}
	l := &q.levels.prefers
	p := l.policy(l.of(w.Meta.Priority))
	expires := p.expires(w.Meta, now)
	return expires > 0 && now >= expires
}

// enter puts e at the end of its lane.
func (q *backlog) enter(e *entry) {
	g, key := q.last, groupKey{e.task.Shape, e.flow}
	if g == nil || g.key != key {
		g = q.group(key)
		q.last = g
	}
	front := len(g.lanes) == 0 || e.precedes(&g.lanes[0])
	g.push(e)
	switch {
	case g.pos == nowhere:
		q.heap.add(g)
		if e.flow != nil {
			e.flow.groups = append(e.flow.groups, g)
		}
	case front:
		q.heap.up(g.pos)
	}
}

// leave takes e out of its lane.
func (q *backlog) unlink(e *entry) {
	g := e.group
	first := g.remove(e)
	switch {
	case len(g.lanes) == 0:
		q.heap.remove(g)
		if f := g.key.flow; f != nil {
			f.leave(g)
		}
	case first:
		q.heap.down(g.pos)
	}
}

// group returns the group of a key, a new one when the key is new.
func (q *backlog) group(key groupKey) *group {
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

// schedule has e checked when its timeout or its deadline has passed.
func (q *backlog) schedule(e *entry, now int64) {
	e.check = e.expires
	if d := e.task.Meta.Deadline; d > 0 && (e.check == 0 || d < e.check) {
		e.check = d
	}
	if e.check == 0 {
		return
	}
	if q.wheel == nil {
		q.wheel = new(wheel)
	}
	q.wheel.add(e, now)
}

// remove takes e out and returns its task. e is reused.
func (q *backlog) remove(e *entry) *scheduler.Task {
	w := e.task
	q.unlink(e)
	if e.check != 0 {
		q.wheel.remove(e)
	}
	e.level.n--
	if e.flow != nil {
		q.shares.left(e)
	}
	if q.n--; q.n == 0 {
		q.due.on = false
		q.shares.rest()
	}
	q.rows -= w.Rows
	q.size -= w.Elements
	*e = entry{slot: nowhere}
	if q.spares < maxSpare {
		e.next, q.spare = q.spare, e
		q.spares++
	}
	return w
}

// check reports whether e stays in place. One that must not execute goes to dropped; one that is late may be delayed.
func (q *backlog) check(e *entry, now int64, dropped *scheduler.TaskList) bool {
	err := e.task.Expired(now)
	refusal := batch.RefusalOf(err)
	if err == nil {
		if e.expires == 0 || now < e.expires {
			return true
		}
		if e.level.Delay {
			q.delay(e, now)
			return false
		}
		err, refusal = q.levels.errLate(e.level), telemetry.QueueTimeout
	}
	w := q.remove(e)
	w.Err, w.Refusal = err, refusal
	dropped.Push(w)
	return false
}

// delay moves e, whose timeout has ended, behind the others of its level.
func (q *backlog) delay(e *entry, now int64) {
	q.unlink(e)
	q.wheel.remove(e)
	e.rank++
	e.expires = 0
	q.enter(e)
	q.schedule(e, now)
}

// expire checks the tasks that are due.
func (q *backlog) expire(now int64, dropped *scheduler.TaskList) {
	if q.wheel == nil || q.wheel.n == 0 {
		return
	}
	for e := q.wheel.advance(now); e != nil; {
		after := e.after
		e.after = nil
		if q.check(e, now, dropped) {
			q.schedule(e, now) // due within the current tick
		}
		e = after
	}
}

// sweep checks every task, for clients that have disconnected.
func (q *backlog) sweep(now int64, dropped *scheduler.TaskList) {
	q.expire(now, dropped)
	for i := 0; i < len(q.heap); {
		g := q.heap[i]
		for e := g.after(nil); e != nil; {
			after := g.after(e)
			if e.task.Ctx.Err() != nil {
				q.check(e, now, dropped)
			}
			e = after
		}
		if i < len(q.heap) && q.heap[i] == g {
			i++
		}
	}
}

// fail moves every task to dropped, with an error.
func (q *backlog) fail(why error, dropped *scheduler.TaskList) {
	for len(q.heap) > 0 {
		w := q.remove(q.heap[0].after(nil))
		w.Err, w.Refusal = why, telemetry.NotServing
		dropped.Push(w)
	}
}

// entry is a task in a backlog.
type entry struct {
	task       *scheduler.Task
	group      *group
	prev, next *entry // in the lane
	level      *level
	rank       uint64 // in the order of service: odd behind the others of its level
	due        int64  // in the order of service, behind rank: see dueOrder
	arrival    uint64 // counts entries
	flow       *flow  // of the task's client; nil where clients are not told apart
	cost       int64  // what the task is expected to take of an instance, of a client's only
	slot       int16  // in the timing wheel, or nowhere

	expires       int64  // when the queue policy's timeout ends, 0 for never
	check         int64  // when to check the task, 0 for never
	before, after *entry // in the wheel's slot
}

// groupKey is what the tasks of a group share: a shape and, where clients are told apart, the client.
type groupKey struct {
	shape uint64
	flow  *flow
}

// group holds the queued tasks of one shape, and one client where they are told apart, by lanes in order of service.
type group struct {
	key   groupKey
	lanes []lane // those that hold tasks, by rank and due time
	pos   int    // in the heap; nowhere when empty
}

// lane is a list of tasks of one rank, a priority level before or after their timeout, and one due time.
type lane struct {
	rank       uint64
	due        int64
	rows       int32
	size       int64
	undated    int32 // tasks without a deadline
	head, tail *entry
}

// precedes reports whether e is served before the tasks of a lane.
func (e *entry) precedes(l *lane) bool { return e.rank < l.rank || e.rank == l.rank && e.due < l.due }

// find returns the position of an entry's lane, or where to insert it.
func (g *group) find(e *entry) int {
	lo, hi := 0, len(g.lanes)
	for lo < hi {
		mid := (lo + hi) / 2
		if l := &g.lanes[mid]; l.rank < e.rank || l.rank == e.rank && l.due < e.due {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// push appends e to its lane.
func (g *group) push(e *entry) {
	i := g.find(e)
	if i == len(g.lanes) || e.precedes(&g.lanes[i]) {
		g.lanes = append(g.lanes, lane{}) // slices.Insert and slices.Delete take longer
		copy(g.lanes[i+1:], g.lanes[i:])
		g.lanes[i] = lane{rank: e.rank, due: e.due}
	}
	l := &g.lanes[i]
	l.rows += e.task.Rows
	l.size += e.task.Elements
	if e.task.Meta.Deadline == 0 {
		l.undated++
	}
	e.group, e.prev, e.next = g, l.tail, nil
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
}

// remove takes e out of its lane and reports whether it was the first of the group.
func (g *group) remove(e *entry) (first bool) {
	i := g.find(e)
	l := &g.lanes[i]
	l.rows -= e.task.Rows
	l.size -= e.task.Elements
	if e.task.Meta.Deadline == 0 {
		l.undated--
	}
	first = i == 0 && l.head == e
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	if l.head == nil {
		last := len(g.lanes) - 1
		copy(g.lanes[i:], g.lanes[i+1:])
		g.lanes[last] = lane{}
		g.lanes = g.lanes[:last]
	}
	e.group, e.prev, e.next = nil, nil, nil
	return first
}

// after returns the entry that follows e, the first one for nil, and nil behind the last.
func (g *group) after(e *entry) *entry {
	switch {
	case e == nil:
		if len(g.lanes) == 0 {
			return nil
		}
		return g.lanes[0].head
	case e.next != nil:
		return e.next
	}
	if i := g.find(e) + 1; i < len(g.lanes) {
		return g.lanes[i].head
	}
	return nil
}

// before reports whether g's first task is served before h's.
func (g *group) before(h *group) bool {
	if v, w := g.key.flow.turn(), h.key.flow.turn(); v != w {
		return v < w
	}
	return g.lanes[0].head.earlier(h.lanes[0].head)
}

// earlier reports whether e is served before other, of a client whose turn is the same.
func (e *entry) earlier(other *entry) bool {
	if e.rank != other.rank {
		return e.rank < other.rank
	}
	if e.due != other.due {
		return e.due < other.due
	}
	return e.arrival < other.arrival
}

// groups is a binary heap, next group first. The interface calls of container/heap cost more than the comparisons.
type groups []*group

func (h groups) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h groups) up(i int) {
	for i > 0 && h[i].before(h[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h groups) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		h.swap(i, first)
		i = first
	}
}

func (h *groups) add(g *group) {
	g.pos = len(*h)
	*h = append(*h, g)
	h.up(g.pos)
}

func (h *groups) remove(g *group) {
	i, last := g.pos, len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	g.pos = nowhere
	if i < last {
		h.down(i)
		h.up(i)
	}
}
