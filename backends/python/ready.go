package python

import (
	"io"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// readyTime is how long is_ready of a model may take before the model is not ready, as in Triton.
const readyTime = 5 * time.Second

// readiness has is_ready of a worker's model run once for all who ask meanwhile.
type readiness struct {
	mu  sync.Mutex
	at  *readyCall // guarded by mu
	seq uint32     // guarded by mu
}

// readyCall is one call of is_ready.
type readyCall struct {
	id   uint32
	done chan struct{} // closed when err is known
	err  error
}

// isReady returns what is_ready of the model says. It may execute meanwhile. A call that takes too long goes on, for who asks next.
func (w *worker) isReady() error {
	if !w.about.Ready {
		return nil
	}
	c, err := w.ready.call(w)
	if err != nil {
		return w.gone(err)
	}
	t := time.NewTimer(readyTime)
	defer t.Stop()
	select {
	case <-c.done:
		return c.err
	case <-w.ctx.Done():
		return w.gone(io.EOF)
	case <-t.C:
		return status.Errorf(status.Unavailable, "Timed out waiting for user-defined is_ready() response")
	}
}

// call returns the call at hand, or a new one.
func (r *readiness) call(w *worker) (*readyCall, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at != nil {
		return r.at, nil
	}
	r.seq++
	c := &readyCall{id: r.seq, done: make(chan struct{})}
	if err := w.side.link.send(kindReady, 0, c.id, newBody(nil)); err != nil {
		return nil, err
	}
	r.at = c
	return c, nil
}

// answer takes the worker's answer.
func (r *readiness) answer(p *packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.at
	if c == nil || c.id != p.id {
		return
	}
	r.at = nil
	switch {
	case p.kind == kindFailed:
		c.err = failure(p)
	case p.flags&flagYes == 0:
		c.err = status.Errorf(status.Unavailable, "is_ready of the model returned False")
	}
	close(c.done)
}
