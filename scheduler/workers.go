package scheduler

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/internal/recovery"
)

// Workers is a pool of goroutines that execute what callers do not. Workers start when they
// are first needed, park when nothing is ready and stay as long as there is room for them. It
// is safe for concurrent use.
type Workers struct {
	mu      sync.Mutex
	parked  []*worker // guarded by mu
	waiting []job     // jobs beyond the limit, guarded by mu
	started int       // guarded by mu
	limit   int       // guarded by mu
	closed  bool      // guarded by mu
	wg      sync.WaitGroup
	log     *slog.Logger // of panics; nil lets them end the process
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
		last := len(p.parked) - 1
		close(p.parked[last].in)
		p.parked = p.parked[:last]
		p.started--
	}
}

// first removes and returns the first waiting job; mu is held.
func (p *Workers) first() job {
	k := p.waiting[0]
	p.waiting = append(p.waiting[:0], p.waiting[1:]...)
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

// help executes what s has ready, and what becomes ready through that.
func (p *Workers) help(w *worker, s Scheduler) {
	if p.log != nil {
		defer p.recovered(w)
	}
	w.loop.Ready(s)
	w.loop.run()
}

// recovered, when deferred, logs a panic and drops what the worker had collected.
func (p *Workers) recovered(w *worker) {
	if v := recover(); v != nil {
		_ = recovery.Report(v, p.log, "a worker of the scheduler")
		w.loop = NewRunLoop(p)
	}
}

// sleep waits for d. The runtime's preemption signals do not cut it short.
func sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	left := unix.NsecToTimespec(int64(d))
	for errors.Is(unix.Nanosleep(&left, &left), unix.EINTR) {
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

// Close stops the workers and waits for them. Every scheduler must be drained before. Further
// calls do nothing.
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
