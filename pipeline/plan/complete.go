package plan

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// complete fills in the types and dims that an ensemble does not declare from those of its
// steps and, when it declares no dims at all, max_batch_size. The steps' models must be known,
// and nested ensembles complete.
func (l *level) complete() {
	l.decouple()
	if len(config.CheckComplete(l.cfg)) == 0 {
		return
	}
	l.cfg = proto.CloneOf(l.cfg)
	if l.cfg.MaxBatchSize == 0 && l.dimless() {
		l.cfg.MaxBatchSize = l.maxBatch()
	}
	stepPorts := l.stepPorts()
	for _, in := range l.cfg.Input {
		if t := stepPorts[in.Name]; t != nil {
			// An input without a declaration is optional when all steps that read it allow that.
			in.Optional = in.Optional || t.optional && in.DataType == modelconfig.DataType_TYPE_INVALID && len(in.Dims) == 0
			fill(&in.DataType, &in.Dims, t)
		}
	}
	for _, out := range l.cfg.Output {
		if t := stepPorts[out.Name]; t != nil {
			fill(&out.DataType, &out.Dims, t)
		}
	}
	l.sig = config.SignatureOf(l.cfg)
}

// decouple sets whether the ensemble is decoupled: it is when one of its steps is. As in Triton
// this overrides the configuration.
func (l *level) decouple() {
	decoupled := slices.ContainsFunc(l.steps, func(s *step) bool { return s.sig.Decoupled })
	if p := l.cfg.GetModelTransactionPolicy(); p != nil && p.GetDecoupled() == decoupled {
		return
	}
	l.cfg = proto.CloneOf(l.cfg)
	l.cfg.ModelTransactionPolicy = &modelconfig.ModelTransactionPolicy{Decoupled: decoupled}
	l.sig = config.SignatureOf(l.cfg)
}

// dimless reports whether the ensemble declares no dims, so that a max_batch_size of 0 counts
// as absent.
func (l *level) dimless() bool {
	for _, in := range l.cfg.GetInput() {
		if len(in.GetDims()) > 0 {
			return false
		}
	}
	for _, out := range l.cfg.GetOutput() {
		if len(out.GetDims()) > 0 {
			return false
		}
	}
	return true
}

// maxBatch is the largest batch that every step takes, 0 when one does not batch.
func (l *level) maxBatch() int32 {
	least := 0
	for _, s := range l.steps {
		if s.sig.MaxBatch == 0 {
			return 0
		}
		if least == 0 || s.sig.MaxBatch < least {
			least = s.sig.MaxBatch
		}
	}
	return int32(least)
}

// portInfo is the type and shape that the steps declare for a tensor.
type portInfo struct {
	dtype tensor.DType
	dims  tensor.Shape // as the ensemble would declare them
	// optional holds for an input while every step that reads it can do without.
	optional bool
}

// stepPorts collects the declarations of the steps. It narrows the dims of a tensor that several
// steps declare; the pass types reports contradictions.
func (l *level) stepPorts() map[string]*portInfo {
	all := map[string]*portInfo{}
	declare := func(s *step, name string, p *config.Port, reads bool) {
		dims := l.dimsOf(s, p)
		t := all[name]
		if t == nil {
			all[name] = &portInfo{dtype: p.DType, dims: dims, optional: reads && p.Optional}
			return
		}
		t.optional = t.optional && reads && p.Optional
		if both, ok := config.Narrow(t.dims, dims); ok {
			t.dims = both
		}
	}
	for _, s := range l.steps {
		for i := range s.sig.Inputs {
			if name, mapped := s.cfg.GetInputMap()[s.sig.Inputs[i].Name]; mapped {
				declare(s, name, &s.sig.Inputs[i], true)
			}
		}
		for i := range s.sig.Outputs {
			if name, mapped := s.cfg.GetOutputMap()[s.sig.Outputs[i].Name]; mapped {
				declare(s, name, &s.sig.Outputs[i], false)
			}
		}
	}
	return all
}

// dimsOf returns a port's dims as an ensemble with or without a batch declares them.
func (l *level) dimsOf(s *step, p *config.Port) tensor.Shape {
	switch {
	case l.cfg.GetMaxBatchSize() == 0:
		return p.FullDims(s.sig.MaxBatch)
	case s.sig.MaxBatch == 0 && p.Dims.Rank() > 1 && p.Dims.Dim(0) == -1:
		return tensor.Of(p.Dims.Dims()[1:]...)
	default:
		return p.Dims
	}
}

// fill sets a missing data type or missing dims from t.
func fill(d *modelconfig.DataType, dims *[]int64, t *portInfo) {
	if *d == modelconfig.DataType_TYPE_INVALID {
		*d = modelconfig.DataType(t.dtype)
	}
	if len(*dims) == 0 {
		*dims = append([]int64(nil), t.dims.Dims()...)
	}
}
