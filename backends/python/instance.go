package python

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/crash"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	processes "github.com/tutti-server/tutti/internal/memory"
	"github.com/tutti-server/tutti/internal/recovery"
)

// instance executes batches in its worker process. When the worker has exited, the next batch starts another one.
type instance struct {
	m      *model
	name   string
	at     tensor.Place // of its instance group: the host or a GPU
	single execution    // reused by each batch, unless the model is decoupled

	alive     atomic.Pointer[worker] // same as w; read without mu
	outage    atomic.Pointer[outage] // since the last worker ended, nil while there is one
	crashes   atomic.Int32           // since the last request that succeeded
	restarter *time.Timer            // replaces a crashed worker
	life      context.Context        //nolint:containedctx // cancelled by Close, for restarts
	end       context.CancelFunc
	starts    sync.WaitGroup
	frees     sync.WaitGroup // of workers that have ended

	mu       sync.Mutex
	w        *worker   // guarded by mu, like all fields below
	starting *newStart // a start in progress
	ended    string    // why the last worker ended
	closed   bool
	cursors  []cursor
	response response
	outs     []tensor.Tensor
	out      *region
	buf      *tensor.Buffer // refers to out once an output tensor is in it
	mem      memory
	shared   []*gpuRegion // with the inputs of the current batch
	regions  []uint32     // GPU regions with its outputs

	streamsMu sync.Mutex
	streams   []tensor.Stream // one for each device that was used; guarded by streamsMu
}

// start starts a worker and initializes the model in it.
func (x *instance) start(ctx context.Context) (*worker, error) {
	w := x.m.takeSpare()
	if w == nil {
		var err error
		if w, err = startWorker(ctx, x.m); err != nil {
			return nil, err
		}
	}
	w.owner.Store(x)
	if err := w.prepare(ctx, kindInit, "initialize", x.m.initialise(x.name, x.at), nil); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// use makes a started worker that of the instance. The caller holds mu, or is the only user.
func (x *instance) use(w *worker) {
	x.w = w
	x.alive.Store(w)
	x.endOutage()
}

// endOutage ends the time without a worker, if there is one.
func (x *instance) endOutage() {
	if x.outage.Swap(nil) != nil {
		x.m.outages.Add(-1)
	}
}

// Close calls finalize of the model and stops the worker.
func (x *instance) Close() error {
	x.restarter.Stop()
	x.end() // cancels a start that is in progress
	x.mu.Lock()
	closed := x.closed
	x.closed = true
	x.mu.Unlock()
	if closed {
		return nil
	}
	x.starts.Wait() // none begins any more
	x.mu.Lock()
	defer x.mu.Unlock()
	x.m.mu.Lock()
	x.m.live = slices.DeleteFunc(x.m.live, func(y *instance) bool { return x == y })
	x.m.mu.Unlock()
	x.endOutage()
	w := x.w
	x.w = nil
	x.alive.Store(nil)
	defer x.closeStreams()
	defer x.frees.Wait()
	if w == nil {
		return nil
	}
	defer w.close()
	if w.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.m.b.set.timeout)
	defer cancel()
	w.leaving.Store(true)
	if err := w.run(ctx, kindFinalize, struct{}{}, nil); err != nil {
		x.m.log.WarnContext(ctx, "finalizing a python model failed", slog.String("error", err.Error()))
	}
	return nil
}

// ready returns nil when the worker is alive and is_ready returns True.
func (x *instance) ready() error {
	w := x.alive.Load()
	if w == nil || w.ctx.Err() != nil {
		return status.Reasonf(status.InstanceLost, "%s", unhealthy(x.name))
	}
	return w.isReady()
}

// outage is a time without a worker.
type outage struct {
	since time.Time
	why   string // the last worker ended, or cannot be started
}

// down returns why the instance has no worker, and since when: zero if that is not known yet. It is empty if there is one.
func (x *instance) down() (why string, since time.Time) {
	w := x.alive.Load()
	if w != nil && !w.exited() {
		return "", time.Time{}
	}
	why = unhealthy(x.name) // Triton's text
	if o := x.outage.Load(); o != nil {
		why, since = why+" Its process is started again, it ended: "+status.Line(o.why), o.since
	} else if w != nil { // nothing has noticed its end yet
		why += " Its process is started again, it ended: " + status.Line(w.reason())
	}
	return why, since
}

