package scheduler

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// RunLoop executes what becomes ready on one goroutine. A caller runs one for its own request
// (RunUntil), a worker of the pool until nothing is ready. It is not safe for concurrent use.
type RunLoop struct {
	workers *Workers
	ready   []Scheduler
	brief   int // ready[:brief] execute faster than a worker wakes up
	inline  []stage[Inliner]
	staged  []stage[Scheduler]
	next    int // where in staged the next task is likely to go
	now     int64
	woken   infer.WakeList // callers to wake for their responses
}

type stage[S any] struct {
	to   S
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

// Tick sets the time to one just read, which saves reading the clock again; 0 has the next Now read it.
func (t *RunLoop) Tick(now int64) { t.now = now }

// near is how many of the last entries are searched for one to join. Where one batch makes hundreds of nodes ready,
// searching all of them for each node would cost more than enqueueing some twice.
const near = 8

// Ready notes that s may have a batch ready.
func (t *RunLoop) Ready(s Scheduler) {
	if !slices.Contains(t.ready[max(0, len(t.ready)-near):], s) {
		t.ready = append(t.ready, s)
	}
}

// ReadyBrief notes that s has one batch ready that executes faster than a worker wakes up: none gets it.
func (t *RunLoop) ReadyBrief(s Scheduler) {
	t.ready = append(t.ready, s)
	last := len(t.ready) - 1
	t.ready[t.brief], t.ready[last] = s, t.ready[t.brief]
	t.brief++
}

// Inline adds tasks to execute before anything else.
func (t *RunLoop) Inline(s Inliner, list TaskList) {
	t.inline = append(t.inline, stage[Inliner]{s, list})
}

// Stage collects tasks for s, so that those that one batch makes ready stay together. Dispatch enqueues them.
func (t *RunLoop) Stage(s Scheduler, w *Task) { t.stageFor(s).list.Push(w) }

// stageFor returns where tasks for s collect. Batches repeat the order of nodes, so the next place is tried first.
func (t *RunLoop) stageFor(s Scheduler) *stage[Scheduler] {
	if t.next >= len(t.staged) {
		t.next = 0
	}
	at := t.next
	if at == len(t.staged) || t.staged[at].to != s {
		for at = max(0, len(t.staged)-near); at < len(t.staged) && t.staged[at].to != s; at++ {
			continue
		}
	}
	if at == len(t.staged) {
		t.staged = append(t.staged, stage[Scheduler]{to: s})
	}
	t.next = at + 1
	return &t.staged[at]
}

// Seal seals the lists that were staged since the last Dispatch: what one sealed batch made ready, at each node.
func (t *RunLoop) Seal() {
	for i := range t.staged {
		t.staged[i].list.Seal()
	}
}

// WakeWaiter wakes the goroutine in c.Wait, together with those of its batch, to call e.End. It returns false when none
// waits.
func (t *RunLoop) WakeWaiter(c *infer.Call, e infer.Ender) bool { return t.woken.Add(c, e) }

// Dispatch enqueues the staged tasks.
func (t *RunLoop) Dispatch() {
	t.woken.Wake()
	for i := range t.staged {
		st := t.staged[i]
		t.staged[i] = stage[Scheduler]{}
		st.to.Enqueue(st.list, t)
	}
	t.staged, t.next = t.staged[:0], 0
}

// RunUntil executes what is ready until nothing is or done reports true. The workers execute the rest.
func (t *RunLoop) RunUntil(done func() bool) {
	for t.step() {
		if len(t.inline) == 0 && done() {
			break
		}
	}
	t.giveAway(0, len(t.ready))
	t.brief = 0
}

// Finish executes inline tasks only; the workers execute the rest. It is for a caller that must not be blocked.
func (t *RunLoop) Finish() {
	for len(t.inline) > 0 {
		t.step()
	}
	t.giveAway(0, len(t.ready))
	t.brief = 0
}

// run executes until nothing is ready.
func (t *RunLoop) run() {
	t.now = 0
	for t.step() {
		t.now = 0
	}
}

// step executes one batch. The workers get the other ready schedulers, so that they run at the same time.
func (t *RunLoop) step() bool {
	t.woken.Wake()
	if n := len(t.inline); n > 0 {
		w := t.inline[n-1]
		t.inline[n-1] = stage[Inliner]{}
		t.inline = t.inline[:n-1]
		w.to.RunInline(w.list, t)
		return true
	}
	for len(t.ready) > 0 {
		n := len(t.ready) - 1
		if t.brief == 0 { // the workers get all but the last one, else all but the brief ones
			t.giveAway(0, n)
		} else {
			t.giveAway(t.brief, n+1)
		}
		n = len(t.ready) - 1
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

// giveAway gives the ready schedulers from one position to another to the workers.
func (t *RunLoop) giveAway(from, to int) {
	t.woken.Wake()
	for _, s := range t.ready[from:to] {
		t.workers.Go(s)
	}
	t.ready = slices.Delete(t.ready, from, to)
}

// Workers is a pool of goroutines that execute what callers do not. Workers start when they are first needed, park when
// nothing is ready, and end when there is no room for them or at ReleaseIdle. It is safe for concurrent use.
type Workers struct {
	mu      sync.Mutex
	parked  []*worker // the one that parked last is used first; guarded by mu
	idle    int       // the first ones of parked, which nothing has used since the last ReleaseIdle; guarded by mu
	waiting []job     // jobs beyond the limit, guarded by mu
	started int       // guarded by mu
	limit   int       // guarded by mu
	closed  bool      // guarded by mu
	wg      sync.WaitGroup
	log     *slog.Logger // of panics; nil lets them end the process

	background Background
}

type worker struct {
	in   chan job
	loop *RunLoop
}

// job is a call of Help after a delay.
type job struct {
	to    Scheduler
	after time.Duration
}

// NewWorkers returns an empty pool. Every scheduler reserves room for its instances.
func NewWorkers() *Workers { return &Workers{} }

// Recover has a worker that panics log the panic and go on with its next job; without it a panic
// ends the process. Resources that the job held may stay held: one model may hang while the
// others serve. It must be called before the first Go.
func (p *Workers) Recover(log *slog.Logger) { p.log = log }

// Reserve raises the limit of workers by n: one for each instance that may execute, and one for
// each worker that waits for something else. Waiting jobs start at once. A negative n lowers
// the limit; workers beyond it end when they are idle.
func (p *Workers) Reserve(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit += n
	for p.started < p.limit && len(p.waiting) > 0 && !p.closed {
		p.start(p.first())
	}
	for p.started > p.limit && len(p.parked) > 0 {
		close(p.unpark().in)
		p.started--
	}
}

// ReleaseIdle ends the parked workers that nothing has used since the last call: it frees their stacks. A server calls it regularly, so that
// the workers of a burst of requests do not stay.
func (p *Workers) ReleaseIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.parked[:p.idle] {
		close(w.in)
	}
	p.started -= p.idle
	p.parked = slices.Delete(p.parked, 0, p.idle)
	p.idle = len(p.parked)
}

// unpark removes and returns the worker that parked last; mu is held, and there is one.
func (p *Workers) unpark() *worker {
	last := len(p.parked) - 1
	w := p.parked[last]
	p.parked[last] = nil
	p.parked = p.parked[:last]
	p.idle = min(p.idle, last)
	return w
}

// first removes and returns the first waiting job; mu is held.
func (p *Workers) first() job {
	k := p.waiting[0]
	p.waiting = slices.Delete(p.waiting, 0, 1)
	return k
}

// Go has a worker call s.Help. It never blocks.
//
// hot: one short lock; a goroutine starts only while the pool grows.
func (p *Workers) Go(s Scheduler) { p.GoAfter(s, 0) }

// GoAfter has a worker call s.Help when d has passed. The worker sleeps in the kernel, because
// the runtime's timers fire up to a millisecond late in an idle process, which is ten times a
// usual queue delay. Use a time.Timer for long waits.
func (p *Workers) GoAfter(s Scheduler, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := job{to: s, after: d}
	switch {
	case p.closed:
	case len(p.parked) > 0:
		p.unpark().in <- k
	case p.started < p.limit:
		p.start(k)
	default:
		p.waiting = append(p.waiting, k)
	}
}

// start starts a worker; mu is held.
func (p *Workers) start(k job) {
	p.started++
	w := &worker{in: make(chan job, 1), loop: NewRunLoop(p)}
	w.in <- k
	p.wg.Go(func() { p.run(w) })
}

func (p *Workers) run(w *worker) {
	for k := range w.in {
		for k.to != nil {
			sleep(k.after)
			p.help(w, k.to)
			k = p.next(w)
		}
	}
}

// help executes what s has ready, and what becomes ready through that. A recovered panic drops the rest of it.
func (p *Workers) help(w *worker, s Scheduler) {
	if p.log != nil {
		defer func() {
			if v := recover(); v != nil {
				_ = recovery.Report(v, p.log, "a worker of the scheduler")
				w.loop = NewRunLoop(p)
			}
		}()
	}
	w.loop.Ready(s)
	w.loop.run()
}

// sleep waits for d. The runtime's preemption signals do not cut it short.
func sleep(d time.Duration) {
	left := unix.NsecToTimespec(int64(d))
	for d > 0 && errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) {
	}
}

// next returns a waiting job, or parks w and returns none.
func (p *Workers) next(w *worker) job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		return p.first()
	}
	if p.closed || p.started > p.limit {
		p.started--
		close(w.in)
		return job{}
	}
	p.parked = append(p.parked, w)
	return job{}
}

// Close stops the workers and waits for them. Every scheduler must be drained before. Further calls do nothing.
func (p *Workers) Close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.parked {
		close(w.in)
	}
	p.parked, p.idle = nil, 0
	p.mu.Unlock()
	p.wg.Wait()
}
