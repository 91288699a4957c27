package durable

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// activities are the activities of a worker, with what they share. They are safe for concurrent use.
type activities struct {
	s       *Settings
	memory  tensor.Allocator
	segment time.Duration // see segmentTime
	asking  chan struct{} // see slice

	mu    sync.Mutex
	jobs  map[string]*data // by the run
	gates map[modelKey]*gate
}

type modelKey struct {
	model   string
	version int64
}

func newActivities(s *Settings) *activities {
	return &activities{s: s, memory: tensor.NewPool(), segment: segmentTime, asking: make(chan struct{}, 1), jobs: map[string]*data{}, gates: map[modelKey]*gate{}}
}

// close drops what is kept of jobs.
func (a *activities) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.jobs)
}

// beat is what heartbeats carry.
type beat struct {
	Chunk int64 `json:"chunk"` // -1 for other activities
	Rows  int64 `json:"rows"`  // done
}

// beatEvery must be well below heartbeatTimeout.
const beatEvery = 2 * time.Second

// heart sends the heartbeats of an activity, also while a request takes long.
type heart struct {
	cancel context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // of the goroutine
	rows   atomic.Int64
	ended  chan struct{}

	background Background
}

// beat starts the heartbeats of an activity, beside which online requests are counted. The context ends when the job was cancelled, when the attempt has timed
// out, and when the worker stops.
func (a *activities) beat(ctx context.Context, chunk int64) (context.Context, *heart) {
	h := &heart{ended: make(chan struct{}), background: a.s.Background}
	h.background.Begin(telemetry.Now())
	outer := ctx
	ctx, h.cancel = context.WithCancelCause(ctx)
	h.ctx = ctx
	go func() {
		defer close(h.ended)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			activity.RecordHeartbeat(outer, beat{chunk, h.rows.Load()})
			select {
			case <-ctx.Done():
				return
			case <-activity.GetWorkerStopChannel(outer):
				h.cancel(errStopping)
				return
			case <-tick.C:
			}
		}
	}()
	return ctx, h
}

// recordTime is how long a chunk of a worker that stops has to record the rows that are done. It is below stopTimeout.
const recordTime = stopTimeout - time.Second

// lasting returns the context in which the results of an activity are written. When the worker stops it ends some time after the
// activity's, so that the rows that are done are recorded, and otherwise together with it.
func lasting(ctx context.Context) (context.Context, func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	ready := make(chan struct{})
	unlink := context.AfterFunc(ctx, func() {
		defer close(ready)
		if errors.Is(context.Cause(ctx), errStopping) {
			timer = time.AfterFunc(recordTime, cancel)
			return
		}
		cancel()
	})
	return longer, func() {
		if !unlink() {
			<-ready
			if timer != nil {
				timer.Stop()
			}
		}
		cancel()
	}
}

func (h *heart) set(rows int64) { h.rows.Store(rows) }

func (h *heart) stop() {
	h.cancel(nil)
	<-h.ended
	h.background.End(telemetry.Now())
}

// cause returns the reason why an activity was ended, for one that failed because of that.
func (h *heart) cause(err error) error {
	if err == nil || h.ctx.Err() == nil {
		return err
	}
	if errors.Is(context.Cause(h.ctx), errStopping) {
		return waits(errStopping)
	}
	return h.ctx.Err()
}

// gate returns the limit of the requests in flight of a model.
func (a *activities) gate(d *infer.Description) *gate {
	key := modelKey{d.Model, d.Version}
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.gates[key]
	if g == nil {
		instances := int32(0)
		if c, err := a.s.Catalog.Config(d.Model, d.Version); err == nil {
			for _, group := range c.GetInstanceGroup() {
				instances += max(group.GetCount(), 1)
			}
		}
		g = newGate(int(instances))
		a.gates[key] = g
	}
	return g
}

// setPriority makes a request give way to online requests: it is in the background, and has the lowest priority of the model.
func (a *activities) setPriority(req *infer.Request, d *infer.Description) {
	req.Background = true
	if c, err := a.s.Catalog.Config(d.Model, d.Version); err == nil {
		req.Priority = c.GetDynamicBatching().GetPriorityLevels()
	}
}
