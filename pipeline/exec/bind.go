package exec

import (
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// bind checks the request against the plan's signature and moves its inputs into their slots.
// For example, input "x" of an ensemble moves to slot 0.
func (r *run) bind() error {
	p, sig := r.x.plan, r.x.plan.Signature
	if err := r.selectOutputs(); err != nil {
		return err
	}
	if err := r.req.CheckInputs(); err != nil {
		return r.prefixed(err)
	}
	rows, given := int64(-1), 0
	for i := range sig.Inputs {
		port := &sig.Inputs[i]
		t := r.req.Input(port.Name)
		if t == nil && port.Optional {
			continue
		}
		if t == nil || !fitting(sig, port, t, &rows) {
			return r.refusal()
		}
		given++
		if r.x.edges != nil {
			r.x.edges[p.Inputs[i]].Carried(t)
		}
		r.slots[p.Inputs[i]] = t.Move()
		if p.Reshape && port.Reshape != nil {
			port.Reshape.ToModel(&r.slots[p.Inputs[i]].Shape)
		}
	}
	if given < len(r.req.Inputs) {
		return r.refusal()
	}
	if sig.MaxBatch > 0 && rows >= 0 {
		r.rows = int32(rows)
	}
	return nil
}

// fitting reports whether an input has its port's type and shape.
func fitting(sig *config.Signature, port *config.Port, t *tensor.Tensor, rows *int64) bool {
	return checkType(sig, port, t) == nil && checkShape(sig, port, &t.Shape, rows) == nil
}

// selectOutputs sets the requested outputs and the nodes that they need.
func (r *run) selectOutputs() error {
	p := r.x.plan
	if len(r.req.Outputs) == 0 {
		for i := range p.Outputs {
			r.outputs = append(r.outputs, int32(i))
		}
		r.wanted = p.AllNodes
		r.respondAt()
		return nil
	}
	clear(r.subset)
	for _, name := range r.req.Outputs {
		o := p.Signature.Output(name)
		if o < 0 {
			return status.Errorf(status.InvalidArg, "unexpected inference output '%s' for model '%s'", name, p.Signature.Model)
		}
		if slices.Contains(r.outputs, int32(o)) {
			return r.invalid("output '%s' already exists in request", name)
		}
		r.outputs = append(r.outputs, int32(o))
		r.subset.AddAll(p.OutputNodes[o])
	}
	r.wanted = r.subset
	r.respondAt()
	r.skipUnneeded()
	return nil
}

// respondAt notes the segment that responds, in a divided plan.
func (r *run) respondAt() {
	if r.sub != nil {
		r.sub.depth = r.x.lastSegment(r.outputs)
	}
}

// prefixed returns err with the request's ID before its text, once.
func (r *run) prefixed(err error) error {
	prefix := infer.IDPrefix(r.req.ID)
	if strings.HasPrefix(err.Error(), prefix) {
		return err
	}
	return status.Prefixf(err, "%s", prefix)
}

func (r *run) invalid(format string, args ...any) error {
	return status.Prefixf(status.Errorf(status.InvalidArg, format, args...), "%s", infer.IDPrefix(r.req.ID))
}

func checkType(sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	if t.DType == port.DType {
		return nil
	}
	return errDType(sig, port, t)
}

func errDType(sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	return status.Errorf(status.InvalidArg, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
		port.Name, t.DType, sig.Model, port.DType)
}

const batchTooLarge = "inference request batch-size must be <= %d for '%s'"

// checkShape verifies a shape, batch dimension included, against a port. rows is the
// batch size seen so far, -1 before the first input.
func checkShape(sig *config.Signature, port *config.Port, s *tensor.Shape, rows *int64) error {
	if err := checkRows(sig, port, s, rows); err != nil {
		return err
	}
	switch fits := port.Accepts(s, sig.MaxBatch); {
	case !fits:
		return wrongShape(sig, port, s)
	case sig.MaxBatch > 0 && !port.ShapeTensor && *rows > int64(sig.MaxBatch):
		return status.Errorf(status.InvalidArg, batchTooLarge, sig.MaxBatch, sig.Model)
	}
	return nil
}

// checkRows verifies that a shape has the batch size of those before it, where there are batches.
func checkRows(sig *config.Signature, port *config.Port, s *tensor.Shape, rows *int64) error {
	if sig.MaxBatch == 0 || port.ShapeTensor {
		return nil
	}
	if s.Rank() == 0 {
		return status.Errorf(status.InvalidArg, "input '%s' has no shape but model requires batch dimension for '%s'", port.Name, sig.Model)
	}
	n := s.Dim(0)
	if *rows >= 0 && n != *rows {
		return status.Errorf(status.InvalidArg, "input '%s' batch size does not match other inputs for '%s'", port.Name, sig.Model)
	}
	*rows = n
	return nil
}

func wrongShape(sig *config.Signature, port *config.Port, s *tensor.Shape) error {
	note := ""
	if sig.MaxBatch > 0 {
		note = batchNote
	}
	return status.Errorf(status.InvalidArg, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s",
		port.Name, sig.Model, port.FullDims(sig.MaxBatch), s, note)
}

const batchNote = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
