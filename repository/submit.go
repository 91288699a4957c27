package repository

import (
	"context"

	"tutti/core/infer"
)

var _ infer.Inferer = (*Repository)(nil)

// Submit hands req to the executor of its model and version. A version that retires
// between finding it and handing over is out of the next snapshot, so this looks
// again at most once per change.
//
// hot: no lock, one map lookup.
func (r *Repository) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	for {
		v, err := r.find(req.Model, req.Version)
		if err != nil {
			req.Release()
			sink.Close(err)
			return
		}
		if req.Trace == nil {
			req.Trace = r.s.Tracer.Sample(req.Model, v.sig.Version, req.ID)
		}
		if v.recall != nil {
			if v.recall.Offer(ctx, req, sink) {
				return
			}
		} else if v.exec.Offer(ctx, req, sink) {
			return
		}
	}
}
