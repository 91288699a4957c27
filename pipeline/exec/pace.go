package exec

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
)

// ahead is how many waves a decoupled step may be ahead of the client and of the steps
// that follow, where the configuration sets no lower number.
const ahead = 128

// makeRoom waits until another wave may start. The step holds nothing that a wave
// could wait for: a step whose waves have decoupled steps of their own does not wait
// for these while it holds its instance, for they may need the same one. Nor does a step
// of a wave that is not the next to be answered: its waves leave after those of earlier
// ones, whose steps may need that instance, too.
func (r *run) makeRoom(w *scheduler.Task) error {
	if err := r.pace(w); err != nil {
		return err
	}
	if !r.crowded() {
		return nil
	}
	if deeper := r.x.next.next != nil && r.root.depth > r.x.next.depth; (deeper || !r.leads()) && !w.Yields() {
		return nil
	}
	w.Pause()
	defer w.Resume()
	for r.crowded() {
		select {
		case <-r.flight.room:
		case <-r.ctx.Done():
			return status.ErrCancelled
		}
	}
	if r.root.failure.Load() != nil {
		return status.ErrCancelled
	}
	return nil
}

// leads reports whether what r answers is the next to leave. It stays so.
func (r *run) leads() bool {
	r.root.order.mu.Lock()
	defer r.root.order.mu.Unlock()
	for c := r; c.wave.up != nil; c = c.wave.up {
		if c.wave.up.flight.first != c {
			return false
		}
	}
	return true
}

// crowded reports whether too many waves are under way.
func (r *run) crowded() bool {
	r.root.order.mu.Lock()
	defer r.root.order.mu.Unlock()
	return r.flight.live >= r.x.ahead()
}

// ahead is how many waves of the decoupled step may be under way.
func (x *Executor) ahead() int {
	if n := x.plan.Nodes[x.part.Producer].MaxInflight; n > 0 && n < ahead {
		return int(n)
	}
	return ahead
}

// pace waits until the request's client takes another answer.
func (r *run) pace(w *scheduler.Task) error {
	if r.ctx.Err() != nil || r.root.failure.Load() != nil {
		return status.ErrCancelled
	}
	p, ok := r.root.sink.(infer.Pacer)
	if !ok {
		return nil
	}
	if p.Full() {
		w.Pause()
		defer w.Resume()
	}
	if p.Pace(r.ctx) != nil {
		return status.ErrCancelled
	}
	return nil
}
