package exec

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// A fan-out makes the items of each row rows of their own. The plan is divided into parts, each with an executor: one for the steps outside of
// every fan-out, and one for those inside of each. A node stands for the whole fan-out in the part around it. When its inputs are there, divide
// lists the items, and those of equal shape form groups. A run of the inner part executes each group, with the request's run as its root. When
// the last group has ended, gather puts the items together in order.
//
// For example, of crop -> demux -> classify -> gather, an image with 5 crops, 3 of which are 32 by 32, is executed by one run of crop and gather, and
// by two of classify: one with 3 rows, one with 2.

// partPosition is the position of an executor in a plan with fan-outs, which has one for each part. It is zero otherwise.
type partPosition struct {
	numbers []int32   // per node: its number in the whole plan
	fanOuts []*fanOut // per node: what it stands for, or nil
	meets   []int32   // plan.Part.Meets
	limit   *itemLimit
}

// fanOut is a fan-out and its inner part.
type fanOut struct {
	*plan.FanOut

	x      *Executor
	at     int // in run.fans
	counts *telemetry.FanOut
}

// newParts returns the executor of the part outside of every fan-out.
func newParts(s *Settings) *Executor {
	limit := &itemLimit{}
	x := newPart(s, s.Plan.First, nil, limit)
	x.whole = s.Plan
	return x
}

// newPart returns the executor of a part, with those inside of it. of is its fan-out, nil for the part outside of all.
func newPart(s *Settings, part *plan.Part, of *plan.FanOut, limit *itemLimit) *Executor {
	targets := make([]scheduler.Scheduler, len(part.Numbers))
	for i, n := range part.Numbers {
		targets[i] = s.Targets[n]
	}
	x := newExecutor(s, part.Plan, targets, part.Numbers, segmentPosition{})
	if of != nil {
		x.entries = slices.Concat(of.Items, of.Around)
	}
	x.partPosition = partPosition{numbers: part.Numbers, fanOuts: make([]*fanOut, len(part.Numbers)), meets: part.Meets, limit: limit}
	n := 0
	for i := range part.Plan.Nodes {
		op := part.Plan.Nodes[i].Operation
		if op == nil || op.FanOut == nil {
			continue
		}
		if at := op.FanOut.Demux.MaxInFlight; limit.most == 0 || at < limit.most {
			limit.most = at
		}
		x.fanOuts[i] = &fanOut{FanOut: op.FanOut, x: newPart(s, &op.FanOut.Part, op.FanOut, limit), at: n, counts: x.fanOutCounters(i)}
		n++
	}
	return x
}

// number returns the number of a node in the whole plan.
func (x *Executor) number(n int32) int32 {
	if x.numbers != nil {
		return x.numbers[n]
	}
	return n
}

// countFanOuts returns how many fan-outs the part has.
func (x *Executor) countFanOuts() (n int) {
	for _, f := range x.fanOuts {
		if f != nil {
			n++
		}
	}
	return n
}

// groupOf is the state of a run that executes a group of items.
type groupOf struct {
	parent *run // nil for a run that executes none
	node   int32
	index  int32
	number int32        // counts the groups of a request, from 1
	last   atomic.Int32 // the step that was executed last
}

// counted are what the fan-outs of a request share; they are the root's.
type counted struct {
	items  atomic.Int64
	groups atomic.Int32
}

// fanState is a fan-out of a run. Its memory is kept for the next run.
type fanState struct {
	after   int32
	pending atomic.Int32 // groups that have not ended
	divided
	runs []*run // per group, until its items are gathered
	meetings
	// memory of a gather
	parts  []tensor.Tensor
	places []place
	spans  []units
}

// fanOut begins the fan-out that node n stands for. The task counts itself.
func (r *run) fanOut(n, after int32, loop *scheduler.RunLoop) (staged int32) {
	node, f := &r.x.plan.Nodes[n], r.x.fanOuts[n]
	in, st := r.tasks[n].In, &r.fans[f.at]
	st.after = after
	err := r.operands(node, in)
	for port := range in {
		if err == nil {
			err = r.project(&in[port], node, port)
		}
	}
	if err == nil {
		err = st.divide(f, node, in)
	}
	if err == nil && r.root.counted.items.Add(int64(len(st.items))) > int64(f.Demux.MaxItems) {
		err = status.Prefixf(tooManyItems(f.Demux), "'%s': ", node.Name)
	}
	if err != nil {
		tensor.ReleaseAll(in)
		r.fail(n, err)
		return 0
	}
	f.counts.Divided.Add(1)
	f.counts.Items.Add(uint64(len(st.items)))
	f.counts.Groups.Add(uint64(len(st.groups)))
	if r.req.Trace != nil {
		r.traceRows(tracing.EventFanOut, n, fmt.Sprintf("'%s' divided %d rows into %d items, in %d groups of equal shape", node.Name, len(st.counts), len(st.items), len(st.groups)))
	}
	st.runs = slices.Grow(st.runs[:0], len(st.groups))[:len(st.groups)]
	clear(st.runs)
	st.begin(len(f.x.meets), len(st.groups))
	st.pending.Store(int32(len(st.groups)) + 1) //nolint:gosec // MaxItems bounds them
	r.active.Add(1)
	for i := range st.groups {
		w := waitingGroup{r: r, node: n, index: int32(i)} //nolint:gosec // few
		if f.Inside || r.x.limit.acquire(w) {
			r.startGroup(w, loop)
		}
	}
	r.groupDone(n, after, loop)
	return 0
}

