package python

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// The delay before a crashed worker is replaced without a request: the first one, which doubles with each crash until a request
// succeeds, and the longest one.
const (
	restartAfter = 5 * time.Second
	restartMost  = time.Minute
)

// revival schedules the replacement of an instance's crashed worker.
type restarter struct {
	crashes atomic.Int32 // since the last request that succeeded

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	stopped bool        // guarded by mu
}

// schedule calls f after the delay. It replaces an earlier schedule.
func (r *restarter) schedule(f func()) {
	delay := restartMost
	if n := r.crashes.Add(1); n <= 4 {
		delay = min(restartAfter<<(n-1), restartMost)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(delay, f)
}

// served resets the delay after a request that succeeded.
func (r *restarter) served() {
	if r.crashes.Load() != 0 {
		r.crashes.Store(0)
	}
}

func (r *restarter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// died schedules a new worker. A request that arrives earlier starts it at once.
func (x *instance) died() { x.restarter.schedule(x.restart) }

// revive starts a new worker unless the instance has a live one.
func (x *instance) restart() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.w != nil && x.w.ctx.Err() == nil {
		return
	}
	if x.w != nil {
		x.closeWorker()
	}
	if err := x.startAgain(); err != nil && x.life.Err() == nil {
		x.m.log.ErrorContext(x.life, "the worker of a python model cannot be started again", slog.String("instance", x.name), slog.String("reason", status.Text(err)))
		x.died()
	}
}

// again starts a worker and turns a panic into an error.
func (x *instance) startAgain() (err error) {
	defer recovery.Error(&err, x.m.log, "starting the worker of instance '"+x.name+"' again")
	return x.start(x.life)
}
