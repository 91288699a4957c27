package scheduler

import (
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// Turn is a goroutine at work: what it found ready and has yet to look at. A caller
// lends one for its own request (Lend), a worker of the pool runs one until nothing
// is ready (Workers).
type RunLoop struct {
	workers *Workers
	ready   []Scheduler
	kept    int // how many of ready, from the first, are brief
	inline  []inlineWork
	staged  []stage
	next    int // where in staged the next work is likely to go
	now     int64
	woken   infer.Calls // those to wake for their answers
}

type inlineWork struct {
	on   Inliner
	list TaskList
}

type stage struct {
	to   Scheduler
	list TaskList
}

// Inliner is a scheduler whose work is so short that a Turn runs it at once.
type Inliner interface {
	// RunInline executes the works of list and completes them.
	RunInline(list TaskList, t *RunLoop)
}

// NewTurn returns a Turn that hands what it cannot run itself to workers.
func NewRunLoop(workers *Workers) *RunLoop { return &RunLoop{workers: workers} }

// Now returns the time on the telemetry clock, at most one execution old.
func (t *RunLoop) Now() int64 {
	if t.now == 0 {
		t.now = telemetry.Now()
	}
	return t.now
}

// Tick notes a time just read from the telemetry clock, which saves reading it again.
func (t *RunLoop) Tick(now int64) { t.now = now }

// near is how many of the last entries are searched for one to join. Where one batch
// makes hundreds of nodes ready, searching them all for each would cost more than to
// enqueue or to look at some of them twice.
const near = 8

// Ready tells the turn that s may have a batch ready.
func (t *RunLoop) Ready(s Scheduler) {
	if !slices.Contains(t.ready[max(0, len(t.ready)-near):], s) {
		t.ready = append(t.ready, s)
	}
}

// Inline gives the turn work to run before it looks at anything else.
func (t *RunLoop) Inline(s Inliner, list TaskList) {
	t.inline = append(t.inline, inlineWork{s, list})
}

// Stage collects works for s, so that what one batch makes ready at one node stays
// together; Flush enqueues it.
func (t *RunLoop) Stage(s Scheduler, w *Task) { t.stageFor(s).list.Push(w) }

// stageFor returns where works for s collect. The works of one batch make the same
// nodes ready in the same order, so the place behind the last one used is looked at
// first.
func (t *RunLoop) stageFor(s Scheduler) *stage {
	if t.next >= len(t.staged) {
		t.next = 0
	}
	at := -1
	if t.next < len(t.staged) && t.staged[t.next].to == s {
		at = t.next
	}
	for i := max(0, len(t.staged)-near); at < 0 && i < len(t.staged); i++ {
		if t.staged[i].to == s {
			at = i
		}
	}
	if at < 0 {
		at = len(t.staged)
		t.staged = append(t.staged, stage{to: s})
	}
	t.next = at + 1
	return &t.staged[at]
}

// Seal makes units of what was staged since the last Flush: what one whole batch made
// ready, at each node. Works that differed were not staged with the others.
func (t *RunLoop) Seal() {
	for i := range t.staged {
		t.staged[i].list.Seal()
	}
}

// Answer has the waiter of c make its answer, and reports whether there is one. It is
// woken with the others of its batch, before the turn executes anything else.
func (t *RunLoop) Respond(c *infer.Call, e infer.Ender) bool { return t.woken.Add(c, e) }

// Flush enqueues what was staged.
func (t *RunLoop) Dispatch() {
	t.woken.Wake()
	for i := range t.staged {
		st := t.staged[i]
		t.staged[i] = stage{}
		st.to.Enqueue(st.list, t)
	}
	t.staged, t.next = t.staged[:0], 0
}

// Lend runs what is ready until nothing is, or until done reports that the caller's
// own request is answered; what is left then goes to the workers.
func (t *RunLoop) Lend(done func() bool) {
	for t.step() {
		if len(t.inline) == 0 && done() {
			break
		}
	}
	t.handOver()
}

// Leave runs what is short and hands the rest to the workers: it is for a caller that
// has something else to do.
func (t *RunLoop) Leave() {
	for len(t.inline) > 0 {
		t.step()
	}
	t.handOver()
}

// run works until nothing is ready.
func (t *RunLoop) run() {
	t.now = 0
	for t.step() {
		t.now = 0
	}
}

// step runs one thing. Of several ready schedulers the others go to the workers,
// so that they run at the same time where there is a core for them, unless they are done
// sooner than a worker has been woken.
func (t *RunLoop) step() bool {
	t.woken.Wake()
	if n := len(t.inline); n > 0 {
		w := t.inline[n-1]
		t.inline[n-1] = inlineWork{}
		t.inline = t.inline[:n-1]
		w.on.RunInline(w.list, t)
		return true
	}
	for len(t.ready) > 0 {
		t.share()
		n := len(t.ready) - 1
		s := t.ready[n]
		t.ready[n] = nil
		t.ready = t.ready[:n]
		if s.Help(t) {
			return true
		}
	}
	return false
}

// share gives ready schedulers to the workers: all but the last, or where there are brief
// batches all but these, which wait for no longer than it takes to wake somebody.
func (t *RunLoop) share() {
	t.woken.Wake()
	t.kept = min(t.kept, len(t.ready))
	for i := t.kept; i < len(t.ready); i++ {
		if s := t.ready[i]; isBrief(s) {
			t.ready[i], t.ready[t.kept] = t.ready[t.kept], s
			t.kept++
		}
	}
	rest := max(t.kept, 1)
	for i, s := range t.ready[rest:] {
		if t.kept == 0 {
			t.ready[0], s = s, t.ready[0] // the last one stays
		}
		t.workers.Kick(s)
		t.ready[rest+i] = nil
	}
	t.ready = t.ready[:min(rest, len(t.ready))]
}

// isBrief reports whether s is a batch that takes less than to wake a worker for it.
func isBrief(s Scheduler) bool {
	p, ok := s.(*parcel)
	return ok && p.brief
}

// handOver gives the ready schedulers to the workers.
func (t *RunLoop) handOver() {
	t.woken.Wake()
	for i, s := range t.ready {
		t.workers.Kick(s)
		t.ready[i] = nil
	}
	t.ready, t.kept = t.ready[:0], 0
}
