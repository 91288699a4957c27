package exec

import (
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
)

// params are the parameters that steps returned with their tensors.
type params struct {
	// override replaces the request's Meta for the steps that follow; nil unless a step
	// returned sequence parameters.
	override       atomic.Pointer[infer.Meta]
	responseParams infer.Params // of a plain model's response
}

func (p *params) reset() {
	if p.override.Load() != nil {
		p.override.Store(nil)
	}
	p.responseParams = nil
}

// meta returns the parameters that the steps which start now receive.
func (r *run) meta() *infer.Meta {
	if m := r.override.Load(); m != nil {
		return m
	}
	return &r.req.Meta
}

// keepParams keeps the parameters of a step's response. Those of a plain model are sent to the
// client. In an ensemble those of the sequence apply to the steps that follow and to the
// response.
func (r *run) keepParams(params infer.Params) {
	if !r.x.plan.Ensemble {
		r.responseParams = params
		return
	}
	r.resequence(params)
}

// resequence replaces the request's sequence parameters by those of a step's response. Steps
// that have started keep theirs, so a Meta never changes.
func (r *run) resequence(params infer.Params) {
	m := *r.meta()
	for i := range params {
		switch p := &params[i]; p.Key {
		case "sequence_id":
			resequence(&m.Sequence, p)
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

// resequence sets the id, which may be of any type that clients use for it.
func resequence(s *infer.Sequence, p *infer.Param) {
	s.ID, s.Name = 0, ""
	switch p.Kind {
	case infer.ParamInt:
		s.ID = uint64(max(p.Int, 0)) //nolint:gosec // not negative
	case infer.ParamUint:
		s.ID = p.Uint
	case infer.ParamString:
		s.Name = p.String
	case infer.ParamBool, infer.ParamDouble:
	}
}
