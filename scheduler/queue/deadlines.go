package queue

import (
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/deadline"
)

// deadlines are what a queue knows for requests with deadlines. The queue's lock guards them. Nothing is observed, and nothing costs
// anything, before the first such request.
type deadlines struct {
	watching bool // batches are observed
	latency  deadline.Latency
	probes   deadline.Probes
	ends     []int64 // when the batches that execute are expected to end
}

// observe teaches the policy and the predictions what a batch has cost. Called with the lock held.
func (q *Queue) observe(x *scheduler.Executed) {
	if q.learner != nil {
		q.learner.Observe(*x)
	}
	if q.watching {
		padded := float64(x.Elements)
		if x.Unpadded > 0 {
			padded *= 1 + float64(x.Padding)/float64(x.Unpadded)
		}
		q.latency.Observe(float64(x.Rows), padded, int64(x.Duration))
	}
}

// begins notes that a batch begins, and returns when it is expected to end, 0 for unknown. Called with the lock held.
func (q *Queue) begins(list *scheduler.TaskList) (end int64) {
	if !q.watching {
		return 0
	}
	size, _ := sizeOf(list)
	end = telemetry.Now() + q.latency.Of(size)
	q.ends = append(q.ends, end)
	return end
}

// ended removes what begins has noted. Called with the lock held.
func (q *Queue) ended(end int64) {
	if i := slices.Index(q.ends, end); i >= 0 {
		last := len(q.ends) - 1
		q.ends[i] = q.ends[last]
		q.ends = q.ends[:last]
	}
}

// sizeOf returns the elements of the tasks of a list, and the time by which the first of them must be done; 0 without deadlines.
func sizeOf(list *scheduler.TaskList) (size float64, due int64) {
	for w := list.Head; w != nil; w = w.Next() {
		size += float64(w.Elements)
		if d := w.Due(); d > 0 && !w.Meta.Probe && (due == 0 || d < due) {
			due = d
		}
	}
	return size, due
}

// Forecast implements scheduler.Forecaster. The first call has batches observed from then on.
func (q *Queue) Forecast(now, due int64, c *infer.Client) (s deadline.Stage, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.predicts() {
		return s, false
	}
	return q.stage(now, due, c), true
}

// Load implements scheduler.Measurable. The wait is predicted from the times of batches where they are observed, else from the mean time
// of a task.
func (q *Queue) Load() scheduler.Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := scheduler.Load{Busy: len(q.all) - len(q.free), Instances: len(q.all)}
	switch n := int64(len(q.all)); {
	case n == 0 || len(q.free) > 0 && q.backlog.n == 0:
	case q.latency.Known():
		s := q.stage(telemetry.Now(), deadline.NoDeadline, nil)
		l.Wait = time.Duration(s.Wait())
	default:
		l.Wait = time.Duration(q.perTask * int64(q.backlog.n+1) / n)
	}
	return l
}

// predicts reports whether it is known how long batches take, and has them observed from now on. An execution of a decoupled model takes
// as long as its stream, which says nothing about its first response. Called with the lock held.
func (q *Queue) predicts() bool {
	if q.runner.Signature().Decoupled {
		return false
	}
	q.watching = true
	if q.device != nil {
		q.device.Watch()
	}
	return q.latency.Known() && len(q.all) > 0
}

// offer tells the device that the queue shares with others which batch would be next. Called with the lock held.
//
// hot: two comparisons without a shared device or without deadlines.
func (q *Queue) offer(now int64) {
	if q.device == nil || !q.device.Watched() {
		return
	}
	q.watching = true
	next := deadline.Candidate{Closes: deadline.NoDeadline}
	queued := int64(0)
	if b := &q.backlog; b.n > 0 {
		most := max(q.runner.Signature().MaxBatch, 1)
		next.Rows, next.Most = min(int(b.rows), most), most
		next.Batch = q.latency.Rows(float64(next.Rows))
		next.Full = float64(q.latency.Rows(float64(most))) / float64(most)
		if l := &b.heap[0].lanes[0]; b.due.on && l.due > 0 {
			m := deadline.Margins{Now: now, Batch: next.Batch, Deviation: q.latency.Deviation()}
			if p := l.head.task.Path; p != nil {
				m.Rest, next.Graph, next.Depth = l.head.task.Rest(), p.Graph, p.Depth
			}
			next.Closes = l.due - (m.Safe() - now - m.Rest)
		}
		queued = q.latency.Queue(float64(b.rows), float64(b.size), most)
	}
	q.bid.Set(next, queued)
}

