package exec

import (
	"log/slog"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// finish ends a run without active tasks. It wakes the goroutine that waits in infer.Call.Wait, which calls End; if there
// is none, it calls End itself.
func (r *run) finish(loop *scheduler.RunLoop) {
	switch {
	case r.group.parent != nil:
		r.finishGroup(loop)
		return
	case r.root != r:
		r.finishSubRun(loop)
		return
	}
	r.ended = loop.Now()
	if c, ok := r.sink.(*infer.Call); ok && loop.WakeWaiter(c, r) {
		return
	}
	r.End()
}

// End sends the response, or reports the failure, and closes the run.
func (r *run) End() {
	var err error
	if f := r.failure.Load(); f != nil {
		err = f.err
	}
	switch {
	case err != nil:
	case r.early.on:
		err = r.respondLast()
	case r.sub == nil || r.sub.responds == 0:
		err = r.respond()
	}
	if r.settle() {
		r.ended = telemetry.Now() // the devices' time is the request's too
	}
	if r.req.Probe {
		r.x.forecast.probed(&r.req.Meta, r.ended, err)
	}
	switch took := r.ended - r.started; {
	case !r.x.plan.Ensemble:
	case err == nil:
		r.x.stats.SucceededSum(int(r.rows), r.started, r.ended, &telemetry.Sums{
			Input: r.sums.Input.Load(), Infer: r.sums.Infer.Load(), Output: r.sums.Output.Load(),
		})
	case status.CodeOf(err) == status.Cancelled:
		r.x.stats.Failed(telemetry.Canceled, took)
	default:
		r.x.stats.Failed(telemetry.Other, took)
	}
	r.countDeadline(r.ended, err)
	r.close(err)
}

// countDeadline counts how an ensemble's request with a deadline ended, and how well that was predicted.
//
// hot: one comparison without a deadline.
func (r *run) countDeadline(ended int64, err error) {
	d := r.req.Deadline
	if d == 0 || !r.x.plan.Ensemble || r.x.stats == nil {
		return
	}
	s := r.x.stats
	if err == nil {
		s.Slack(d - ended)
		if r.predicted > 0 {
			s.Predicted(ended-r.started, r.predicted)
		}
		if ended <= d {
			s.Due(telemetry.InTime)
		} else {
			s.Due(telemetry.Late)
		}
		return
	}
	switch why := status.DetailsOf(err); {
	case status.MissesDeadline(err) && why.Finish == 0: // it has expired
		s.Due(telemetry.Late)
	case status.CodeOf(err) == status.Cancelled: // its client does not wait any more
	case status.MissesDeadline(err), why.Reason == status.QueueFull, why.Reason == status.QueueTimeout:
		s.Due(telemetry.Refused)
	default:
		s.Due(telemetry.Unsuccessful)
	}
}

// sendResponse moves a response to the client.
func (r *run) sendResponse(resp *infer.Response, final bool) {
	resp.Final = final
	if r.req.Trace != nil {
		resp.Trace = r.req.Trace.Hold()
		if resp.Trace.Tensors() {
			r.traceNamed(true, resp.Outputs)
		}
		resp.Trace.Stamp(tracing.InferResponseComplete, telemetry.Now())
	}
	r.sink.Send(resp)
}

// send sends one response of a decoupled model, with the requested outputs.
func (r *run) send(task *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	defer tensor.ReleaseAll(out)
	if err := r.pace(task); err != nil {
		return err
	}
	if !r.responded && r.x.stats != nil {
		r.responded = true
		r.x.stats.Responded(telemetry.Now() - r.started)
	}
	if r.x.plan.Nodes[0].Reshape {
		toRequest(out, r.x.plan.Signature.Outputs)
	}
	if f := r.req.Trace.Snapshot(); f != nil {
		r.captureResponse(f, out)
	}
	resp := newResponse(r.x.plan, r.req.ID, r.meta().Sequence)
	resp.Params = append(resp.Params, params...)
	for _, o := range r.outputs {
		if out[o].Present() {
			resp.Outputs = append(resp.Outputs, infer.Named{Name: r.x.plan.Signature.Outputs[o].Name, Tensor: out[o].Move()})
		}
	}
	if err := r.copyOut(resp); err != nil {
		resp.Release()
		return err
	}
	r.sendResponse(resp, final)
	return nil
}

// respond sends the requested outputs that exist. A decoupled model without outputs has sent its responses before.
func (r *run) respond() error {
	resp, err := r.response()
	switch {
	case err != nil:
		return err
	case r.x.plan.Signature.Decoupled && !r.x.plan.Ensemble && len(resp.Outputs) == 0:
		resp.Release()
	default:
		r.sendResponse(resp, true)
	}
	return nil
}

// response returns the response with the requested outputs, taken from their slots.
func (r *run) response() (*infer.Response, error) { return r.responseOf(r.outputs) }

// responseOf returns a response with some outputs.
func (r *run) responseOf(outputs []int32) (*infer.Response, error) {
	p := r.x.plan
	resp := newResponse(r.x.plan, r.req.ID, r.meta().Sequence)
	resp.Params = append(append(resp.Params, r.responseParams...), r.told...)
	for _, o := range outputs {
		port := &p.Signature.Outputs[o]
		name, dims := port.Name, &port.Dims
		t := r.read(p.Outputs[o])
		if !t.Present() {
			if p.Ensemble && r.x.log != nil { // steps may leave outputs out
				//nolint:sloglint // the line is Triton's, which people look for
				r.x.log.DebugContext(r.ctx, "Composing models did not output tensor "+name,
					slog.String("ensemble", p.Signature.Model), slog.String("request", r.req.ID))
			}
			continue
		}
		if port.Reshape != nil {
			dims = &port.Reshape.Dims
		}
		if p.OutputRuntime != nil && p.OutputRuntime[o] != plan.Declared {
			fitUnchecked(&t, p.OutputRuntime[o], dims)
		} else if p.OutputRules != nil && !fit(&t, p.OutputRules[o]) {
			err := status.Errorf(status.InvalidArg, "in ensemble '%s', output '%s' of shape %s cannot lose its batch dimension, which the ensemble does not have",
				p.Signature.Model, name, t.Shape)
			t.Release()
			resp.Release()
			return nil, err
		}
		if p.Reshape && port.Reshape != nil && port.Reshape.OfModel(&t.Shape) {
			port.Reshape.ToRequest(&t.Shape)
		}
		resp.Outputs = append(resp.Outputs, infer.Named{Name: name, Tensor: t})
	}
	if err := r.copyOut(resp); err != nil {
		resp.Release()
		return nil, err
	}
	return resp, nil
}

// copyOut copies tensors into device memory of the client where it has some for them, and the response's other device tensors to host
// memory, unless the request keeps their places. It starts every copy before it waits for the first. It may block; a replacement worker
// runs meanwhile. An ensemble's request is counted after the last copy. Its recorded duration ends before the copies, unless a device
// measured one of its steps.
//
// hot: one load while there is no device.
func (r *run) copyOut(resp *infer.Response) error {
	m, late := r.x.mover, false
	if m.Idle() {
		return nil
	}
	var few [4]tensor.Event
	written := few[:0]
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		note := batch.Note{Ledger: &r.x.stats.Copies, Tensor: o.Name, Reason: telemetry.ForResponse, Trace: r.req.Trace}
		if dst := r.req.Target(o.Name); dst != nil {
			e, err := r.copyInto(dst, o, note)
			if err != nil {
				return err
			}
			written = append(written, e)
			late = late || !e.Done()
			continue
		}
		if r.req.KeepPlaces {
			continue // the sink waits for what is at a device
		}
		if err := m.ToHost(&o.Tensor, note); err != nil {
			return r.copyError(o.Name, "the host", err)
		}
		late = late || batch.Pending(&o.Tensor)
	}
	if late {
		r.x.workers.Reserve(1)
		defer r.x.workers.Reserve(-1)
	}
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		if err := batch.WaitOnHost(&o.Tensor); err != nil {
			return r.copyError(o.Name, "the host", err)
		}
	}
	for _, e := range written {
		if err := e.Wait(); err != nil {
			return status.Prefixf(err, "outputs of model '%s' cannot be copied to the client's memory: ", r.x.plan.Signature.Model)
		}
	}
	return nil
}

