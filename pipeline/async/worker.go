package async

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/tutti-server/tutti/pipeline/engine"
)

// Worker executes the requests of the models that its server has loaded, and sends callbacks.
type Worker struct {
	s       Settings
	records *records
	store   string // the name of the storage
	workers engine.Workers
	retry   time.Duration // see callbackRetry
}

// The bounds of a worker.
const (
	// maxExecutions is the number of requests of one model at a time. The model's scheduler puts them into batches.
	maxExecutions = 64
	maxCallbacks  = 64
	followEvery   = time.Second // models that were loaded or unloaded are noticed
	retryStart    = 2 * time.Second
	stopTimeout   = 5 * time.Second
)

// NewWorker returns a worker that does nothing until Run.
func NewWorker(s Settings) (*Worker, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	if s.Execute == nil || s.Catalog == nil {
		return nil, errors.New("a worker of asynchronous requests needs a catalog and what executes requests")
	}
	w := &Worker{s: s, records: &records{uri: s.Store, data: s.Data}, retry: callbackRetry}
	w.workers = engine.Workers{New: w.serve, Failure: s.Failure, What: "asynchronous requests", Log: s.Log}
	return w, nil
}

// Run executes requests until ctx is done, and then returns nil. It waits for a Temporal server or a storage that is away.
// When it stops, requests in execution have some seconds to end; others are executed again by another worker, or by the next
// Run.
func (w *Worker) Run(ctx context.Context) error {
	said := ""
	for !w.named(ctx, &said) {
		if !pause(ctx, retryStart) {
			return nil
		}
	}
	var wait sync.WaitGroup
	wait.Go(func() { w.sweep(ctx) })
	for next := true; next; next = pause(ctx, followEvery) {
		w.workers.Keep(ctx, w.queues(ctx))
	}
	w.workers.Stop()
	wait.Wait()
	return nil
}

// named finds the name of the storage. said is the last error in the log.
func (w *Worker) named(ctx context.Context, said *string) bool {
	var err error
	if w.store, err = w.records.name(ctx); err != nil && err.Error() != *said {
		*said = err.Error()
		w.s.Log.WarnContext(ctx, "Asynchronous requests wait for their storage.", slog.Any("error", err))
	}
	return err == nil
}

// pause returns after a time, and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// queues returns the task queues of this process: those of the models that are loaded, and that of callbacks.
func (w *Worker) queues(ctx context.Context) (queues []string) {
	list, err := w.s.Catalog.Statistics("", 0)
	if err != nil {
		w.s.Log.WarnContext(ctx, "The loaded models are not known.", slog.Any("error", err))
	}
	for i := range list {
		queues = append(queues, w.s.queue(w.store, list[i].Name))
	}
	if w.s.Callbacks != nil {
		queues = append(queues, w.s.callbackQueue(w.store))
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// serve makes the worker of a task queue.
func (w *Worker) serve(queue string, o worker.Options) worker.Worker {
	o.MaxConcurrentActivityExecutionSize, o.DisableWorkflowWorker = maxExecutions, true
	o.WorkerStopTimeout, o.MaxHeartbeatThrottleInterval = stopTimeout, beatEvery
	o.ActivityTaskPollerBehavior = worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: 1, MinimumNumberOfPollers: 1, MaximumNumberOfPollers: 8,
	})
	if queue == w.s.callbackQueue(w.store) {
		o.MaxConcurrentActivityExecutionSize = maxCallbacks
		one := worker.New(w.s.Client, queue, o)
		one.RegisterActivityWithOptions(w.callback, activity.RegisterOptions{Name: activityCallback})
		return one
	}
	one := worker.New(w.s.Client, queue, o)
	one.RegisterActivityWithOptions(w.infer, activity.RegisterOptions{Name: activityInfer})
	return one
}

// sweep removes what has expired, until ctx is done.
func (w *Worker) sweep(ctx context.Context) {
	every := min(max(w.s.Keep/4, time.Second), 10*time.Minute)
	for {
		if err := w.records.sweep(ctx, time.Now(), w.s.Keep); err != nil && ctx.Err() == nil {
			w.s.Log.WarnContext(ctx, "Expired results of asynchronous requests are not removed.", slog.Any("error", err))
		}
		if !pause(ctx, every) {
			return
		}
	}
}