var _ backends.Recycler = (*instance)(nil)

// Alive reports whether there is a worker.
func (x *instance) Alive() bool {
	w := x.alive.Load()
	return w != nil && !w.exited()
}

// Recycle kills the worker. The next request, or the restarter, starts another one.
func (x *instance) Recycle(why error) bool {
	w := x.alive.Load()
	if w == nil || w.exited() {
		return false
	}
	w.recycled.CompareAndSwap(nil, &why)
	w.kill(status.Text(why))
	return true
}

// Resident returns the memory of the worker.
func (x *instance) Resident() int64 {
	w := x.alive.Load()
	if w == nil || w.exited() {
		return 0
	}
	return processes.Resident(w.proc.pid)
}

// Execute sends the batch to the worker and waits for its responses.
//
// hot: no allocation in the steady state, unless the model is decoupled.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if ctx.Err() != nil {
		return status.ErrCancelled
	}
	e := &x.single
	if x.m.sig.Decoupled {
		e = &execution{idle: make(chan struct{}, 1)}
	}
	w, err := x.dispatch(ctx, b, e)
	if err == nil && e.open() {
		b.Detach()
		err = e.wait(w, b)
	}
	if w == nil && b.Serial {
		return err // its requests may be possible one by one: they need less memory
	}
	if w == nil {
		failAll(b, nil, 0, err) // e still belongs to the previous batch
		return nil
	}
	w.running.remove(e)
	e.end()
	if w.ctx.Err() != nil {
		x.mu.Lock()
		x.closeDead()
		x.mu.Unlock()
	}
	if err == nil {
		return nil
	}
	lost, times := lostWorker(err), 0
	if lost {
		times = min(x.m.crashes.Ended(ctx, b, w.reason()), int(x.crashes.Load())+1) // this exit may not be in crashes yet
		if w.killed.Load() != nil {
			times = 0 // the server ended it, because of a limit: the machine may have been slow
		}
	}
	failAll(b, e, times, err)
	if !lost {
		return nil
	}
	if x.m.sig.Decoupled || len(b.Requests) == 1 {
		return nil
	}
	return e.lost(0, times, err) // the scheduler executes the requests one by one, so that only the one at fault fails
}

// dispatch sends the batch to the worker and reads the responses that execute returned. Responses of response senders may
// follow. The worker is nil when the batch was not sent.
func (x *instance) dispatch(ctx context.Context, b *backends.Batch, e *execution) (w *worker, err error) {
	if err := x.lockWorker(ctx); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	defer x.releaseOutputs()
	if err := x.begin(b); err != nil {
		return nil, err
	}
	w = x.w
	w.separate(len(b.Requests))
	e.begin(w.seq+1, b)
	w.running.add(e)
	return w, x.run(b, e)
}

// lockWorker locks mu once the instance has a live worker, for which it waits. A request that is cancelled meanwhile leaves the start of
// the worker to those that follow: clients that wait for less than a start takes would otherwise have it begin again and again.
func (x *instance) lockWorker(ctx context.Context) error {
	for {
		x.mu.Lock()
		if x.closed {
			x.mu.Unlock()
			return status.Reasonf(status.ModelNotReady, "instance of model '%s' is closed", x.m.sig.Model)
		}
		x.closeDead() // it may have exited between two batches
		if x.w != nil {
			return nil
		}
		r := x.startAgain()
		x.mu.Unlock()
		if left := time.Until(r.at); left > crash.Patience {
			return crash.Refusal(x.m.sig.Model, left, r.why)
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return status.ErrCancelled
		}
		if r.err != nil {
			return &status.Error{Code: status.Unavailable, Reason: status.InstanceLost, Msg: status.Text(r.err), RetryAfter: retryAfter}
		}
	}
}

