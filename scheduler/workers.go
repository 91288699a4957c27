package scheduler

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/recovery"
)

// Workers is a pool of goroutines that run what callers leave behind. Workers start
// when they are first needed, park when nothing is ready and stay as long as there
// is room for them.
type Workers struct {
	mu      sync.Mutex
	parked  []*worker // guarded by mu
	waiting []kick    // kicks beyond the limit, guarded by mu
	started int       // guarded by mu
	limit   int       // guarded by mu
	closed  bool      // guarded by mu
	wg      sync.WaitGroup
	log     *slog.Logger // of panics; nil lets them end the process
}

type worker struct {
	in   chan kick
	turn *RunLoop
}

// kick tells a worker what to help, and how long to wait before.
type kick struct {
	to    Scheduler
	after time.Duration
}

// NewWorkers returns an empty pool; every Station reserves room for its instances.
func NewWorkers() *Workers { return &Workers{} }

// Recover has a worker that panics log that and go on with the next task, where otherwise the process would end. What the
// task held may stay taken: one model may hang, the others serve. It must be called before the first Kick.
func (p *Workers) Recover(log *slog.Logger) { p.log = log }

// Reserve raises the number of workers by n: one for each instance that may execute,
// and one while a worker waits for something that needs none. What waits for a worker
// starts at once.
// A negative n gives room back, and the workers beyond it end when they have nothing
// to do.
func (p *Workers) Reserve(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit += n
	for p.started < p.limit && len(p.waiting) > 0 && !p.closed {
		k := p.waiting[0]
		p.waiting = append(p.waiting[:0], p.waiting[1:]...)
		p.start(k)
	}
	for p.started > p.limit && len(p.parked) > 0 {
		last := len(p.parked) - 1
		close(p.parked[last].in)
		p.parked = p.parked[:last]
		p.started--
	}
}

// Kick has a worker help s. It never blocks.
//
// hot: one short lock; a goroutine starts only while the pool grows.
func (p *Workers) Kick(s Scheduler) { p.KickAfter(s, 0) }

// KickAfter has a worker help s when d has passed. The worker sleeps in the kernel:
// the runtime's timers fire up to a millisecond late in an idle process, ten times
// the queue delays that people configure. Longer waits are for the runtime's timers.
func (p *Workers) KickAfter(s Scheduler, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := kick{to: s, after: d}
	switch n := len(p.parked); {
	case p.closed:
	case n > 0:
		w := p.parked[n-1]
		p.parked = p.parked[:n-1]
		w.in <- k
	case p.started < p.limit:
		p.start(k)
	default:
		p.waiting = append(p.waiting, k)
	}
}

// start starts a worker; mu is held.
func (p *Workers) start(k kick) {
	p.started++
	w := &worker{in: make(chan kick, 1), turn: NewRunLoop(p)}
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

// help runs what s has ready, and what that makes ready.
func (p *Workers) help(w *worker, s Scheduler) {
	if p.log != nil {
		defer p.recovered(w)
	}
	w.turn.Ready(s)
	w.turn.run()
}

// recovered, when deferred, logs a panic and drops what the worker had collected.
func (p *Workers) recovered(w *worker) {
	if v := recover(); v != nil {
		_ = recovery.Report(v, p.log, "a worker of the scheduler")
		w.turn = NewRunLoop(p)
	}
}

// sleep waits for d; the signals that the runtime preempts with do not cut it short.
func sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	left := unix.NsecToTimespec(int64(d))
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) {
	}
}

// next returns a waiting kick, or parks w and returns none.
func (p *Workers) next(w *worker) kick {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		k := p.waiting[0]
		p.waiting = append(p.waiting[:0], p.waiting[1:]...)
		return k
	}
	if p.closed || p.started > p.limit {
		p.started--
		close(w.in)
		return kick{}
	}
	p.parked = append(p.parked, w)
	return kick{}
}

// Close stops the workers and waits for them. Every scheduler is drained before.
// Safe to call twice.
func (p *Workers) Close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.parked {
		close(w.in)
	}
	p.parked = nil
	p.mu.Unlock()
	p.wg.Wait()
}
