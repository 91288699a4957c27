package python

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// How long an instance whose worker has died stays without one, when no request comes that needs it: after the first death and,
// doubled with each that follows before a request was served, at most.
const (
	reviveAfter = 5 * time.Second
	reviveMost  = time.Minute
)

// revival starts the worker of an instance again that has died.
type revival struct {
	deaths atomic.Int32 // since a request was served

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	over  bool        // guarded by mu
}

// schedule has f called once the instance has been without a worker for a while.
func (r *revival) schedule(f func()) {
	delay := reviveMost
	if n := r.deaths.Add(1); n <= 4 {
		delay = min(reviveAfter<<(n-1), reviveMost)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(delay, f)
}

// served notes that a request was served.
func (r *revival) served() {
	if r.deaths.Load() != 0 {
		r.deaths.Store(0)
	}
}

func (r *revival) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// died has a worker started later in place of one that has died. A request that comes before starts it at once.
func (x *instance) died() { x.revival.schedule(x.revive) }

// revive starts a worker unless there is one.
func (x *instance) revive() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.w != nil && x.w.ctx.Err() == nil {
		return
	}
	if x.w != nil {
		x.lost()
	}
	if err := x.again(); err != nil && x.life.Err() == nil {
		x.m.log.ErrorContext(x.life, "the worker of a python model cannot be started again", slog.String("instance", x.name), slog.String("reason", status.Text(err)))
		x.died()
	}
}

// again starts the worker, where a panic is a failure as any other.
func (x *instance) again() (err error) {
	defer recovery.Error(&err, x.m.log, "starting the worker of instance '"+x.name+"' again")
	return x.start(x.life)
}
