package openvino

/*
#cgo noescape tov_run
#cgo nocallback tov_run
#include "shim.h"
*/
import "C"

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

const (
	// shortRun is how long an execution may take that nobody stops: watching it would cost more than its rest.
	shortRun = time.Millisecond
	// cancelEvery is how often stopping is asked for until the execution is over: a request that has not begun yet
	// does not hear it.
	cancelEvery = time.Millisecond
)

// run infers once. It stops between two nodes of the graph when ctx ends, unless the model's executions are short.
func (x *instance) run(ctx context.Context) error {
	start := time.Now()
	var e C.tov_error
	if ctx.Done() != nil && x.m.slow.Load() {
		e = x.watched(ctx)
	} else {
		e = C.tov_run(x.call)
	}
	if slow := time.Since(start) > shortRun; slow != x.m.slow.Load() {
		x.m.slow.Store(slow)
	}
	if e.text == nil {
		return nil
	}
	err := check(e)
	if ctx.Err() != nil {
		return status.ErrCancelled
	}
	return status.Errorf(status.CodeOf(err), "model '%s': %w", x.m.binding.Sig.Model, err)
}

// watched is tov_run, stopped when ctx ends.
func (x *instance) watched(ctx context.Context) C.tov_error {
	over, left := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		x.cancel(over)
	})
	e := C.tov_run(x.call)
	close(over)
	if !stop() {
		<-left // or it would stop the next execution
	}
	return e
}

// cancel asks the request to stop until it is over.
func (x *instance) cancel(over <-chan struct{}) {
	tick := time.NewTicker(cancelEvery)
	defer tick.Stop()
	for {
		C.tov_cancel(x.call)
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}
