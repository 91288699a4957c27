package durable

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tutti-server/tutti/core/job"
)

// The bounds of one run of the workflow. A chunk makes at most 6 events: three of its activity and three of the workflow
// task that its result starts. A run ends after chunksPerRun chunks, so its history stays below 5,000 events.
const (
	chunksPerRun = 600
	maxEvents    = 4000 // ends a run earlier, for example after many signals
	firstWindow  = 8
	minWindow    = 2
	maxWindow    = 256
	// drainTime is how long the end of a run waits for the chunks in execution. Those that take longer are started again
	// by the next run, where they continue from their segments.
	drainTime = time.Minute

	chunkIDPrefix = "chunk-" // of the IDs of activities, before the number of the chunk

	heartbeatTimeout = 10 * time.Second
	longest          = 7 * 24 * time.Hour // of one attempt; heartbeats find dead workers much earlier
	memoEvery        = 10 * time.Second
	sampleEvery      = 5 * time.Second
	maxSamples       = 13
)

// The types of the errors of activities. errFatal ends the job, all others are tried again.
const (
	errFatal  = "JobFailed"
	errWaits  = "Waits"      // for storage or for the model
	errOther  = "OtherModel" // this worker has another model
	errFailed = "JobFailed"  // of the workflow
)

// run is one run of the workflow.
type run struct {
	*order
	started  int // chunks that this run has started
	inFlight int
	failure  error // ends the job
	memoAt   time.Time
}

// runJob is the workflow. See doc.go for the flow of a job.
func runJob(ctx workflow.Context, o *order) error {
	r := &run{order: o}
	r.begin(ctx)
	if err := workflow.SetQueryHandler(ctx, queryProgress, func() (*progress, error) { return &r.Progress, nil }); err != nil {
		return err
	}
	workflow.Go(ctx, r.listen)
	err := r.phases(ctx)
	if workflow.IsContinueAsNewError(err) {
		return err
	}
	return r.end(ctx, err)
}

// begin completes the order of the first run.
func (r *run) begin(ctx workflow.Context) {
	if r.Run == "" {
		r.Run = workflow.GetInfo(ctx).WorkflowExecution.RunID
		r.Progress = progress{State: job.Checking, Created: workflow.Now(ctx).UTC()}
		r.Window = firstWindow
	}
	if r.Spec.Chunks > 0 {
		r.Window = min(r.Spec.Chunks, maxWindow)
	}
	r.memoAt = workflow.Now(ctx)
}

func (r *run) place() place { return place{Job: r.Spec.ID, Run: r.Run, Output: r.Spec.Output} }

// phases executes what is left of the job.
func (r *run) phases(ctx workflow.Context) error {
	if r.Checked == nil {
		var c checked
		if err := workflow.ExecuteActivity(r.options(ctx, modelQueue(r.Queue, r.Spec.Model, r.Spec.Device)), activityCheck, checkOrder{r.place(), r.Spec}).Get(ctx, &c); err != nil {
			return err
		}
		r.Checked, r.Progress.Fingerprint = &c, c.Fingerprint
	}
	if r.Plan == nil {
		var p plan
		if err := workflow.ExecuteActivity(r.options(ctx, r.Queue), activityCut, r.place()).Get(ctx, &p); err != nil {
			return err
		}
		r.Plan, r.Progress.Rows.Total, r.Progress.Chunks = &p, p.Rows, p.Chunks
		r.Progress.State = job.Running
		r.memo(ctx)
	}
	for {
		if err := r.chunks(ctx); err != nil {
			return err
		}
		var f finished
		if err := workflow.ExecuteActivity(r.options(ctx, r.Queue), activityFinish, finishOrder{r.place(), *r.Plan}).Get(ctx, &f); err != nil {
			return err
		}
		f.Rows.Total = r.Plan.Rows
		r.Progress.Rows, r.Progress.Finished, r.Progress.Manifest = f.Rows, f.Chunks, f.Manifest
		if len(f.Bad) == 0 {
			return nil
		}
		r.Again = f.Bad
	}
}

