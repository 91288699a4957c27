package exec

import (
	"errors"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// traceStart records that a traced request begins.
func (r *run) traceStart() {
	trace := r.req.Trace
	p := r.x.plan
	trace.Serve(p.Signature.Version, p.Ensemble)
	trace.Stamp(tracing.RequestStart, r.started)
	if p.Ensemble {
		trace.Stamp(tracing.QueueStart, r.started)
	}
	if trace.Tensors() {
		r.traceNamed(false, r.req.Inputs)
	}
}

// traceNamed records the tensors of the request or of an answer.
func (r *run) traceNamed(output bool, list []infer.Named) {
	for i := range list {
		r.traceTensor(output, -1, 0, list[i].Name, &list[i].Tensor)
	}
}

// tracePorts records the tensors of a step of an ensemble; a plain model's are the request's.
func (r *run) tracePorts(output bool, w *scheduler.Task, list []tensor.Tensor, ports []config.Port) {
	if !r.x.plan.Ensemble {
		return
	}
	for i := range min(len(list), len(ports)) {
		r.traceTensor(output, r.x.first+w.Node, r.wave.number, ports[i].Name, &list[i])
	}
}

// traceTensor records a tensor, of which it brings a copy to the host if need be and
// waits for it: whoever asks for tensors does not ask for speed.
func (r *run) traceTensor(output bool, node, wave int32, name string, x *tensor.Tensor) {
	if !x.Present() {
		return
	}
	t := x.Retain()
	defer t.Release()
	err := scheduler.Arrived(&t)
	if t.Buf.Place().Kind == tensor.Device {
		err = r.x.mover.ToHost(&t, scheduler.Note{Ledger: &telemetry.Ledger{}, Tensor: name})
		if err == nil {
			err = scheduler.Arrived(&t)
		}
	}
	if err == nil {
		r.req.Trace.Tensor(output, node, wave, name, &t)
	}
}

// traceStep records one execution, or why there was none.
func (r *run) traceStep(n *plan.Node, w *scheduler.Task, now int64) {
	s := tracing.Step{
		Node: w.Step, After: w.Traced.After, Wave: r.wave.number,
		Model: n.Signature.Model, Version: n.Signature.Version, Own: !r.x.plan.Ensemble,
		Cached: w.Cached, Failed: w.Err != nil,
		Ready: w.Traced.Ready, Enqueued: w.Enqueued, Done: now, Execution: w.Traced.Execution,
	}
	if s.Batch != 0 {
		s.Start, s.InputEnd, s.InferEnd, s.End = w.Times.Start, w.Times.InputEnd, w.Times.InferEnd, w.Times.End
	}
	switch {
	case w.Err != nil:
		s.Code = status.CodeOf(w.Err)
		if s.Batch == 0 {
			w.Traced.Trace.Event(&tracing.Event{Kind: fate(w.Err), At: now, Node: s.Node, Reason: status.Text(w.Err)})
		}
	case w.Cached:
		w.Traced.Trace.Event(&tracing.Event{Kind: tracing.EventCacheHit, At: now, Node: s.Node})
	}
	w.Traced.Trace.Step(&s)
}

// fate says how a work ended that was not executed.
func fate(err error) tracing.EventKind {
	switch {
	case errors.Is(err, status.ErrDeadline):
		return tracing.EventDeadline
	case status.CodeOf(err) == status.Cancelled:
		return tracing.EventCancelled
	}
	return tracing.EventRefused
}

// traceWave records that an answer of a decoupled step has started a wave.
func (r *run) traceWave() {
	if r.req.Trace != nil {
		r.req.Trace.Event(&tracing.Event{Kind: tracing.EventWave, At: telemetry.Now(), Node: r.wave.up.x.first + r.wave.up.x.part.Producer})
	}
}

// traceEnd records how a traced request ended, or that another one failed.
func (r *run) traceEnd(err error) {
	if r.req.Trace == nil {
		r.x.tracer.Missed(r.req.Model, r.x.plan.Signature.Version, r.req.ID, r.started, &r.req.Origin, err)
		return
	}
	r.req.Trace.Fail(err)
	if err != nil && status.CodeOf(err) != status.Cancelled {
		r.req.Trace.Mark(tracing.InferResponseComplete) // the response that says so
	}
	r.req.Trace.Stamp(tracing.RequestEnd, telemetry.Now())
}
