package scheduler

import (
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// RunLoop executes what becomes ready on one goroutine. A caller runs one for its own request
// (RunUntil), a worker of the pool until nothing is ready. It is not safe for concurrent use.
type RunLoop struct {
	workers *Workers
	ready   []Scheduler
	brief   int // the first so many of ready are brief
	inline  []inlineTasks
	staged  []stage
	next    int // where in staged the next task is likely to go
	now     int64
	woken   infer.WakeList // callers to wake for their responses
}

type inlineTasks struct {
	on   Inliner
	list TaskList
}

type stage struct {
	to   Scheduler
	list TaskList
}

// Inliner is a Scheduler whose tasks are so short that the RunLoop executes them at once.
type Inliner interface {
	// RunInline executes the tasks and completes them.
	RunInline(list TaskList, t *RunLoop)
}

// NewRunLoop returns a RunLoop that hands to workers what it does not run itself.
func NewRunLoop(workers *Workers) *RunLoop { return &RunLoop{workers: workers} }

// Now returns the time on the clock of telemetry.Now, at most one execution old.
func (t *RunLoop) Now() int64 {
	if t.now == 0 {
		t.now = telemetry.Now()
	}
	return t.now
}

// Tick sets the time to one just read, which saves reading the clock again; 0 has the next Now
// read it.
func (t *RunLoop) Tick(now int64) { t.now = now }

// near is how many of the last entries are searched for one to join. Where one batch makes
// hundreds of nodes ready, searching all of them for each node would cost more than enqueueing
// some twice.
const near = 8

// Ready notes that s may have a batch ready.
func (t *RunLoop) Ready(s Scheduler) {
	if !slices.Contains(t.ready[max(0, len(t.ready)-near):], s) {
		t.ready = append(t.ready, s)
	}
}

// ReadyBrief notes that s has one batch ready that executes faster than a worker wakes up. It
// is not handed to the workers.
func (t *RunLoop) ReadyBrief(s Scheduler) {
	t.ready = append(t.ready, s)
	last := len(t.ready) - 1
	t.ready[t.brief], t.ready[last] = s, t.ready[t.brief]
	t.brief++
}

// Inline adds tasks to execute before anything else.
func (t *RunLoop) Inline(s Inliner, list TaskList) {
	t.inline = append(t.inline, inlineTasks{s, list})
}

// Stage collects tasks for s, so that those that one batch makes ready at one node stay
// together. Dispatch enqueues them.
func (t *RunLoop) Stage(s Scheduler, w *Task) { t.stageFor(s).list.Push(w) }

// stageFor returns where tasks for s collect. The tasks of one batch make the same nodes ready
// in the same order, so the place behind the last one used is tried first.
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

// Seal seals the lists that were staged since the last Dispatch: what one sealed batch made
// ready, at each node.
func (t *RunLoop) Seal() {
	for i := range t.staged {
		t.staged[i].list.Seal()
	}
}

// Respond has the goroutine that waits for c take its response, and reports whether there is
// one. It wakes together with the others of its batch, before anything else executes.
func (t *RunLoop) Respond(c *infer.Call, e infer.Ender) bool { return t.woken.Add(c, e) }

// Dispatch enqueues the staged tasks.
func (t *RunLoop) Dispatch() {
	t.woken.Wake()
	for i := range t.staged {
		st := t.staged[i]
		t.staged[i] = stage{}
		st.to.Enqueue(st.list, t)
	}
	t.staged, t.next = t.staged[:0], 0
}

// RunUntil executes what is ready until nothing is or until done reports true, which usually
// means that the caller's request has its response. The workers execute the rest.
func (t *RunLoop) RunUntil(done func() bool) {
	for t.step() {
		if len(t.inline) == 0 && done() {
			break
		}
	}
	t.handOver()
}

// Finish executes inline tasks only; the workers execute the rest. It is for a caller that
// must not be kept.
func (t *RunLoop) Finish() {
	for len(t.inline) > 0 {
		t.step()
	}
	t.handOver()
}

// run executes until nothing is ready.
func (t *RunLoop) run() {
	t.now = 0
	for t.step() {
		t.now = 0
	}
}

// step executes one batch. The workers get the other ready schedulers.
func (t *RunLoop) step() bool {
	t.woken.Wake()
	if n := len(t.inline); n > 0 {
		w := t.inline[n-1]
		t.inline[n-1] = inlineTasks{}
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
		t.brief = min(t.brief, n)
		if s.Help(t) {
			return true
		}
	}
	return false
}

// share gives ready schedulers to the workers, so that they run at the same time: all but the
// brief ones, or where there are none all but the last.
func (t *RunLoop) share() {
	t.woken.Wake()
	if last := len(t.ready) - 1; t.brief == 0 && last > 0 {
		s := t.ready[last]
		t.ready = t.ready[:last]
		t.giveAway(0)
		t.ready = append(t.ready, s)
		return
	}
	t.giveAway(max(t.brief, 1))
}

// handOver gives all ready schedulers to the workers.
func (t *RunLoop) handOver() {
	t.woken.Wake()
	t.giveAway(0)
	t.brief = 0
}

// giveAway gives ready schedulers to the workers, from position from on.
func (t *RunLoop) giveAway(from int) {
	for i := from; i < len(t.ready); i++ {
		t.workers.Go(t.ready[i])
		t.ready[i] = nil
	}
	t.ready = t.ready[:from]
}