// ask has the queue wait for the device that it shares with others, before the next batch is formed: it is among those that the device
// chooses from when the batch ends that has made the tasks ready. Called with the lock held and an instance free.
func (q *Queue) ask() {
	if q.device == nil || !q.device.Watched() {
		return
	}
	g, ok := q.free[len(q.free)-1].(*limited)
	if !ok || slices.ContainsFunc(q.limited, func(g *limited) bool { return g.Waiting() }) {
		return
	}
	g.Acquire()
}

// stage is Forecast with the lock held.
func (q *Queue) stage(now, due int64, c *infer.Client) deadline.Stage {
	s := deadline.Stage{Latency: q.latency, Instances: len(q.all), MaxBatch: q.runner.Signature().MaxBatch}
	if len(q.free) == 0 {
		if len(q.ends) > 0 {
			s.Busy = slices.Min(q.ends) - now
		}
		if s.Busy <= 0 { // overdue, or not known
			s.Busy = max(q.latency.Rows(q.latency.Recent())/2, 1)
		}
	}
	rows, size := q.backlog.ahead(due, c)
	s.Rows = float64(rows)
	s.Work = q.latency.Queue(float64(rows), float64(size), q.runner.Signature().MaxBatch) / int64(len(q.all))
	if q.device != nil {
		s.Device, s.Load = q.device, q.device.Load()
		s.Queued, s.Undated = q.bid.Queued()
	}
	return s
}

// predictedWait returns how long a task would wait that comes now, 0 where that is not predicted. Called with the lock held.
func (q *Queue) predictedWait(now int64) int64 {
	if !q.watching || !q.predicts() {
		return 0
	}
	s := q.stage(now, deadline.NoDeadline, nil)
	return s.Busy + s.Work
}

// ahead returns the rows and elements of the tasks that are served before one of a client that is due at a time.
//
// hot: all of them without a search where all are.
func (q *backlog) ahead(due int64, c *infer.Client) (rows int32, size int64) {
	if c != nil && q.shares.flows != nil {
		return q.aheadOf(c, due)
	}
	if due == deadline.NoDeadline || !q.due.on {
		return q.rows, q.size
	}
	for _, g := range q.heap {
		for i := range g.lanes {
			if l := &g.lanes[i]; l.due <= due {
				rows += l.rows
				size += l.size
			}
		}
	}
	return rows, size
}

// unreachable refuses a task of a model that is no step of an ensemble, if its deadline would pass first, and reports whether it has. Called
// with the lock held.
func (q *Queue) unreachable(w *scheduler.Task, now int64) bool {
	due, c := w.Meta.Deadline, w.Meta.Client
	if due == 0 || w.Path != nil || !q.predicts() {
		return false
	}
	batch, doubt := q.latency.Of(float64(w.Elements)), deadline.Doubt(q.latency.Deviation())
	takes := func(due int64, c *infer.Client) int64 {
		s := q.stage(now, due, c)
		return int64(doubt * float64(s.Wait()+batch))
	}
	if takes(deadline.NoDeadline, nil) <= due-now {
		return false
	}
	expected := takes(due, c)
	switch {
	case expected <= due-now:
		return false
	case q.backlog.n == 0 && q.rows == 0 && q.probes.Try(now):
		w.Meta.Probe = true
		return false
	case c != nil && c.Contended(now) && takes(due, infer.Newcomer) <= due-now:
		w.Err, w.Refusal = c.ErrOverShare(q.runner.Signature().Model, time.Duration(now+expected-due)), telemetry.OverShare
	default:
		w.Err, w.Refusal = q.errMissed(w, now, now+expected), telemetry.DeadlineMissed
	}
	return true
}

// errMissed returns the error of a task whose request would end at a time that is after its deadline.
func (q *Queue) errMissed(w *scheduler.Task, now, ends int64) error {
	return scheduler.ErrMissed(q.runner.Signature().Model, w.Meta, now, ends)
}

// dated reports whether deadlines decide on the batches of a backlog: never on those of the background.
func (q *Queue) dated(b *backlog) bool {
	return b.due.on && b == &q.backlog && q.watching && q.latency.Known()
}

// late reports whether a batch of the tasks of a list would complete one of them too late. Called with the lock held.
func (q *Queue) late(list *scheduler.TaskList, now int64) bool {
	if !q.watching || !q.latency.Known() {
		return false
	}
	size, due := sizeOf(list)
	m := q.batch(size, now)
	return due > 0 && m.Ends() > due // due has the rest already
}