// options returns the context of an activity on a task queue. An attempt that fails is followed by another one, without
// end, unless its error has the type errFatal.
func (r *run) options(ctx workflow.Context, queue string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: queue, StartToCloseTimeout: longest, HeartbeatTimeout: heartbeatTimeout,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 15 * time.Second, NonRetryableErrorTypes: []string{errFatal}},
		Priority:    priority(&r.Spec),
	})
}

// priority returns the job's place among other jobs.
func priority(s *job.Spec) temporal.Priority {
	return temporal.Priority{PriorityKey: s.Priority, FairnessKey: s.Group}
}

// chunks executes the chunks that are left, in a window. It ends the run by continue-as-new when its history is long.
func (r *run) chunks(ctx workflow.Context) error {
	window, abandon := workflow.WithCancel(ctx)
	defer abandon()
	for {
		if err := workflow.Await(ctx, func() bool { return r.failure != nil || r.mayStart() || r.full(ctx) || r.inFlight == 0 && !r.left() }); err != nil {
			return err
		}
		switch {
		case r.failure != nil:
			return r.failure
		case r.full(ctx):
			return r.next(ctx, abandon)
		case r.mayStart():
			r.start(window)
		default:
			return nil
		}
	}
}

// left reports whether chunks are left to start.
func (r *run) left() bool { return len(r.Again) > 0 || r.Next < r.Plan.Chunks }

func (r *run) mayStart() bool {
	return !r.Progress.Paused && r.left() && r.inFlight < r.Window
}

// full reports whether the run must end because its history is long.
func (r *run) full(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return r.left() && (r.started >= chunksPerRun || info.GetCurrentHistoryLength() > maxEvents || info.GetContinueAsNewSuggested())
}

// start schedules the next chunk.
func (r *run) start(ctx workflow.Context) {
	number := r.Next
	if len(r.Again) > 0 {
		number, r.Again = r.Again[0], r.Again[1:]
	} else {
		r.Next++
	}
	r.started++
	r.inFlight++
	options := workflow.GetActivityOptions(r.options(ctx, modelQueue(r.Queue, r.Spec.Model, r.Spec.Device)))
	options.ActivityID = chunkIDPrefix + strconv.FormatInt(number, 10)
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activityChunk, chunkOrder{r.place(), number})
	workflow.Go(ctx, func(ctx workflow.Context) {
		var d chunkDone
		err := future.Get(ctx, &d)
		r.inFlight--
		switch {
		case err == nil && !d.Paused:
			r.done(ctx, &d)
		case err == nil, temporal.IsCanceledError(err): // abandoned by next
			r.Progress.Retries += d.Retries
			r.Again = append(r.Again, number)
		case r.failure == nil:
			r.failure = err
		}
	})
}

// done counts the rows of a chunk.
func (r *run) done(ctx workflow.Context, d *chunkDone) {
	p := &r.Progress
	p.Finished++
	p.Rows.Done += d.Done
	p.Rows.Failed += d.Failed
	p.Rows.Reused += d.Reused
	p.Retries += d.Retries
	r.sample(workflow.Now(ctx))
	if limit := r.Spec.MaxFailed; limit != nil && p.Rows.Failed > *limit && r.failure == nil {
		r.failure = temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("%d rows have failed, more than max_failed %d allows; the last error: %s", p.Rows.Failed, *limit, d.Error), errFatal, nil)
	}
	if r.Spec.Chunks == 0 {
		r.Window = fit(r.Window, d)
	}
	if workflow.Now(ctx).Sub(r.memoAt) >= memoEvery {
		r.memo(ctx)
	}
}

