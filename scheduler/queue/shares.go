package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// shares order the tasks of a backlog so that each client gets its share of the instances while several have tasks there. The queue's
// lock guards them. Without clients they cost a comparison with nil.
//
// Each client has a counter of what its tasks have taken of the instances, divided by its weight, and the client with the least counter
// is served next (virtual token counters, arXiv 2401.00588, which are start-time fair queueing). Within a client the order is the usual
// one, by priority and deadline. So a client alone has all instances, and one that floods the queue delays itself.
//
// A client that comes back is at most lead behind the counter of those who are served, so that it cannot save its share up; lead is a
// batch, so that it is in the next one. When nothing is queued all counters are equal again: nobody has waited because of what was taken.
//
// For example, a client with 1000 queued tasks and one that sends a task now and then: the batch after the arrival has that task and 15 of
// the other client.
type shares struct {
	of      *Queue // for costs; nil in tests of backlogs
	flows   map[*infer.Client]*flow
	active  []*flow // that have tasks
	served  float64 // the greatest counter with which a task was served
	highest float64 // the greatest counter
	floor   float64 // the greatest counter when the backlog was empty
	most    int     // flows to keep, those without tasks included
}

// flow is what a backlog knows of a client.
type flow struct {
	client  *infer.Client
	counter float64 // ns of an instance, divided by the client's weight
	n       int     // tasks
	rows    int32
	size    int64 // elements
	queued  int64 // cost of the tasks
	pos     int   // in active
	groups  []*group
}

// fewFlows is how many clients without tasks are remembered.
const fewFlows = 64

// turn returns the counter that decides when a client is served.
//
// hot: compared with nil only, where clients are not told apart.
func (f *flow) turn() float64 {
	if f == nil {
		return 0
	}
	return f.counter
}

// after returns the counter when a cost more was served.
func (f *flow) after(cost int64) float64 { return f.counter + float64(cost)/f.client.Weight }

// leave notes that a group of the client is empty.
func (f *flow) leave(g *group) {
	last := len(f.groups) - 1
	for i := range f.groups {
		if f.groups[i] == g {
			f.groups[i], f.groups[last] = f.groups[last], nil
			f.groups = f.groups[:last]
			return
		}
	}
}

// nobody is the client of tasks without one, such as those of jobs.
var nobody = &infer.Client{Name: "(none)", Weight: 1}

// clientOf returns the client of a task.
func clientOf(w *scheduler.Task) *infer.Client {
	if c := w.Meta.Client; c != nil {
		return c
	}
	return nobody
}

// several reports whether tasks of more than one client are queued.
func (s *shares) several() bool { return len(s.active) > 1 }

// join adds an entry to the flow of its client.
func (q *backlog) join(e *entry) {
	s, w := &q.shares, e.task
	e.cost = s.costOf(w)
	c := clientOf(w)
	f := s.flows[c]
	if f == nil {
		f = q.newFlow(c)
	}
	if f.n == 0 {
		f.counter = s.entry(f)
		f.pos = len(s.active)
		s.active = append(s.active, f)
	}
	f.n++
	f.rows += w.Rows
	f.size += w.Elements
	f.queued += e.cost
	e.flow = f
}

// newFlow returns the flow of a new client. It forgets clients that would not be served later than a new one.
func (q *backlog) newFlow(c *infer.Client) *flow {
	s := &q.shares
	if s.flows == nil {
		s.flows, s.most = map[*infer.Client]*flow{}, fewFlows
	}
	if len(s.flows) >= s.most {
		least := s.least()
		maps.DeleteFunc(s.flows, func(_ *infer.Client, f *flow) bool { return f.n == 0 && f.counter <= least })
		maps.DeleteFunc(q.groups, func(key groupKey, g *group) bool { return len(g.lanes) == 0 && s.flows[key.flow.owner()] != key.flow })
		s.most = max(fewFlows, 2*len(s.flows))
	}
	f := &flow{client: c}
	s.flows[c] = f
	return f
}

// owner returns the client of a flow, nil for none.
func (f *flow) owner() *infer.Client {
	if f == nil {
		return nil
	}
	return f.client
}

// least returns the least counter with which a client without tasks comes back.
func (s *shares) least() float64 {
	lead := int64(0)
	if s.of != nil {
		lead = s.of.fullCost()
	}
	return max(s.floor, s.served-float64(lead))
}

// entry returns the counter of a client that comes back. f may be nil, for one that is not known.
func (s *shares) entry(f *flow) float64 { return max(f.turn(), s.least()) }

