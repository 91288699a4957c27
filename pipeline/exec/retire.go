package exec

import (
	"context"

	"github.com/tutti-server/tutti/core/infer"
)

// Offer is Submit for an executor that may retire meanwhile. false: it has, and req
// and sink are still the caller's. A request counts itself in before it looks, and
// Retire is called before anybody waits with Drain, so that whoever sees no request
// under way then will never see one.
//
// hot: no allocation in the steady state.
func (x *Executor) Offer(ctx context.Context, req *infer.Request, sink infer.Sink) bool {
	x.pending.Add(1)
	if x.retired.Load() {
		x.pending.Add(-1)
		return false
	}
	x.submit(ctx, req, sink)
	return true
}

// Retire has Offer refuse from now on; what is under way goes on.
func (x *Executor) Retire() { x.retired.Store(true) }
