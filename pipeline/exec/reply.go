package exec

import (
	"github.com/tutti-server/tutti/core/infer"
)

// meta is what the steps that start now learn of the request.
func (r *run) meta() *infer.Meta {
	if m := r.override.Load(); m != nil {
		return m
	}
	return &r.req.Meta
}

// replied takes the parameters of a step's answer: a plain model's go to the client,
// in an ensemble those of the sequence are for the steps that follow and the answer.
func (r *run) replied(params infer.Params) {
	if !r.x.plan.Ensemble {
		r.reply = params
		return
	}
	r.resequence(params)
}

// resequence puts the sequence parameters of a step's answer in the place of the
// request's. What has started keeps the ones it was given, so they are never changed.
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
