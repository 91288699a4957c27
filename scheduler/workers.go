package scheduler

import "sync"

// Workers is a pool of goroutines that run what callers leave behind. Workers start
// when they are first needed, park when nothing is ready and stay.
type Workers struct {
	mu      sync.Mutex
	parked  []*worker   // guarded by mu
	waiting []Scheduler // kicks beyond the limit, guarded by mu
	started int         // guarded by mu
	limit   int         // guarded by mu
	closed  bool        // guarded by mu
	wg      sync.WaitGroup
}

type worker struct {
	in   chan Scheduler
	turn *Turn
}

// NewWorkers returns an empty pool; every Station reserves room for its instances.
func NewWorkers() *Workers { return &Workers{} }

// Reserve raises the number of workers by n: one for each instance that may execute.
func (p *Workers) Reserve(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit += n
}

// Kick has a worker help s. It never blocks.
//
// hot: one short lock; a goroutine starts only while the pool grows.
func (p *Workers) Kick(s Scheduler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := len(p.parked); {
	case p.closed:
	case n > 0:
		w := p.parked[n-1]
		p.parked = p.parked[:n-1]
		w.in <- s
	case p.started < p.limit:
		p.started++
		w := &worker{in: make(chan Scheduler, 1), turn: NewTurn(p)}
		w.in <- s
		p.wg.Go(func() { p.run(w) })
	default:
		p.waiting = append(p.waiting, s)
	}
}

func (p *Workers) run(w *worker) {
	for s := range w.in {
		for s != nil {
			w.turn.Ready(s)
			w.turn.run()
			s = p.next(w)
		}
	}
}

// next returns a waiting kick, or parks w and returns nil.
func (p *Workers) next(w *worker) Scheduler {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		s := p.waiting[0]
		p.waiting = append(p.waiting[:0], p.waiting[1:]...)
		return s
	}
	if p.closed {
		close(w.in)
		return nil
	}
	p.parked = append(p.parked, w)
	return nil
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