// startGroup starts the run of a group that has been admitted.
func (r *run) startGroup(w waitingGroup, loop *scheduler.RunLoop) {
	f, st := r.x.fanOuts[w.node], &r.fans[r.x.fanOuts[w.node].at]
	var err error
	if r.ctx.Err() != nil {
		err = cancelError(r.ctx)
	}
	if err != nil || r.root.failure.Load() != nil {
		r.endGroup(w, st.after, err, loop)
		return
	}
	c := f.x.runs.Get()
	c.root, c.ctx, c.req, c.rows = r.root, r.ctx, r.req, st.groups[w.index].size()
	c.group.parent, c.group.node, c.group.index, c.group.number = r, w.node, w.index, r.root.counted.groups.Add(1)
	c.group.last.Store(st.after)
	st.runs[w.index] = c
	if !r.x.mover.Idle() {
		for i := range c.tasks { // its steps are bound to the device of the request
			c.tasks[i].Affinity = &r.root.affinity
		}
	}
	c.active.Store(1)
	c.holders.Store(1)
	c.resetCounters()
	c.override.Store(r.override.Load())
	c.outputs = append(c.outputs[:0], r.outputs...)
	c.selectNodes()
	if err := r.fillGroup(c, f, st, r.tasks[w.node].In); err != nil {
		r.endGroup(w, st.after, err, loop)
		return
	}
	st.join()
	c.start(loop)
}

// finishGroup ends the run of a group without active tasks.
func (r *run) finishGroup(loop *scheduler.RunLoop) {
	g := &r.group
	g.parent.endGroup(waitingGroup{r: g.parent, node: g.node, index: g.index}, g.last.Load(), nil, loop)
}

// endGroup counts a group out, whether it ran or not, and starts those that have waited for it.
func (r *run) endGroup(w waitingGroup, after int32, err error, loop *scheduler.RunLoop) {
	if err != nil {
		r.fail(w.node, err)
	}
	f, limit := r.x.fanOuts[w.node], r.x.limit
	size := w.size()
	r.groupDone(w.node, after, loop) // afterwards r may be over
	if !f.Inside {
		limit.release(size, loop)
	}
}

// groupDone counts one group out. The last one ends the fan-out.
func (r *run) groupDone(n, after int32, loop *scheduler.RunLoop) {
	st := &r.fans[r.x.fanOuts[n].at]
	if st.pending.Add(-1) > 0 {
		return
	}
	tensor.ReleaseAll(r.tasks[n].In)
	staged := int32(0)
	if r.root.failure.Load() == nil {
		if err := r.gather(n); err != nil {
			r.fail(n, err)
		}
	}
	for _, c := range st.runs {
		if c != nil {
			c.closeGroup()
		}
	}
	clear(st.runs)
	for _, s := range r.x.plan.Nodes[n].Out {
		if s != plan.None && r.root.failure.Load() == nil {
			staged += r.deliver(s, after, loop)
		}
	}
	r.taskDone(staged, loop)
}

// closeGroup returns the run of a group to the pool.
func (r *run) closeGroup() {
	tensor.ReleaseAll(r.slots)
	r.root, r.ctx, r.req, r.group.parent = nil, nil, nil, nil
	if r.override.Load() != nil {
		r.override.Store(nil)
	}
	r.release()
}

// itemLimit bounds the items that an ensemble executes at a time. Groups without room wait here in order of arrival and hold no goroutine. Only
// those of outermost fan-outs wait, so a group that was admitted never waits for another one. A group larger than the limit runs alone.
type itemLimit struct {
	most int // set before the first request

	mu       sync.Mutex
	inFlight int            // guarded by mu
	waiting  []waitingGroup // guarded by mu
}

// waitingGroup is a group that has not started.
type waitingGroup struct {
	r           *run
	node, index int32
}

func (w *waitingGroup) size() int {
	return int(w.r.fans[w.r.x.fanOuts[w.node].at].groups[w.index].size())
}

// room reports whether n more items may execute; mu is held.
func (l *itemLimit) room(n int) bool { return l.inFlight == 0 || l.inFlight+n <= l.most }

// acquire admits a group, or queues it and returns false.
func (l *itemLimit) acquire(w waitingGroup) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := w.size(); len(l.waiting) == 0 && l.room(n) {
		l.inFlight += n
		return true
	}
	l.waiting = append(l.waiting, w)
	return false
}

// release gives back the room of n items, and starts the groups that then have room.
func (l *itemLimit) release(n int, loop *scheduler.RunLoop) {
	for {
		l.mu.Lock()
		l.inFlight -= n
		var w waitingGroup
		if len(l.waiting) > 0 {
			if n = l.waiting[0].size(); l.room(n) {
				w = l.waiting[0]
				l.waiting = slices.Delete(l.waiting, 0, 1)
				l.inFlight += n
			}
		}
		l.mu.Unlock()
		if w.r == nil {
			return
		}
		n = 0
		w.r.startGroup(w, loop)
	}
}

// group is a range of divided.order.
type group struct{ from, to int32 }

func (g group) size() int32 { return g.to - g.from }

// groupItems sorts the items by kind, in order within each, and cuts them into groups of at most most items.
func (d *divided) groupItems(kinds, most int32) {
	d.order = d.order[:0]
	for i := range d.items {
		d.order = append(d.order, int32(i)) //nolint:gosec // MaxItems bounds them
	}
	if kinds > 1 {
		slices.SortStableFunc(d.order, func(a, b int32) int { return cmp.Compare(d.items[a].kind, d.items[b].kind) })
	}
	d.groups = d.groups[:0]
	for from := int32(0); from < int32(len(d.order)); {
		to := from
		for to < int32(len(d.order)) && to-from < most && d.items[d.order[to]].kind == d.items[d.order[from]].kind {
			to++
		}
		d.groups = append(d.groups, group{from, to})
		from = to
	}
}
