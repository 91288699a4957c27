package exec

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/scheduler"
)

// ahead is how many sub-runs a decoupled step may be ahead of the client and of the following
// steps, unless the configuration sets a lower number.
const ahead = 128

// makeRoom waits until another sub-run may start. The waiting step must hold nothing that a
// sub-run could wait for. So two kinds of steps do not wait while they hold their instance:
// one whose sub-runs have decoupled steps, which may need the same instance; and one of a
// sub-run that is not the next to respond, whose own sub-runs respond after earlier ones.
func (r *run) makeRoom(task *scheduler.Task) error {
	if err := r.pace(task); err != nil {
		return err
	}
	if !r.full() {
		return nil
	}
	if deeper := r.x.next.next != nil && r.root.sub.depth > r.x.next.depth; (deeper || !r.leads()) && !task.Yields() {
		return nil
	}
	task.Pause()
	defer task.Resume()
	for r.full() {
		select {
		case <-r.sub.room:
		case <-r.ctx.Done():
			return status.ErrCancelled
		}
	}
	if r.root.failure.Load() != nil {
		return status.ErrCancelled
	}
	return nil
}

// leads reports whether r's responses are the next to be sent. Once true it stays true.
func (r *run) leads() bool {
	r.root.sub.mu.Lock()
	defer r.root.sub.mu.Unlock()
	for c := r; c.sub.parent != nil; c = c.sub.parent {
		if c.sub.parent.sub.first != c {
			return false
		}
	}
	return true
}

// crowded reports whether the maximum of sub-runs is active.
func (r *run) full() bool {
	r.root.sub.mu.Lock()
	defer r.root.sub.mu.Unlock()
	return r.sub.live >= r.x.ahead()
}

// ahead returns how many sub-runs of the decoupled step may be active.
func (x *Executor) ahead() int {
	if n := x.plan.Nodes[x.segment.Producer].MaxInflight; n > 0 && n < ahead {
		return int(n)
	}
	return ahead
}

// pace waits until the client can take another response.
func (r *run) pace(task *scheduler.Task) error {
	if r.ctx.Err() != nil || r.root.failure.Load() != nil {
		return status.ErrCancelled
	}
	p, ok := r.root.sink.(infer.Pacer)
	if !ok {
		return nil
	}
	if p.Full() {
		task.Pause()
		defer task.Resume()
	}
	if p.Pace(r.ctx) != nil {
		return status.ErrCancelled
	}
	return nil
}
