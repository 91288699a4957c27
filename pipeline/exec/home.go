package exec

import (
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// home brings the tensors of an answer to the host, where clients read them. All
// copies are under way before the first is waited for. Whoever waits is likely a worker,
// for which another one stands in meanwhile: the answer counts, with its time, once it
// is there.
//
// hot: one load while there is no device.
func (r *run) home(resp *infer.Response) error {
	m, late := r.x.mover, false
	if m.Idle() {
		return nil
	}
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		if err := m.ToHost(&o.Tensor, scheduler.Note{Ledger: &r.x.stats.Moves, Tensor: o.Name, Reason: telemetry.ForResponse, Trace: r.req.Trace}); err != nil {
			return r.stranded(o.Name, err)
		}
		late = late || scheduler.Late(&o.Tensor)
	}
	if late {
		r.x.workers.Reserve(1)
		defer r.x.workers.Reserve(-1)
	}
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		if err := scheduler.Arrived(&o.Tensor); err != nil {
			return r.stranded(o.Name, err)
		}
	}
	return nil
}

func (r *run) stranded(output string, err error) error {
	return status.Errorf(status.Internal, "output '%s' of model '%s' cannot be copied to the host: %w", output, r.x.plan.Signature.Model, err)
}
