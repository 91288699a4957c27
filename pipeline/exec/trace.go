package exec

import (
	"errors"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// traceStart records that a traced request begins.
func (r *run) traceStart() {
	trace := r.req.Trace
	p := r.x.plan
	trace.SetModel(p.Signature.Version, p.Ensemble)
	trace.Stamp(tracing.RequestStart, r.started)
	if p.Ensemble {
		trace.Stamp(tracing.QueueStart, r.started)
	}
	if trace.Tensors() {
		r.traceNamed(false, r.req.Inputs)
	}
}

// traceNamed records the tensors of the request or of a response.
func (r *run) traceNamed(output bool, list []infer.Named) {
	for i := range list {
		r.traceTensor(output, -1, 0, list[i].Name, &list[i].Tensor)
	}
}

// tracePorts records the tensors of an ensemble's step. Those of a plain model are the
// request's and the response's.
func (r *run) tracePorts(output bool, task *scheduler.Task, list []tensor.Tensor, ports []config.Port) {
	if !r.x.plan.Ensemble {
		return
	}
	for i := range min(len(list), len(ports)) {
		r.traceTensor(output, r.x.first+task.Node, r.subNumber(), ports[i].Name, &list[i])
	}
}

// traceTensor records a tensor. It copies one on a device to the host and waits for it, since
// traces with tensors are not made for speed.
func (r *run) traceTensor(output bool, node, subRun int32, name string, x *tensor.Tensor) {
	if !x.Present() {
		return
	}
	t := x.Retain()
	defer t.Release()
	err := batch.Arrived(&t)
	if t.Buf.Place().Kind == tensor.Device {
		err = r.x.mover.ToHost(&t, batch.Note{Ledger: &telemetry.Ledger{}, Tensor: name})
		if err == nil {
			err = batch.Arrived(&t)
		}
	}
	if err == nil {
		r.req.Trace.Tensor(output, node, subRun, name, &t)
	}
}

// traceReady starts the record of a task whose inputs have all arrived.
func (r *run) traceReady(task *scheduler.Task, after int32, now int64) {
	task.Traced = &r.traced[task.Node]
	*task.Traced = scheduler.TaskTrace{Trace: r.req.Trace, Ready: now, After: after, SubRun: r.subNumber()}
	if r.req.Trace.Tensors() {
		r.tracePorts(false, task, task.In, r.x.plan.Nodes[task.Node].Signature.Inputs)
	}
}

// traceTask records one execution, or why there was none, and its outputs.
func (r *run) traceTask(task *scheduler.Task, now int64) {
	n := &r.x.plan.Nodes[task.Node]
	if task.Err == nil && r.req.Trace.Tensors() {
		defer r.tracePorts(true, task, task.Out, n.Signature.Outputs)
	}
	s := tracing.Step{
		Node: task.Step, After: task.Traced.After, SubRun: r.subNumber(),
		Model: n.Signature.Model, Version: n.Signature.Version, Single: !r.x.plan.Ensemble,
		Cached: task.Cached, Failed: task.Err != nil,
		Ready: task.Traced.Ready, Enqueued: task.Enqueued, Done: now, Execution: task.Traced.Execution,
	}
	if s.Batch != 0 {
		s.Start, s.InputEnd, s.InferEnd, s.End = task.Times.Start, task.Times.InputEnd, task.Times.InferEnd, task.Times.End
	}
	switch {
	case task.Err != nil:
		s.Code = status.CodeOf(task.Err)
		if s.Batch == 0 {
			task.Traced.Trace.Event(&tracing.Event{Kind: fate(task.Err), At: now, Node: s.Node, Reason: status.Text(task.Err)})
		}
	case task.Cached:
		task.Traced.Trace.Event(&tracing.Event{Kind: tracing.EventCacheHit, At: now, Node: s.Node})
	}
	task.Traced.Trace.Step(&s)
}

// fate returns how a task ended that was not executed.
func fate(err error) tracing.EventKind {
	switch {
	case errors.Is(err, status.ErrDeadline):
		return tracing.EventDeadline
	case status.CodeOf(err) == status.Cancelled:
		return tracing.EventCancelled
	}
	return tracing.EventRefused
}

// traceSubRun records that a response of a decoupled step has started a sub-run.
func (r *run) traceSubRun() {
	if r.req.Trace != nil {
		r.req.Trace.Event(&tracing.Event{Kind: tracing.EventSubRun, At: telemetry.Now(), Node: r.origin()})
	}
}

// traceEnd records how a traced request ended, or that another one failed.
func (r *run) traceEnd(err error) {
	if r.req.Trace == nil {
		r.x.tracer.RecordFailure(r.req.Model, r.x.plan.Signature.Version, r.req.ID, r.started, &r.req.Origin, err)
		return
	}
	r.req.Trace.Fail(err)
	if err != nil && status.CodeOf(err) != status.Cancelled {
		r.req.Trace.Mark(tracing.InferResponseComplete) // the response that says so
	}
	r.req.Trace.Stamp(tracing.RequestEnd, telemetry.Now())
}
