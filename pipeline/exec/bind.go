package exec

import (
	"slices"
	"strconv"
	"strings"

	"tutti/core/config"
	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/tensor"
)

// bind checks the request against the plan's signature and moves its inputs into
// their slots. The texts are Triton's, which clients match on.
func (r *run) bind() error {
	p, sig := r.x.plan, r.x.plan.Signature
	if err := r.want(); err != nil {
		return err
	}
	rows, given := int64(-1), 0
	for i := range sig.Inputs {
		port := &sig.Inputs[i]
		t := r.req.Input(port.Name)
		if t == nil {
			if port.Optional {
				continue
			}
			return r.invalid("%s", missing(sig, r.req))
		}
		if err := checkInput(sig, port, t, &rows); err != nil {
			return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
		}
		switch want, err := infer.ShapeSize(port.Name, t.DType, t.Shape); {
		case err != nil:
			return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
		case want >= 0 && want != int64(t.Len):
			return r.req.SizeError(port.Name, want, int64(t.Len))
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
		return r.invalid("%s", r.surplus(given))
	}
	if sig.MaxBatch > 0 && rows >= 0 {
		r.rows = int32(rows)
	}
	return nil
}

// surplus words the error about inputs that the model does not have.
func (r *run) surplus(given int) string {
	sig := r.x.plan.Signature
	for i := range r.req.Inputs {
		if name := r.req.Inputs[i].Name; sig.Input(name) < 0 {
			if r.x.plan.Ensemble && given == len(sig.Inputs) {
				return "unexpected input '" + name + "' in request header that does not map to any ensemble inputs"
			}
			return "unexpected inference input '" + name + "' for model '" + sig.Model + "'"
		}
	}
	return "duplicate inference input for model '" + sig.Model + "'"
}

// want notes which outputs are asked for and which nodes they need.
func (r *run) want() error {
	p := r.x.plan
	if len(r.req.Outputs) == 0 {
		for i := range p.Outputs {
			r.outputs = append(r.outputs, int32(i))
		}
		r.wanted = p.AllNodes
		r.depth = r.x.answers(r.outputs)
		return nil
	}
	clear(r.subset)
	for _, name := range r.req.Outputs {
		o := p.Signature.Output(name)
		if o < 0 {
			return r.invalid("unexpected inference output '%s' for model '%s'", name, p.Signature.Model)
		}
		if slices.Contains(r.outputs, int32(o)) {
			return r.invalid("output '%s' already exists in request", name)
		}
		r.outputs = append(r.outputs, int32(o))
		r.subset.Or(p.OutputNodes[o])
	}
	r.wanted = r.subset
	r.depth = r.x.answers(r.outputs)
	r.waive()
	return nil
}

func (r *run) invalid(format string, args ...any) error {
	return status.Prefixf(status.Errorf(status.InvalidArg, format, args...), "%s", infer.IDPrefix(r.req.ID))
}

// checkInput verifies one given input against its port. That its memory is what its
// type and shape say is the duty of whoever made the request (infer.Request.CheckInput).
func checkInput(sig *config.Signature, port *config.Port, t *tensor.Tensor, rows *int64) error {
	if t.DType != port.DType {
		return errDType(sig, port, t)
	}
	return checkShape(sig, port, &t.Shape, rows)
}

func errDType(sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	return status.Errorf(status.InvalidArg, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
		port.Name, t.DType, sig.Model, port.DType)
}

// checkShape verifies a shape, batch dimension included, against a port. rows is the
// batch size seen so far, -1 before the first input.
func checkShape(sig *config.Signature, port *config.Port, s *tensor.Shape, rows *int64) error {
	fits := port.Accepts(s, sig.MaxBatch)
	if sig.MaxBatch > 0 && !port.ShapeTensor {
		if s.Rank() == 0 {
			return status.Errorf(status.InvalidArg, "input '%s' has no shape but model requires batch dimension for '%s'", port.Name, sig.Model)
		}
		n := s.Dim(0)
		switch {
		case *rows >= 0 && n != *rows:
			return status.Errorf(status.InvalidArg, "input '%s' batch size does not match other inputs for '%s'", port.Name, sig.Model)
		case n > int64(sig.MaxBatch) && fits:
			return status.Errorf(status.InvalidArg, "inference request batch-size must be <= %d for '%s'", sig.MaxBatch, sig.Model)
		}
		*rows = n
	}
	if fits {
		return nil
	}
	note := ""
	if sig.MaxBatch > 0 {
		note = batchNote
	}
	return status.Errorf(status.InvalidArg, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s.%s",
		port.Name, sig.Model, port.FullDims(sig.MaxBatch), s, note)
}

const batchNote = " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."

// missing words the error about inputs that were not given.
func missing(sig *config.Signature, req *infer.Request) string {
	var got, lacking []string
	for i := range req.Inputs {
		got = append(got, req.Inputs[i].Name)
	}
	optional := 0
	for i := range sig.Inputs {
		switch port := &sig.Inputs[i]; {
		case port.Optional:
			optional++
		case !slices.Contains(got, port.Name):
			lacking = append(lacking, port.Name)
		}
	}
	all := len(sig.Inputs)
	count := strconv.Itoa(all) + " inputs"
	if optional > 0 {
		count = "number of inputs between " + strconv.Itoa(all-optional) + " and " + strconv.Itoa(all)
	}
	return "expected " + count + " but got " + strconv.Itoa(len(got)) + " inputs for model '" + sig.Model + "'. Got input(s) [" +
		quoted(got) + "], but missing required input(s) [" + quoted(lacking) + "]. Please provide all required input(s)."
}

func quoted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "'" + strings.Join(names, "','") + "'"
}
