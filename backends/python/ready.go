package python

import (
	"io"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// readyTime is the most time that is_ready may take, as in Triton. After it the model is not ready.
const readyTime = 5 * time.Second

// readiness calls is_ready of a model. Concurrent callers share one call.
type readiness struct {
	mu      sync.Mutex
	current *readyCall // guarded by mu
	seq     uint32     // guarded by mu
}

// readyCall is one call of is_ready.
type readyCall struct {
	id   uint32
	done chan struct{} // closed when err is set
	err  error
}

// isReady returns the result of is_ready, while the model may execute. A call that exceeds readyTime continues, and the next
// caller gets its result.
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

// call returns the pending call, or starts one.
func (r *readiness) call(w *worker) (*readyCall, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		return r.current, nil
	}
	r.seq++
	c := &readyCall{id: r.seq, done: make(chan struct{})}
	if err := w.side.link.send(kindReady, 0, c.id, newBody(nil)); err != nil {
		return nil, err
	}
	r.current = c
	return c, nil
}

// complete handles the worker's result of READY.
func (r *readiness) complete(p *packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.current
	if c == nil || c.id != p.id {
		return
	}
	r.current = nil
	switch {
	case p.kind == kindFailed:
		c.err = failure(p)
	case p.flags&flagTrue == 0:
		c.err = status.Errorf(status.Unavailable, "is_ready of the model returned False")
	}
	close(c.done)
}
