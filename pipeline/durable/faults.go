package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/pipeline/engine"
)

// errStopping ends the chunks of a worker that stops. Another worker continues them.
var errStopping = errors.New("the worker stops")

// fault turns the error of an activity into one of Temporal: errFatal for what cannot pass without a change of the job, its
// dataset or its model, and errWaits for everything else, which is tried again.
func fault(err error) error {
	if err == nil || temporal.IsApplicationError(err) || errors.Is(err, context.Canceled) {
		return err
	}
	switch status.CodeOf(err) {
	case status.InvalidArg, status.Unsupported, status.NotFound, status.AlreadyExists:
		return fatal(err)
	default:
		return waits(err)
	}
}

// fatal ends the job.
func fatal(err error) error {
	return temporal.NewNonRetryableApplicationError(text(err), errFatal, nil)
}

// waits has the activity tried again.
func waits(err error) error { return temporal.NewApplicationError(text(err), errWaits) }

func text(err error) string { return engine.Text(cmp.Or(err.Error(), status.CodeOf(err).String())) }

// ofRow reports whether an error of a request is the fault of its rows: they fail, and the job goes on. All others pass:
// the model is being loaded, its queue is full, or a step cannot be reached. Rows that end the process of the model again and again are at fault.
func ofRow(err error) bool {
	switch why := status.DetailsOf(err); {
	case why.Reason == status.RequestCrashes:
		return true
	case why.Retryable:
		return false
	}
	switch status.CodeOf(err) {
	case status.Unavailable, status.Cancelled, status.NotFound, status.ResourceExhausted:
		return false
	}
	return true
}

// otherModel is the error of a worker whose model has another content than the job was started with.
func otherModel(model string, version int64, have, want, worker, policy string) error {
	e := fmt.Errorf("worker '%s' serves version %d of model '%s' with the content %s, and the job was started with %s", worker, version, model, short(have), short(want))
	if policy == otherFail {
		return fatal(e)
	}
	return temporal.NewApplicationError(e.Error()+"; it waits for a worker with that content", errOther)
}

// short returns the begin of a fingerprint.
func short(fingerprint string) string { return fingerprint[:min(len(fingerprint), 12)] }
