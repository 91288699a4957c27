package async

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/pipeline/engine"
)

// beatEvery must be well below heartbeatTimeout.
const beatEvery = 2 * time.Second

var errStopping = errors.New("the worker stops")

// infer is the activity of a request. It may be executed more than once: it does not execute a request that has a response.
func (w *Worker) infer(ctx context.Context, o *order) error {
	ctx, end := beat(ctx)
	defer end()
	var done storedResponse
	rest, err := w.records.get(ctx, o.ID+kindResponse, &done)
	switch {
	case err == nil:
		err = rest.Close()
	case status.CodeOf(err) == status.NotFound:
		done, err = w.execute(ctx, o)
	}
	if err == nil && done.URL != "" {
		err = w.startCallback(ctx, &done)
	}
	if err == nil {
		err = w.records.remove(ctx, o.ID+kindRequest)
	}
	if err != nil {
		return w.ended(ctx, o, err)
	}
	return nil
}

// execute executes a request and stores the response.
func (w *Worker) execute(ctx context.Context, o *order) (done storedResponse, err error) {
	var req storedRequest
	rest, err := w.records.get(ctx, o.ID+kindRequest, &req)
	if err != nil && status.CodeOf(err) == status.NotFound {
		return done, gone(ctx)
	}
	if err != nil {
		return done, err
	}
	content, err := io.ReadAll(rest)
	if err = errors.Join(err, rest.Close()); err == nil && int64(len(content)) != req.Bytes {
		err = fatal(fmt.Errorf("the stored request has %d bytes, expected %d", len(content), req.Bytes))
	}
	if err != nil {
		return done, err
	}
	done = storedResponse{order: req.order, Started: time.Now().UTC(), Attempts: int(activity.GetInfo(ctx).Attempt), URL: req.URL}
	reply := w.s.Execute(ctx, &job.Request{Model: o.Model, Version: o.Version, Header: req.Header, Body: content})
	result, err := io.ReadAll(reply.Body)
	if err = errors.Join(err, reply.Body.Close()); err != nil {
		return done, err
	}
	if reply.Code >= http.StatusBadRequest && (ctx.Err() != nil || stopping(ctx)) {
		return done, errStopping // or cancelled: see ended
	}
	if passes(reply) {
		return done, errors.New(errorText(result))
	}
	done.State = job.Succeeded
	if reply.Code >= http.StatusBadRequest {
		done.State = job.RequestFailed
	}
	done.Code, done.Header, done.Size, done.Ended = reply.Code, reply.Header, int64(len(result)), time.Now().UTC()
	return done, w.records.put(ctx, o.ID+kindResponse, &done, result)
}

// gone is the error of an attempt without a stored request. A cancellation removes it, and is heard of with the next heartbeat.
func gone(ctx context.Context) error {
	wait := time.NewTimer(2 * beatEvery)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return fatal(errors.New("the stored request is gone: it was removed from the storage"))
	}
}

// passes reports whether a response is an error that may pass: the model is being loaded, or its queue is full. One that ends the process of
// the model again and again does not, nor does another whose sending again is useless.
func passes(reply *job.Reply) bool {
	switch reply.Code {
	case http.StatusNotFound:
		return true // the model may be loaded later
	case http.StatusServiceUnavailable:
		return reply.Header.Get(status.RetryableHeader) != "false" || !lasting(status.Reason(reply.Header.Get(status.ReasonHeader)))
	}
	return reply.Code >= http.StatusBadRequest && reply.Header.Get(status.RetryableHeader) == "true"
}

// lasting reports whether an error with a reason is that of the request, which no change of the server heals.
func lasting(r status.Reason) bool { return r == status.RequestCrashes || r == status.SequenceEnded }

// errorText returns the text of an error response.
func errorText(body []byte) string {
	var e struct{ Error string }
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		return "the model is not available"
	}
	return e.Error
}

// ended is the error of an attempt: the request was cancelled, or the worker stops, or the attempt is repeated.
func (w *Worker) ended(ctx context.Context, o *order, err error) error {
	switch {
	case stopping(ctx):
		return temporal.NewApplicationError(errStopping.Error(), errWaits)
	case temporal.IsCanceledError(context.Cause(ctx)):
		_ = w.records.remove(context.WithoutCancel(ctx), o.ID+kindRequest) // else it is swept
		return ctx.Err()
	case ctx.Err() != nil: // Temporal could not be reached, or took the attempt for lost: another one needs the stored request
		return temporal.NewApplicationError(engine.Text("the attempt was lost: "+context.Cause(ctx).Error()), errWaits)
	case temporal.IsApplicationError(err):
		return err
	}
	return temporal.NewApplicationError(engine.Text(err.Error()), errWaits)
}

// fatal ends the activity.
func fatal(err error) error {
	return temporal.NewNonRetryableApplicationError(engine.Text(err.Error()), errFatal, nil)
}

// reason returns the text of an activity's failure without Temporal's additions.
func reason(err error) string {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &app):
		return app.Message()
	case errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT:
		return "the worker was lost"
	}
	return err.Error()
}

// startCallback starts the activity of a callback, once.
func (w *Worker) startCallback(ctx context.Context, done *storedResponse) error {
	_, err := w.s.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: callbackID(done.ID), TaskQueue: w.s.callbackQueue(w.store),
		ScheduleToCloseTimeout: w.s.Keep, StartToCloseTimeout: 2 * callbackTimeout,
		ActivityIDReusePolicy: enums.ACTIVITY_ID_REUSE_POLICY_REJECT_DUPLICATE,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: w.retry, BackoffCoefficient: 2, MaximumInterval: 10 * time.Minute, NonRetryableErrorTypes: []string{errFatal},
		},
	}, activityCallback, &done.order)
	if _, exists := errors.AsType[*serviceerror.ActivityExecutionAlreadyStarted](err); exists {
		return nil
	}
	return err
}

// beat sends heartbeats until end is called. The context ends when the request was cancelled, when the attempt has timed out,
// and when the worker stops and does not wait any more.
func beat(ctx context.Context) (_ context.Context, end func()) {
	inner, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			activity.RecordHeartbeat(ctx)
			if !pause(inner, beatEvery) {
				return
			}
		}
	}()
	return inner, func() { cancel(); <-ended }
}

// stopping reports whether the worker of an activity stops.
func stopping(ctx context.Context) bool {
	select {
	case <-activity.GetWorkerStopChannel(ctx):
		return true
	default:
		return false
	}
}
