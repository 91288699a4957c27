package exec

import (
	"tutti/core/tracing"
	"tutti/pipeline/plan"
	"tutti/scheduler"
)

// traceStart records that a traced request begins.
func (r *run) traceStart() {
	trace := r.req.Trace
	trace.Serve(r.x.plan.Signature.Version)
	trace.Stamp(tracing.RequestStart, r.started)
	if r.x.plan.Ensemble {
		trace.Stamp(tracing.QueueStart, r.started)
	}
}

// traceStep records one execution: as the request's own, or as a child of an
// ensemble's. One that failed may not have come further than the queue, one whose answer was kept
// never came further.
func (r *run) traceStep(n *plan.Node, w *scheduler.Work, now int64) {
	trace := r.req.Trace
	if r.x.plan.Ensemble {
		trace = trace.Child(n.Signature.Model, n.Signature.Version)
		trace.Stamp(tracing.RequestStart, w.Enqueued)
	}
	trace.Stamp(tracing.QueueStart, w.Enqueued)
	if w.Err == nil && !w.Cached {
		trace.Stamp(tracing.ComputeStart, w.Times.Start)
		trace.Stamp(tracing.ComputeInputEnd, w.Times.InputEnd)
		trace.Stamp(tracing.ComputeOutputStart, w.Times.InferEnd)
		trace.Stamp(tracing.ComputeEnd, w.Times.End)
	}
	if r.x.plan.Ensemble {
		trace.Stamp(tracing.RequestEnd, now)
		trace.End()
	}
}
