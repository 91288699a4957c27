package exec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// refusal returns why the request cannot be bound: of several reasons the one that Triton finds first, in its words,
// which clients match on. It looks at the names, then at all batch sizes, then at each type and shape, and at the inputs
// from the last one given to the first.
func (r *run) refusal() error {
	sig, rows := r.x.plan.Signature, int64(-1)
	if err := r.checkNames(); err != nil {
		return err
	}
	err := r.backwards(func(port *config.Port, t *tensor.Tensor) error { return checkRows(sig, port, &t.Shape, &rows) })
	if err == nil && rows > int64(sig.MaxBatch) {
		err = status.Errorf(status.InvalidArg, batchTooLarge, sig.MaxBatch, sig.Model)
	}
	if err == nil {
		err = r.backwards(func(port *config.Port, t *tensor.Tensor) error { return r.checkTensor(port, t) })
	}
	if err == nil {
		err = status.Errorf(status.InvalidArg, "duplicate inference input for model '%s'", sig.Model)
	}
	return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
}

// checkNames refuses inputs that the model does not have, and a request without those that it needs.
func (r *run) checkNames() error {
	sig := r.x.plan.Signature
	lacking, optional := lackingInputs(sig, r.req)
	if len(r.req.Inputs) >= len(sig.Inputs)-optional {
		for _, in := range slices.Backward(r.req.Inputs) {
			if sig.Input(in.Name) < 0 {
				return status.Errorf(status.InvalidArg, "unexpected inference input '%s' for model '%s'", in.Name, sig.Model)
			}
		}
	}
	if len(lacking) > 0 {
		return r.invalid("%s", missing(sig, r.req, lacking, optional))
	}
	return nil
}

// backwards returns the first error of check for the inputs from the last one given.
func (r *run) backwards(check func(*config.Port, *tensor.Tensor) error) error {
	p := r.x.plan
	for i := len(r.req.Inputs) - 1; i >= 0; i-- {
		in := &r.req.Inputs[i]
		port, t := p.Signature.Input(in.Name), &in.Tensor
		if t.DType == tensor.Invalid { // it has been bound
			t = &r.slots[p.Inputs[port]]
		}
		if err := check(&p.Signature.Inputs[port], t); err != nil {
			return err
		}
	}
	return nil
}

// checkTensor verifies an input's type and shape.
func (r *run) checkTensor(port *config.Port, t *tensor.Tensor) error {
	sig := r.x.plan.Signature
	if err := checkType(sig, port, t); err != nil {
		return err
	}
	if !port.Accepts(&t.Shape, sig.MaxBatch) {
		return wrongShape(sig, port, &t.Shape)
	}
	return nil
}

// lackingInputs returns the required inputs that were not given, and how many inputs are optional.
func lackingInputs(sig *config.Signature, req *infer.Request) (lacking []string, optional int) {
	for i := range sig.Inputs {
		switch port := &sig.Inputs[i]; {
		case port.Optional:
			optional++
		case req.Input(port.Name) == nil:
			lacking = append(lacking, port.Name)
		}
	}
	return lacking, optional
}

// missing words the error about inputs that were not given.
func missing(sig *config.Signature, req *infer.Request, lacking []string, optional int) string {
	got := make([]string, len(req.Inputs))
	for i := range req.Inputs {
		got[i] = req.Inputs[i].Name
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
