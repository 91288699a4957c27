package repository

import (
	"context"

	"tutti/core/infer"
)

var _ infer.Inferer = (*Repository)(nil)

// Submit hands req to the executor of its model and version.
//
// hot: one map lookup.
func (r *Repository) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	v, err := r.find(req.Model, req.Version)
	if err != nil {
		req.Release()
		sink.Close(err)
		return
	}
	v.exec.Submit(ctx, req, sink)
}
