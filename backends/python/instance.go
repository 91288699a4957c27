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
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
)

// instance executes batches in its worker process. When the worker has exited, the next batch starts another one.
type instance struct {
	m      *model
	name   string
	at     tensor.Place // of its instance group: the host or a GPU
	single execution    // reused by each batch, unless the model is decoupled

	alive     atomic.Pointer[worker] // same as w; read without mu
	crashes   atomic.Int32           // since the last request that succeeded
	restarter *time.Timer            // replaces a crashed worker
	life      context.Context        //nolint:containedctx // cancelled by Close, for restarts in the background
	end       context.CancelFunc

	mu       sync.Mutex
	w        *worker // guarded by mu, like all fields below
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

// start starts a worker and initializes the model in it. The caller holds mu, or is the only user.
func (x *instance) start(ctx context.Context) error {
	w := x.m.takeSpare()
	if w == nil {
		var err error
		if w, err = startWorker(ctx, x.m); err != nil {
			return err
		}
	}
	w.owner.Store(x)
	if err := w.prepare(ctx, kindInit, "initialize", x.m.initialise(x.name, x.at), nil); err != nil {
		w.close()
		return err
	}
	x.w = w
	x.alive.Store(w)
	return nil
}

// Close calls finalize of the model and stops the worker.
func (x *instance) Close() error {
	x.restarter.Stop()
	x.end() // cancels a start that is in progress
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	x.m.mu.Lock()
	x.m.live = slices.DeleteFunc(x.m.live, func(y *instance) bool { return x == y })
	x.m.mu.Unlock()
	w := x.w
	x.w = nil
	x.alive.Store(nil)
	defer x.closeStreams()
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
		return status.Errorf(status.Unavailable, "%s", unhealthy(x.name))
	}
	return w.isReady()
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
	if w == nil {
		failAll(b, nil, err) // e still belongs to the previous batch
		return nil
	}
	w.running.remove(e)
	e.end()
	if w.ctx.Err() != nil {
		x.mu.Lock()
		x.closeDead()
		x.mu.Unlock()
	}
	if err != nil {
		failAll(b, e, err)
	}
	return nil
}

// dispatch sends the batch to the worker and reads the responses that execute returned. Responses of response senders may
// follow. The worker is nil when the batch was not sent.
func (x *instance) dispatch(ctx context.Context, b *backends.Batch, e *execution) (w *worker, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, status.Errorf(status.Unavailable, "instance of model '%s' is closed", x.m.sig.Model)
	}
	x.closeDead() // it may have exited between two batches
	if x.w == nil {
		if err := x.start(ctx); err != nil {
			err = status.Prefixf(err, "cannot start the python worker of model '%s' again: ", x.m.sig.Model)
			x.m.failed(x.name, status.Text(err))
			if ctx.Err() != nil {
				return nil, err
			}
			return nil, &status.Error{Code: status.Unavailable, Msg: err.Error(), RetryAfter: retryAfter}
		}
	}
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

// closeDead frees the worker if it has exited. The caller holds mu.
func (x *instance) closeDead() {
	if x.w != nil && x.w.ctx.Err() != nil {
		x.closeWorker()
	}
}

// failAll fails every request of a batch that has not failed, except those whose final response was sent, as in Triton. e is
// nil when the batch was not sent.
func failAll(b *backends.Batch, e *execution, err error) {
	for i := range b.Requests {
		if e != nil && e.ended(i) {
			continue
		}
		if b.Requests[i].Err == nil {
			b.Requests[i].Err = e.lost(i, err)
		}
		tensor.ReleaseAll(b.Requests[i].Out)
		b.Requests[i].Out = nil
	}
	tensor.ReleaseAll(b.Out)
}

// closeWorker frees the worker. The caller holds mu.
func (x *instance) closeWorker() {
	x.w.close()
	x.w = nil
	x.alive.Store(nil)
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

// died schedules a new worker. A request that arrives earlier starts it at once.
func (x *instance) died() {
	if x.life.Err() != nil {
		return // closed
	}
	delay := restartMost
	if n := x.crashes.Add(1); n <= 4 {
		delay = min(restartAfter<<(n-1), restartMost)
	}
	x.restarter.Reset(delay)
}

// restart starts a new worker unless the instance has a live one.
func (x *instance) restart() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeDead()
	if x.closed || x.w != nil {
		return
	}
	if err := x.startAgain(); err != nil && x.life.Err() == nil {
		x.m.log.ErrorContext(x.life, "the worker of a python model cannot be started again", slog.String("instance", x.name), slog.String("reason", status.Text(err)))
		x.died()
	}
}

// startAgain starts a worker and turns a panic into an error.
func (x *instance) startAgain() (err error) {
	defer recovery.Error(&err, x.m.log, "starting the worker of instance '"+x.name+"' again")
	return x.start(x.life)
}
