package durable

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/dataset"
)

// Settings are what a Service and a Worker need of the server around them.
type Settings struct {
	// Client is connected to a namespace of a Temporal server. Required. It may be lazy: the Temporal server may be away.
	Client client.Client
	// Inferer executes the requests of chunks. Required for a Worker.
	Inferer infer.Inferer
	// Catalog describes the models. Required for a Worker. A Service without one accepts jobs of models that it does
	// not know.
	Catalog infer.Catalog
	// Fingerprint identifies the content of a loaded version: the files, the configuration and, for an ensemble, those
	// of its steps. Required for a Worker. It is called for each chunk. Errors have the code NotFound or Unavailable
	// while the version is not loaded.
	Fingerprint func(model string, version int64) (string, error)
	// Busy reports whether online requests are served, so that requests in the background wait for free places in batches. Optional.
	Busy func() bool
	// OnGPU reports whether a loaded model, or a step of an ensemble, is on a GPU. Nil: none is.
	OnGPU func(model string) bool
	// Data configures the access to datasets and outputs.
	Data *dataset.Options
	// Failure returns the error of the last call to Temporal if the server was away or refused it, and else nil. It gives the
	// reason of calls whose retries a deadline ended. Optional.
	Failure func() error
	// Queue is the prefix of the task queues: workers take the steps of jobs from QUEUE, and the chunks of a model from
	// QUEUE-MODEL and, for jobs that name a device, QUEUE-MODEL/gpu or QUEUE-MODEL/cpu. Default: tutti.
	Queue string
	// Codec transforms payloads. For example, it encrypts them. It must be the one of Client (see DataConverter).
	Codec converter.PayloadCodec
	// Chunks is the number of chunks of one task queue that this worker executes at a time. Default: 4.
	Chunks int
	// Log receives what happens. Default: nothing is logged.
	Log *slog.Logger

	_ struct{}
}

const (
	defaultQueue  = "tutti"
	defaultChunks = 4
	// followEvery is how often a worker looks for models that were loaded or unloaded.
	followEvery = time.Second
	stopTimeout = 5 * time.Second
	retryStart  = 2 * time.Second
)

func (s *Settings) complete() {
	s.Queue = cmp.Or(s.Queue, defaultQueue)
	s.Chunks = cmp.Or(s.Chunks, defaultChunks)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Data == nil {
		s.Data = &dataset.Options{}
	}
}

// DataConverter returns the converter with which client.Options must be completed when payloads have a codec.
func DataConverter(codec converter.PayloadCodec) converter.DataConverter {
	if codec == nil {
		return converter.GetDefaultDataConverter()
	}
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
}

// Worker executes jobs: their workflows, and the chunks of the models that its server has loaded.
type Worker struct {
	s    Settings
	acts *activities

	models map[string]worker.Worker // by the task queue
}

// NewWorker returns a worker that does nothing until Run.
func NewWorker(s Settings) (*Worker, error) {
	if s.Client == nil || s.Inferer == nil || s.Catalog == nil || s.Fingerprint == nil {
		return nil, errors.New("a worker needs a Temporal client, an inferer, a catalog and the fingerprints of models")
	}
	s.complete()
	return &Worker{s: s, acts: newActivities(&s), models: map[string]worker.Worker{}}, nil
}

// Run executes jobs until ctx is done, and then returns nil. It waits for a Temporal server that is away, and goes on when
// it is back. When it stops, chunks in execution are abandoned; another worker, or the next Run, continues them.
func (w *Worker) Run(ctx context.Context) error {
	engine := w.start(ctx, func() worker.Worker {
		e := worker.New(w.s.Client, w.s.Queue, w.options())
		e.RegisterWorkflowWithOptions(runJob, workflow.RegisterOptions{Name: workflowType})
		e.RegisterActivityWithOptions(w.acts.cut, activity.RegisterOptions{Name: activityCut})
		e.RegisterActivityWithOptions(w.acts.finish, activity.RegisterOptions{Name: activityFinish})
		return e
	})
	if engine == nil {
		return nil
	}
	w.s.Log.InfoContext(ctx, "Jobs are executed.", slog.String("task_queue", w.s.Queue))
	w.follow(ctx)
	var wait sync.WaitGroup
	for _, m := range append(slices.Collect(maps.Values(w.models)), engine) {
		wait.Go(m.Stop)
	}
	wait.Wait()
	w.acts.close()
	return nil
}

func (w *Worker) options() worker.Options {
	return worker.Options{
		MaxConcurrentActivityExecutionSize: w.s.Chunks,
		WorkerStopTimeout:                  stopTimeout,
		MaxHeartbeatThrottleInterval:       2 * time.Second,
		ActivityTaskPollerBehavior:         worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{InitialNumberOfPollers: 1, MinimumNumberOfPollers: 1, MaximumNumberOfPollers: 4}),
		OnFatalError: func(err error) {
			w.s.Log.Error("Temporal refuses this worker.", slog.Any("error", err))
		},
	}
}

// start starts a worker of the SDK, and tries again while the Temporal server is away. Each try has a new worker: one that
// failed to start cannot be started again. It returns nil when ctx is done.
func (w *Worker) start(ctx context.Context, fresh func() worker.Worker) worker.Worker {
	said := ""
	for {
		e := fresh()
		err := e.Start()
		if err == nil {
			return e
		}
		if text := err.Error(); text != said {
			said = text
			w.s.Log.WarnContext(ctx, "Jobs wait for Temporal.", slog.String("error", unreachable(w.s.cause(err))))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryStart):
		}
	}
}

// follow has one worker for each task queue of the models that are loaded, until ctx is done.
func (w *Worker) follow(ctx context.Context) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		loaded := w.loaded(ctx)
		for name := range loaded {
			if w.models[name] == nil {
				if m := w.serve(ctx, name); m != nil {
					w.models[name] = m
				}
			}
		}
		for name, m := range w.models {
			if !loaded[name] {
				delete(w.models, name)
				go m.Stop() // it waits for chunks in execution, which fail soon
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// serve starts to take chunks from a task queue.
func (w *Worker) serve(ctx context.Context, queue string) worker.Worker {
	return w.start(ctx, func() worker.Worker {
		o := w.options()
		o.DisableWorkflowWorker = true
		m := worker.New(w.s.Client, queue, o)
		m.RegisterActivityWithOptions(w.acts.check, activity.RegisterOptions{Name: activityCheck})
		m.RegisterActivityWithOptions(w.acts.chunk, activity.RegisterOptions{Name: activityChunk})
		return m
	})
}

// loaded returns the task queues of the models that are ready.
func (w *Worker) loaded(ctx context.Context) map[string]bool {
	list, err := w.s.Catalog.Statistics("", 0)
	if err != nil {
		w.s.Log.WarnContext(ctx, "The loaded models are not known.", slog.Any("error", err))
		return nil
	}
	queues := map[string]bool{}
	for i := range list {
		model, device := list[i].Name, deviceCPU
		if w.s.OnGPU != nil && w.s.OnGPU(model) {
			device = deviceGPU
		}
		queues[modelQueue(w.s.Queue, model, "")] = true
		queues[modelQueue(w.s.Queue, model, device)] = true
	}
	return queues
}
