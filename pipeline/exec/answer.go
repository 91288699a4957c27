package exec

import (
	"log/slog"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// answer ends the request; where a client waits for it, the client does so itself.
func (r *run) answer(t *scheduler.RunLoop) {
	if r.root != r {
		r.crest(t)
		return
	}
	r.ended = t.Now()
	if c, ok := r.sink.(*infer.Call); ok && t.Respond(c, r) {
		return
	}
	r.End()
}

// End sends the response or the failure.
func (r *run) End() {
	var err error
	if f := r.failure.Load(); f != nil {
		err = f.err
	}
	if err == nil && r.depth == 0 {
		err = r.respond()
	}
	if r.x.plan.Ensemble {
		r.count(r.ended, err)
	}
	r.end(err)
}

func (r *run) count(now int64, err error) {
	switch {
	case err == nil:
		if d := r.meta().Deadline; d > 0 {
			r.x.stats.Slack(d - now)
		}
		r.x.stats.SucceededSum(int(r.rows), r.started, now, &telemetry.Sums{
			Input: r.input.Load(), Infer: r.infer.Load(), Output: r.output.Load(),
		})
	case status.CodeOf(err) == status.Cancelled:
		r.x.stats.Failed(telemetry.Canceled, now-r.started)
	default:
		r.x.stats.Failed(telemetry.Other, now-r.started)
	}
}

func (r *run) newResponse() *infer.Response {
	resp := newResponse(r.x.plan, r.req.ID)
	if resp.Ensemble {
		resp.Sequence = r.meta().Sequence
	}
	return resp
}

// give moves an answer to the client.
func (r *run) give(resp *infer.Response, final bool) {
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

// send sends one answer of a decoupled model, with those of its outputs that are wanted.
func (r *run) send(w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	defer tensor.ReleaseAll(out)
	if err := r.pace(w); err != nil {
		return err
	}
	if !r.sent && r.x.stats != nil {
		r.sent = true
		r.x.stats.Responded(telemetry.Now() - r.started)
	}
	if r.x.plan.Nodes[0].Reshape {
		toRequest(out, r.x.plan.Signature.Outputs)
	}
	if f := r.req.Trace.Film(); f != nil {
		r.captureAnswer(f, out)
	}
	resp := r.newResponse()
	resp.Params = append(resp.Params, params...)
	for _, o := range r.outputs {
		if out[o].Present() {
			resp.Outputs = append(resp.Outputs, infer.Named{Name: r.x.plan.Signature.Outputs[o].Name, Tensor: out[o].Move()})
		}
	}
	if err := r.home(resp); err != nil {
		resp.Release()
		return err
	}
	r.give(resp, final)
	return nil
}

// respond sends the wanted outputs; an output that its step left out is left out. A
// decoupled model that left out all of them has sent its answers before.
func (r *run) respond() error {
	resp, err := r.response()
	switch {
	case err != nil:
		return err
	case r.x.plan.Signature.Decoupled && !r.x.plan.Ensemble && len(resp.Outputs) == 0:
		resp.Release()
	default:
		r.give(resp, true)
	}
	return nil
}

// response returns the answer with the wanted outputs, taken from their slots.
func (r *run) response() (*infer.Response, error) {
	p := r.x.plan
	resp := r.newResponse()
	resp.Params = append(resp.Params, r.reply...)
	for _, o := range r.outputs {
		port := &p.Signature.Outputs[o]
		name, dims := port.Name, &port.Dims
		t := r.read(p.Outputs[o])
		if !t.Present() {
			r.leftOut(name)
			continue
		}
		if port.Reshape != nil {
			dims = &port.Reshape.Dims
		}
		if p.OutputFree != nil && p.OutputFree[o] != plan.Fixed {
			fitFree(&t, p.OutputFree[o], dims)
		} else if p.OutputFit != nil && !fit(&t, p.OutputFit[o]) {
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
	if err := r.home(resp); err != nil {
		resp.Release()
		return nil, err
	}
	return resp, nil
}

// leftOut logs that an ensemble's response is without an output, which its client may
// miss: steps may leave outputs out.
func (r *run) leftOut(output string) {
	if r.x.plan.Ensemble && r.x.log != nil {
		//nolint:sloglint // the line is Triton's, which people look for
		r.x.log.DebugContext(r.ctx, "Composing models did not output tensor "+output,
			slog.String("ensemble", r.x.plan.Signature.Model), slog.String("request", r.req.ID))
	}
}
