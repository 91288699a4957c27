package repository

import (
	"context"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
)

var _ infer.Inferer = (*Repository)(nil)

// Submit passes req to the executor of its model and version. If that version retires in between, Submit looks it
// up again, at most once per change.
//
// hot: no lock, one map lookup.
func (r *Repository) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	for {
		v, err := r.find(req.Model, req.Version)
		if err != nil {
			if req.Trace == nil {
				r.s.Tracer.RecordRefusal(req.Model, 0, req.ID, &req.Origin, err)
			}
			req.Trace.Fail(err)
			req.Release()
			sink.Close(err)
			return
		}
		if req.Trace == nil {
			req.Trace = r.s.Tracer.SampleFrom(req.Model, v.sig.Version, req.ID, &req.Origin)
			if r.s.Tracer.Capturing() {
				req.Trace = r.s.Tracer.Capture(req.Trace, req.Model, v.sig.Version, req.ID, &req.Origin)
			}
			if req.Trace != nil {
				r.describe(req)
			}
		}
		if v.responseCache != nil {
			if v.responseCache.Offer(ctx, req, sink) {
				return
			}
		} else if v.exec.Offer(ctx, req, sink) {
			return
		}
	}
}

// describe records the request's origin and the selected parameters in its trace.
func (r *Repository) describe(req *infer.Request) {
	req.Trace.SetOrigin(&req.Origin)
	for _, key := range r.s.Tracer.Params() {
		for i := range req.Params {
			if p := &req.Params[i]; p.Key == key {
				req.Trace.Param(key, paramText(p))
			}
		}
	}
}

// paramText formats a parameter's value.
func paramText(p *infer.Param) string {
	switch p.Kind {
	case infer.ParamBool:
		return strconv.FormatBool(p.Bool)
	case infer.ParamInt:
		return strconv.FormatInt(p.Int, 10)
	case infer.ParamUint:
		return strconv.FormatUint(p.Uint, 10)
	case infer.ParamDouble:
		return strconv.FormatFloat(p.Double, 'g', -1, 64)
	case infer.ParamString:
	}
	return p.String
}