// copyInto starts to copy an output into device memory of the client, and returns the event after which it is there.
func (r *run) copyInto(dst *tensor.Buffer, o *infer.Named, note batch.Note) (tensor.Event, error) {
	if o.Tensor.Len > dst.Len() {
		return nil, shm.ErrOutputSize(o.Name, uint64(dst.Len()), uint64(o.Tensor.Len))
	}
	e, err := r.x.mover.Into(dst, &o.Tensor, note)
	if err != nil {
		return nil, r.copyError(o.Name, "the client's memory at "+dst.Place().String(), err)
	}
	return e, nil
}

func (r *run) copyError(output, to string, err error) error {
	return status.Prefixf(err, "output '%s' of model '%s' cannot be copied to %s: ", output, r.x.plan.Signature.Model, to)
}

// params are the parameters that steps returned with their tensors.
type params struct {
	// override replaces the request's Meta for the steps that follow; nil unless a step returned sequence parameters.
	override       atomic.Pointer[infer.Meta]
	responseParams infer.Params // of a plain model's response
}

// meta returns the parameters that the steps which start now receive.
func (r *run) meta() *infer.Meta {
	if m := r.override.Load(); m != nil {
		return m
	}
	return &r.req.Meta
}

// resequence replaces the request's sequence parameters. Steps that have started keep theirs: a Meta never changes.
func (r *run) resequence(params infer.Params) {
	m := *r.meta()
	for i := range params {
		switch p := &params[i]; p.Key {
		case "sequence_id":
			m.Sequence.ID, m.Sequence.Name = 0, ""
			switch p.Kind { // clients use any of these types for it
			case infer.ParamInt:
				m.Sequence.ID = uint64(max(p.Int, 0)) //nolint:gosec // not negative
			case infer.ParamUint:
				m.Sequence.ID = p.Uint
			case infer.ParamString:
				m.Sequence.Name = p.String
			case infer.ParamBool, infer.ParamDouble:
			}
		case "sequence_start":
			m.Sequence.Start = p.Bool
		case "sequence_end":
			m.Sequence.End = p.Bool
		}
	}
	if m.Sequence != r.meta().Sequence {
		r.override.Store(&m)
	}
}
