package durable

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/pipeline/engine"
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
	// Background is that of the process's executors: jobs give way to the online requests that it counts. Default: there
	// are none.
	Background Background
	// OnGPU reports whether a loaded model, or a step of an ensemble, is on a GPU. Nil: none is.
	OnGPU func(model string) bool
	// Data configures the access to datasets and outputs.
	Data *dataset.Options
	// Failure gives the reason of calls to Temporal whose retries a deadline ended. Optional.
	Failure engine.Failure
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
)

func (s *Settings) complete() {
	s.Queue = cmp.Or(s.Queue, defaultQueue)
	s.Chunks = cmp.Or(s.Chunks, defaultChunks)
	if s.Background == nil {
		s.Background = noOnline{}
	}
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
	s       Settings
	acts    *activities
	workers engine.Workers
}

// NewWorker returns a worker that does nothing until Run.
func NewWorker(s Settings) (*Worker, error) {
	if s.Client == nil || s.Inferer == nil || s.Catalog == nil || s.Fingerprint == nil {
		return nil, errors.New("a worker needs a Temporal client, an inferer, a catalog and the fingerprints of models")
	}
	s.complete()
	w := &Worker{s: s, acts: newActivities(&s)}
	w.workers = engine.Workers{New: w.serve, Failure: s.Failure, What: "jobs", Log: s.Log}
	return w, nil
}

// Run executes jobs until ctx is done, and then returns nil. It waits for a Temporal server that is away, and goes on when
// it is back. When it stops, chunks in execution are abandoned; another worker, or the next Run, continues them.
func (w *Worker) Run(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for said := false; ; {
		if w.workers.Keep(ctx, append([]string{w.s.Queue}, w.loaded(ctx)...)) && !said {
			said = true
			w.s.Log.InfoContext(ctx, "Jobs are executed.", slog.String("task_queue", w.s.Queue))
		}
		select {
		case <-ctx.Done():
			w.workers.Stop()
			w.acts.close()
			return nil
		case <-tick.C:
		}
	}
}

// serve makes the worker of a task queue.
func (w *Worker) serve(queue string, o worker.Options) worker.Worker {
	o.MaxConcurrentActivityExecutionSize = w.s.Chunks
	o.WorkerStopTimeout, o.MaxHeartbeatThrottleInterval = stopTimeout, 2*time.Second
	o.ActivityTaskPollerBehavior = worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{InitialNumberOfPollers: 1, MinimumNumberOfPollers: 1, MaximumNumberOfPollers: 4})
	if queue == w.s.Queue {
		e := worker.New(w.s.Client, queue, o)
		e.RegisterWorkflowWithOptions(runJob, workflow.RegisterOptions{Name: workflowType})
		e.RegisterActivityWithOptions(w.acts.cut, activity.RegisterOptions{Name: activityCut})
		e.RegisterActivityWithOptions(w.acts.finish, activity.RegisterOptions{Name: activityFinish})
		return e
	}
	o.DisableWorkflowWorker = true
	m := worker.New(w.s.Client, queue, o)
	m.RegisterActivityWithOptions(w.acts.check, activity.RegisterOptions{Name: activityCheck})
	m.RegisterActivityWithOptions(w.acts.chunk, activity.RegisterOptions{Name: activityChunk})
	return m
}

// loaded returns the task queues of the models that are ready.
func (w *Worker) loaded(ctx context.Context) []string {
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
	return slices.Collect(maps.Keys(queues))
}