// closeDead frees the worker if it has exited. The caller holds mu.
func (x *instance) closeDead() {
	if x.w != nil && x.w.ctx.Err() != nil {
		x.closeWorker()
	}
}

// failAll fails every request of a batch that has not failed, except those whose final response was sent, as in Triton. e is
// nil when the batch was not sent.
func failAll(b *backends.Batch, e *execution, times int, err error) {
	for i := range b.Requests {
		if e != nil && e.ended(i) {
			continue
		}
		if b.Requests[i].Err == nil {
			b.Requests[i].Err = e.lost(i, times, err)
		}
		tensor.ReleaseAll(b.Requests[i].Out)
		b.Requests[i].Out = nil
	}
	tensor.ReleaseAll(b.Out)
}

// closeWorker ends the worker, and frees it in the background: another one serves while a client does not take the last responses of this one,
// or while a model that it has called executes. The caller holds mu.
func (x *instance) closeWorker() {
	w := x.w
	w.stop()
	x.ended = w.reason()
	x.w = nil
	x.alive.Store(nil)
	x.frees.Go(w.free)
}

// broken frees the worker when err is an error of its socket. The caller holds mu.
func (x *instance) broken(err error) error {
	if e, ok := errors.AsType[*status.Error](err); ok {
		return e
	}
	err = x.w.lost(err)
	x.closeWorker()
	return err
}

// The delay before a crashed worker is replaced without a request: the first one, which doubles with each crash until a request
// succeeds, and the longest one.
const (
	restartAfter = 5 * time.Second
	restartMost  = time.Minute
)

// died schedules a new worker: at once for the first one that was recycled. A request that arrives earlier starts it at once. why is the
// end of the last one, or the error of a start.
func (x *instance) died(why string, recycled bool) {
	if x.life.Err() != nil {
		return // closed
	}
	now := &outage{time.Now(), why}
	if o := x.outage.Load(); o != nil {
		now.since = o.since
	}
	if x.outage.Swap(now) == nil {
		x.m.outages.Add(1)
	}
	delay := restartMost
	switch n := x.crashes.Add(1); {
	case n == 1 && recycled:
		delay = 0
	case n <= 4:
		delay = min(restartAfter<<(n-1), restartMost)
	}
	x.restarter.Reset(delay)
	if w := x.alive.Load(); x.life.Err() != nil || w != nil && !w.exited() {
		x.endOutage() // closed, or replaced meanwhile
	}
}

// newStart is the start of a worker after the first one. It has a goroutine of its own.
type newStart struct {
	at   time.Time     // when it begins
	why  string        // the worker before ended
	done chan struct{} // closed when it has ended
	err  error         // why there is no worker; valid afterwards
}

// startAgain begins to start a worker, or returns the start that is in progress. The caller holds mu.
func (x *instance) startAgain() *newStart {
	if x.starting != nil {
		return x.starting
	}
	delay := crash.Delay(x.crashes.Load())
	r := &newStart{at: time.Now().Add(delay), why: x.ended, done: make(chan struct{})}
	x.starting = r
	x.starts.Go(func() {
		w, err := x.startAfter(delay)
		x.mu.Lock()
		defer x.mu.Unlock()
		defer close(r.done)
		x.starting = nil
		if err == nil {
			x.use(w)
			return
		}
		x.ended = status.Line(status.Text(err))
		r.err = status.Prefixf(err, "cannot start the python worker of model '%s' again: ", x.m.sig.Model)
		if x.life.Err() == nil {
			x.m.failed(x.name, status.Text(r.err))
			x.died(x.ended, false)
		}
	})
	return r
}

// startAfter is start after a delay. It turns a panic into an error.
func (x *instance) startAfter(delay time.Duration) (w *worker, err error) {
	select {
	case <-time.After(delay):
	case <-x.life.Done():
		return nil, status.ErrCancelled
	}
	defer recovery.Error(&err, x.m.log, "starting the worker of instance '"+x.name+"' again")
	return x.start(x.life)
}

// replace starts a new worker unless the instance has a live one.
func (x *instance) replace() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeDead()
	if !x.closed && x.w == nil {
		x.startAgain()
	}
}