// left takes an entry out of its flow.
func (s *shares) left(e *entry) {
	f, w := e.flow, e.task
	f.n--
	f.rows -= w.Rows
	f.size -= w.Elements
	f.queued -= e.cost
	if f.n == 0 {
		last := len(s.active) - 1
		s.active[f.pos] = s.active[last]
		s.active[f.pos].pos = f.pos
		s.active[last] = nil
		s.active = s.active[:last]
	}
}

// rest notes that the backlog is empty.
func (s *shares) rest() { s.floor = s.highest }

// serve takes out a task that executes, and counts what it takes for its client.
func (q *backlog) serve(e *entry) *scheduler.Task {
	f, cost := e.flow, e.cost
	if f == nil {
		return q.remove(e)
	}
	s := &q.shares
	s.served = max(s.served, f.counter)
	s.highest = max(s.highest, f.after(cost))
	w := q.remove(e)
	f.counter = f.after(cost)
	if len(f.groups) > 1 { // from the bottom of the heap to the top: what is below a group is in order then
		slices.SortFunc(f.groups, func(a, b *group) int { return b.pos - a.pos })
	}
	for _, g := range f.groups {
		q.heap.down(g.pos)
	}
	return w
}

// first returns the group of a shape that is served first, nil if no task of the shape is queued.
func (q *backlog) first(shape uint64) (best *group) {
	if q.shares.flows == nil {
		if g := q.groups[groupKey{shape: shape}]; g != nil && len(g.lanes) > 0 {
			return g
		}
		return nil
	}
	for _, g := range q.heap {
		if g.key.shape == shape && (best == nil || g.before(best)) {
			best = g
		}
	}
	return best
}

// costOf returns what a task is expected to take of an instance.
func (s *shares) costOf(w *scheduler.Task) int64 {
	if s.of == nil {
		return int64(w.Rows)
	}
	return s.of.costOf(w)
}

// costOf returns what a task is expected to take of an instance: its part of a batch, in ns, as far as it is known. Called with the lock
// held. Batches are observed from now on.
func (q *Queue) costOf(w *scheduler.Task) int64 {
	q.watching = true
	switch {
	case q.latency.Known():
		return max(q.latency.Share(float64(w.Rows), float64(w.Elements)), 1)
	case q.perTask > 0:
		return q.perTask * int64(w.Rows)
	}
	return int64(w.Rows)
}

// fullCost returns what a full batch takes. Called with the lock held.
func (q *Queue) fullCost() int64 {
	rows := max(q.runner.Signature().MaxBatch, 1)
	if q.latency.Known() {
		return q.latency.Rows(float64(rows))
	}
	return max(q.perTask, 1) * int64(rows)
}

// turns is a heap of the groups of one shape in a view of several clients, the next one to serve first.
type turns []clientTurn

// clientTurn is where a view is in a group.
type clientTurn struct {
	g       *group
	e       *entry  // the next one, not nil
	counter float64 // the client's, with what the view has of it
}

func (t turns) before(i, j int) bool {
	if t[i].counter != t[j].counter {
		return t[i].counter < t[j].counter
	}
	return t[i].e.earlier(t[j].e)
}

// down moves an element behind those before it.
func (t turns) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t); child++ {
			if t.before(child, first) {
				first = child
			}
		}
		if first == i {
			return
		}
		t[i], t[first] = t[first], t[i]
		i = first
	}
}

// viewOfClients is view where several clients have tasks: those of the shape of g, in the order in which the clients' turns come if all of
// them are served.
func (q *Queue) viewOfClients(b *backlog, g *group, now int64, dropped *scheduler.TaskList) scheduler.View {
	d := &q.decision
	clear(d.seen)
	d.items, d.seen, d.turns = d.items[:0], d.seen[:0], d.turns[:0]
	closed := false
	for _, peer := range b.heap {
		if peer.key.shape == g.key.shape {
			d.turns = append(d.turns, clientTurn{peer, peer.after(nil), peer.key.flow.turn()})
		} else {
			closed = true
		}
	}
	for i := len(d.turns)/2 - 1; i >= 0; i-- {
		d.turns.down(i)
	}
	for len(d.turns) > 0 && len(d.items) < q.window {
		next := &d.turns[0]
		e, after, f, cost := next.e, next.g.after(next.e), next.g.key.flow, next.e.cost
		if b.check(e, now, dropped) {
			d.items = append(d.items, item(e.task))
			d.seen = append(d.seen, e)
			if f != nil {
				next.counter += float64(cost) / f.client.Weight
			}
		}
		if next.e = after; after == nil {
			last := len(d.turns) - 1
			d.turns[0], d.turns[last] = d.turns[last], clientTurn{}
			d.turns = d.turns[:last]
		}
		d.turns.down(0)
	}
	v := scheduler.View{
		Items: d.items, More: len(d.turns) > 0, Instances: int32(len(q.all)), Executing: q.rows, Queued: b.rows, Flush: q.flush, Closed: closed,
	}
	clear(d.turns)
	return v
}