// formDated is form where tasks have deadlines: those that a batch would complete too late are dropped.
func (q *Queue) formDated(b *backlog, now int64, dropped *scheduler.TaskList) (take []int32, wait time.Duration) {
	for len(b.heap) > 0 {
		g := b.heap[0]
		v := q.view(b, g, nil, now, dropped)
		if len(v.Items) == 0 || len(b.heap) == 0 || b.heap[0] != g {
			continue
		}
		d := q.policy.Decide(now, v, q.decision.take[:0])
		if len(d.Take) == 0 {
			if d.Wait = min(d.Wait, q.closes(now)); d.Wait > 0 {
				return nil, d.Wait
			}
			v.Flush = true
			d = q.policy.Decide(now, v, q.decision.take[:0])
		}
		m := q.margins(d.Take, now)
		q.probe(d.Take, &m)
		if q.dropMissed(b, d.Take, &m, dropped) > 0 {
			continue
		}
		if from := q.safe(g, d.Take, &m); from != nil {
			v = q.view(b, g, from, now, dropped)
			v.Flush = true // the batch executes now; the policy only chooses its tasks
			d = q.policy.Decide(now, v, q.decision.take[:0])
		}
		return d.Take, 0
	}
	return nil, longest
}

// margins judges a batch of the items at the given positions.
func (q *Queue) margins(take []int32, now int64) deadline.Margins {
	size := 0.0
	for _, i := range take {
		size += float64(q.decision.items[i].Elements)
	}
	m := q.batch(size, now)
	m.Rest = q.decision.seen[take[0]].task.Rest()
	return m
}

// batch judges a batch of a size until its end.
func (q *Queue) batch(size float64, now int64) deadline.Margins {
	return deadline.Margins{Now: now, Batch: q.latency.Of(size), Deviation: q.latency.Deviation()}
}

// closes returns how long a batch of all that the policy sees may wait until one of its requests has no room to spare any more.
func (q *Queue) closes(now int64) time.Duration {
	size, left := 0.0, int64(longest)
	for i, e := range q.decision.seen {
		size += float64(q.decision.items[i].Elements)
		if due := e.task.Due(); due > 0 {
			left = min(left, due-now)
		}
	}
	if left == int64(longest) {
		return longest
	}
	m := q.batch(size, now)
	return time.Duration(left - (m.Safe() - now))
}

// probe lets one task of a batch through, if all of them would be dropped while nothing executes: without executions nothing is learned.
func (q *Queue) probe(take []int32, m *deadline.Margins) {
	if q.rows > 0 {
		return
	}
	ends := m.Ends()
	for _, i := range take {
		if w := q.decision.seen[i].task; w.Meta.Deadline == 0 || w.Probe || ends <= w.Meta.Deadline {
			return
		}
	}
	if q.probes.Try(m.Now) {
		q.decision.seen[take[0]].task.Probe = true
	}
}

// dropMissed drops the tasks at the given positions that a batch of them would complete too late, and returns how many.
func (q *Queue) dropMissed(b *backlog, take []int32, m *deadline.Margins, dropped *scheduler.TaskList) (n int) {
	ends := m.Ends()
	for _, i := range take {
		e := q.decision.seen[i]
		w := e.task
		if due := w.Meta.Deadline; due == 0 || ends <= due || w.Probe {
			continue
		}
		b.remove(e)
		w.Err, w.Refusal = q.errMissed(w, m.Now, ends), telemetry.DeadlineMissed
		dropped.Push(w)
		n++
	}
	return n
}

// safe returns the first of the tasks with room to spare, if others are at the head of the group and those with room make a batch as large
// as the one that take describes; else nil. Requests without a deadline are not left out.
func (q *Queue) safe(g *group, take []int32, m *deadline.Margins) *entry {
	first := q.decision.seen[take[0]]
	if due := first.task.Meta.Deadline; q.backlog.shares.several() || due == 0 || due >= m.Safe() {
		return nil
	}
	rows := int32(0)
	for _, i := range take {
		rows += q.decision.items[i].Rows
	}
	return g.dueFrom(m.Safe()-m.Rest, rows)
}

// dueFrom returns the first task of the group's first rank that is due at a time or later, if so many rows are; else nil. It passes no task
// without a deadline.
func (g *group) dueFrom(due int64, rows int32) (from *entry) {
	for i := range g.lanes {
		l := &g.lanes[i]
		switch {
		case l.rank != g.lanes[0].rank:
			return nil
		case l.due < due && l.undated == 0:
			continue
		case from == nil && i == 0:
			return nil
		case from == nil:
			from = l.head
		}
		if rows -= l.rows; rows <= 0 {
			return from
		}
	}
	return nil
}