// fit adapts the window to the workers: a chunk must wait a little in its task queue, so that no worker is idle, but not
// long, so that a pause is soon followed.
func fit(window int, d *chunkDone) int {
	const short, long = 500, 2000 // milliseconds
	switch {
	case d.Waited < max(d.Took/4, short):
		return min(window+1, maxWindow)
	case d.Waited > max(d.Took, long):
		return max(window-1, minWindow)
	}
	return window
}

// sample records the rows done for the rate.
func (r *run) sample(now time.Time) {
	p := &r.Progress
	if n := len(p.Samples); n > 0 && now.Sub(p.Samples[n-1].At) < sampleEvery {
		return
	}
	p.Samples = append(p.Samples, sample{At: now.UTC(), Done: p.Rows.Done + p.Rows.Failed})
	p.Samples = p.Samples[max(len(p.Samples)-maxSamples, 0):]
}

// next ends this run and continues the job in a new one.
func (r *run) next(ctx workflow.Context, abandon func()) error {
	idle := func() bool { return r.failure != nil || r.inFlight == 0 }
	if _, err := workflow.AwaitWithTimeout(ctx, drainTime, idle); err != nil {
		return err
	}
	if r.failure == nil && r.inFlight > 0 {
		abandon()
		if err := workflow.Await(ctx, idle); err != nil {
			return err
		}
	}
	if r.failure != nil {
		return r.failure
	}
	slices.Sort(r.Again)
	r.memo(ctx)
	r.drainSignals(ctx)
	return workflow.NewContinueAsNewError(ctx, workflowType, r.order)
}

// listen follows the signals.
func (r *run) listen(ctx workflow.Context) {
	for {
		s := workflow.NewSelector(ctx)
		for _, name := range []string{signalPause, signalResume} {
			s.AddReceive(workflow.GetSignalChannel(ctx, name), func(c workflow.ReceiveChannel, _ bool) {
				c.Receive(ctx, nil)
				r.pause(ctx, name == signalPause)
			})
		}
		s.Select(ctx)
	}
}

// drainSignals handles the signals that have arrived and that listen has not seen yet: a new run does not get them.
func (r *run) drainSignals(ctx workflow.Context) {
	for _, name := range []string{signalPause, signalResume} {
		for c := workflow.GetSignalChannel(ctx, name); c.ReceiveAsync(nil); {
			r.pause(ctx, name == signalPause)
		}
	}
}

func (r *run) pause(ctx workflow.Context, paused bool) {
	if r.Progress.Paused != paused {
		r.Progress.Paused = paused
		r.memo(ctx)
	}
}

// memo stores the progress where it can be read without a worker.
func (r *run) memo(ctx workflow.Context) {
	r.memoAt = workflow.Now(ctx)
	if err := workflow.UpsertMemo(ctx, map[string]any{memoProgress: r.Progress}); err != nil {
		workflow.GetLogger(ctx).Warn("The progress of a job cannot be stored.", "job", r.Spec.ID, "error", err)
	}
}

// end stores how the job has ended.
func (r *run) end(ctx workflow.Context, err error) error {
	p := &r.Progress
	p.Ended, p.Paused = workflow.Now(ctx).UTC(), false
	switch {
	case err == nil:
		p.State = job.Completed
	case ctx.Err() != nil || temporal.IsCanceledError(err):
		p.State, err = job.Cancelled, temporal.NewCanceledError()
	default:
		p.State, p.Reason = job.Failed, cause(err)
		err = temporal.NewApplicationError(p.Reason, errFailed)
	}
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	r.memo(ctx)
	return err
}

// cause returns the text of an activity's error without what Temporal puts around it.
func cause(err error) string {
	if e, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return e.Message()
	}
	return err.Error()
}

// modelQueue returns the task queue of the workers that serve a model, on a device if one is named. No model has a slash in its name.
func modelQueue(prefix, model, device string) string {
	if device != "" {
		device = "/" + device
	}
	return prefix + "-" + model + device
}