// aheadOf is ahead for a task of a client that is due at a time: what is served before it. Of its own tasks those are that are due
// earlier, of each other client what it gets until the task's turn comes.
func (q *backlog) aheadOf(c *infer.Client, due int64) (rows int32, size int64) {
	s := &q.shares
	f := s.flows[c]
	turn := s.entry(f)
	if f != nil && f.n > 0 {
		for _, g := range f.groups {
			for i := range g.lanes {
				if l := &g.lanes[i]; !q.due.on || l.due <= due {
					rows += l.rows
					size += l.size
				}
			}
		}
		turn = f.after(int64(float64(f.queued) * float64(rows) / float64(f.rows)))
	}
	for _, other := range s.active {
		if other == f || other.counter >= turn || other.queued == 0 {
			continue
		}
		part := min((turn-other.counter)*other.client.Weight/float64(other.queued), 1)
		rows += int32(part * float64(other.rows))
		size += int64(part * float64(other.size))
	}
	return rows, size
}

// pushOver is push where the task's priority level is full: it displaces a task of a client that has more in the queue, by its share. Called
// with the lock held.
func (q *Queue) pushOver(w *scheduler.Task, now int64, displaced *scheduler.TaskList) bool {
	if w.Meta.Client == nil {
		return false
	}
	victim := q.backlog.displace(w)
	if victim == nil {
		return false
	}
	victim.Err, victim.Refusal = q.errOverShare(victim), telemetry.OverShare
	displaced.Push(victim)
	return q.backlog.push(w, now)
}

// displace makes room for a task whose priority level is full: it takes out the last task of the client that has most in the queue, by its
// share, and returns it. It returns nil if that is the client of the task.
func (q *backlog) displace(w *scheduler.Task) *scheduler.Task {
	s, l := &q.shares, q.levels.at(w.Meta.Priority)
	own := s.flows[w.Meta.Client]
	most, last := s.entry(own)+float64(s.costOf(w))/w.Meta.Client.Weight, (*entry)(nil)
	if own != nil {
		most += float64(own.queued) / own.client.Weight
	}
	for _, f := range s.active {
		if f == own || f.after(f.queued) <= most {
			continue
		}
		if e := f.last(l); e != nil {
			most, last = f.after(f.queued), e
		}
	}
	if last == nil {
		return nil
	}
	return q.remove(last)
}

// last returns the client's task in a priority level that is served last, nil for none.
func (f *flow) last(l *level) (last *entry) {
	for _, g := range f.groups {
		for _, lane := range slices.Backward(g.lanes) {
			e := lane.tail
			if e.level != l {
				continue
			}
			if last == nil || last.earlier(e) {
				last = e
			}
			break
		}
	}
	return last
}

// refuseFull sets the error of a task whose priority level is full: that of its client's share, if others wait, too.
func (q *Queue) refuseFull(w *scheduler.Task, now int64) {
	if s := &q.backlog.shares; w.Meta.Client != nil && (len(s.active) > 1 || len(s.active) == 1 && s.active[0].client != w.Meta.Client) {
		w.Err, w.Refusal = q.errOverShare(w), telemetry.OverShare
		return
	}
	w.Err, w.Refusal = q.backlog.levels.errFull(w.Meta.Priority, q.perTask/int64(len(q.all)), q.predictedWait(now)), telemetry.QueueFull
}

// errOverShare returns the error of a task whose client has most in a full queue.
func (q *Queue) errOverShare(w *scheduler.Task) error {
	delay := time.Second
	if f := q.backlog.shares.flows[w.Meta.Client]; f != nil && q.perTask > 0 {
		delay = min(time.Duration(f.queued/int64(len(q.all))), time.Minute)
	}
	return w.Meta.Client.ErrOverShare(q.runner.Signature().Model, delay)
}

// displacement completes tasks that had to leave the queue for those of other clients.
type displacement struct{ *Queue }

// RunInline implements scheduler.Inliner.
func (d displacement) RunInline(list scheduler.TaskList, t *scheduler.RunLoop) { d.drop(list, t) }
