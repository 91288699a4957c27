package async

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
)

// Worker executes the requests of the models that its server has loaded, and sends callbacks.
type Worker struct {
	s       Settings
	records *records
	store   string // the name of the storage
	workers map[string]worker.Worker
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
	return &Worker{s: s, records: &records{uri: s.Store, data: s.Data}, workers: map[string]worker.Worker{}, retry: callbackRetry}, nil
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
	w.follow(ctx)
	for _, one := range w.workers {
		wait.Go(one.Stop)
	}
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

// follow has one worker of the SDK for each model that is loaded, and one for callbacks, until ctx is done. One that cannot
// start, because the Temporal server is away, is tried again.
func (w *Worker) follow(ctx context.Context) {
	said := ""
	for {
		want := w.queues(ctx)
		for queue, model := range want {
			if w.workers[queue] != nil || ctx.Err() != nil {
				continue
			}
			one := w.serve(queue, model)
			if err := one.Start(); err != nil { // it cannot be started again
				if text := err.Error(); text != said {
					said = text
					w.s.Log.WarnContext(ctx, "Asynchronous requests wait for Temporal.", slog.String("error", text))
				}
				break
			}
			w.workers[queue] = one
		}
		for queue, one := range w.workers {
			if _, ok := want[queue]; !ok {
				delete(w.workers, queue)
				go one.Stop() // it waits for requests in execution
			}
		}
		if !pause(ctx, followEvery) {
			return
		}
	}
}

// queues returns the task queues of this process with their models; that of callbacks has none.
func (w *Worker) queues(ctx context.Context) map[string]string {
	list, err := w.s.Catalog.Statistics("", 0)
	if err != nil {
		w.s.Log.WarnContext(ctx, "The loaded models are not known.", slog.Any("error", err))
	}
	queues := map[string]string{}
	for i := range list {
		queues[w.s.queue(w.store, list[i].Name)] = list[i].Name
	}
	if w.s.Callbacks != nil {
		queues[w.s.callbackQueue(w.store)] = ""
	}
	return queues
}

// serve makes the worker of a task queue.
func (w *Worker) serve(queue, model string) worker.Worker {
	o := worker.Options{
		MaxConcurrentActivityExecutionSize: maxExecutions, DisableWorkflowWorker: true, WorkerStopTimeout: stopTimeout,
		MaxHeartbeatThrottleInterval: beatEvery,
		ActivityTaskPollerBehavior: worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
			InitialNumberOfPollers: 1, MinimumNumberOfPollers: 1, MaximumNumberOfPollers: 8,
		}),
		OnFatalError: func(err error) { w.s.Log.Error("Temporal refuses this worker.", slog.Any("error", err)) },
	}
	if model == "" {
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
