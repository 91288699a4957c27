package exec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// bind checks the request against the plan's signature and moves its inputs into their slots.
func (r *run) bind() error {
	p, sig := r.x.plan, r.x.plan.Signature
	if err := r.selectOutputs(); err != nil {
		return err
	}
	if r.sub != nil {
		r.sub.responds = r.x.respondingStream(r.outputs)
	}
	if err := r.req.CheckInputs(); err != nil {
		return r.prefixed(err)
	}
	if err := r.fetchInputs(); err != nil {
		return err
	}
	rows, given := int64(-1), 0
	for i := range sig.Inputs {
		port := &sig.Inputs[i]
		t := r.req.Input(port.Name)
		if t == nil && port.Optional {
			continue
		}
		if t == nil || t.DType != port.DType || checkShape(sig, port, &t.Shape, &rows) != nil {
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
	return r.enterStreams()
}

// fetchInputs prepares inputs that clients have put into device memory: BYTES are copied to the host, and checked there, and tensors at
// addresses that kernels cannot read are copied within the device. Others stay where they are.
//
// hot: one load while there is no device.
func (r *run) fetchInputs() error {
	m := r.x.mover
	if m.Idle() {
		return nil
	}
	for i := range r.req.Inputs {
		in := &r.req.Inputs[i]
		if !in.Tensor.Present() || in.Tensor.Buf.Place().Kind != tensor.Device {
			continue
		}
		note := batch.Note{Ledger: &r.x.stats.Copies, Tensor: in.Name, Reason: telemetry.ForDevice, Trace: r.req.Trace}
		if in.Tensor.DType != tensor.Bytes {
			if err := m.Align(&in.Tensor, note); err != nil {
				return r.inputError(in.Name, err)
			}
			continue
		}
		note.Reason = telemetry.ForHost
		if err := m.ToHost(&in.Tensor, note); err != nil {
			return r.inputError(in.Name, err)
		}
		if err := batch.WaitOnHost(&in.Tensor); err != nil {
			return r.inputError(in.Name, err)
		}
		if err := r.req.CheckInput(in); err != nil {
			return r.prefixed(err)
		}
	}
	return nil
}

func (r *run) inputError(input string, err error) error {
	return r.prefixed(status.Prefixf(err, "input '%s' of model '%s' cannot be copied out of the client's memory: ", input, r.x.plan.Signature.Model))
}

// selectOutputs sets the requested outputs and the nodes that they need.
func (r *run) selectOutputs() error {
	p := r.x.plan
	if len(r.req.Outputs) == 0 {
		for i := range p.Outputs {
			r.outputs = append(r.outputs, int32(i))
		}
		r.selectNodes()
		return nil
	}
	if err := r.nameOutputs(); err != nil {
		return err
	}
	r.selectNodes()
	return nil
}

// nameOutputs sets the outputs that the request names.
func (r *run) nameOutputs() error {
	sig := r.x.plan.Signature
	for _, name := range r.req.Outputs {
		o := sig.Output(name)
		if o < 0 {
			return status.Errorf(status.InvalidArg, "unexpected inference output '%s' for model '%s'", name, sig.Model)
		}
		if slices.Contains(r.outputs, int32(o)) {
			return r.prefixed(status.Errorf(status.InvalidArg, "output '%s' already exists in request", name))
		}
		r.outputs = append(r.outputs, int32(o))
	}
	return nil
}

// Check returns the error with which a request would be refused before any step executes, nil if it would not. It neither
// executes nor changes the request.
func (x *Executor) Check(req *infer.Request) error {
	r := &run{x: x, call: call{req: req}}
	if err := r.nameOutputs(); err != nil {
		return err
	}
	if err := req.CheckInputs(); err != nil {
		return r.prefixed(err)
	}
	sig, rows, given := x.plan.Signature, int64(-1), 0
	for i := range sig.Inputs {
		port := &sig.Inputs[i]
		t := req.Input(port.Name)
		if t == nil && port.Optional {
			continue
		}
		if t == nil || t.DType != port.DType || checkShape(sig, port, &t.Shape, &rows) != nil {
			return r.refusal()
		}
		given++
	}
	if given < len(req.Inputs) {
		return r.refusal()
	}
	return nil
}

// prefixed returns err with the request's ID before its text, once.
func (r *run) prefixed(err error) error {
	prefix := infer.IDPrefix(r.req.ID)
	if strings.HasPrefix(err.Error(), prefix) {
		return err
	}
	return status.Prefixf(err, "%s", prefix)
}

func errDType(sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	return status.Errorf(status.InvalidArg, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
		port.Name, t.DType, sig.Model, port.DType)
}

const batchTooLarge = "inference request batch-size must be <= %d for '%s'"

// checkShape verifies a shape against a port. rows is the batch size seen so far, -1 before the first input.
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
		err = r.backwards(func(port *config.Port, t *tensor.Tensor) error {
			switch {
			case t.DType != port.DType:
				return errDType(sig, port, t)
			case !port.Accepts(&t.Shape, sig.MaxBatch):
				return wrongShape(sig, port, &t.Shape)
			}
			return nil
		})
	}
	if err == nil {
		err = status.Errorf(status.InvalidArg, "duplicate inference input for model '%s'", sig.Model)
	}
	return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
}

// checkNames refuses inputs that the model does not have, and a request without those that it needs.
func (r *run) checkNames() error {
	sig, optional, all := r.x.plan.Signature, 0, len(r.x.plan.Signature.Inputs)
	var lacking, got []string
	for i := range sig.Inputs {
		switch port := &sig.Inputs[i]; {
		case port.Optional:
			optional++
		case r.req.Input(port.Name) == nil:
			lacking = append(lacking, "'"+port.Name+"'")
		}
	}
	if len(r.req.Inputs) >= all-optional {
		for _, in := range slices.Backward(r.req.Inputs) {
			if sig.Input(in.Name) < 0 {
				return status.Errorf(status.InvalidArg, "unexpected inference input '%s' for model '%s'", in.Name, sig.Model)
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	for i := range r.req.Inputs {
		got = append(got, "'"+r.req.Inputs[i].Name+"'")
	}
	count := fmt.Sprintf("%d inputs", all)
	if optional > 0 {
		count = fmt.Sprintf("number of inputs between %d and %d", all-optional, all)
	}
	return r.prefixed(status.Errorf(status.InvalidArg,
		"expected %s but got %d inputs for model '%s'. Got input(s) [%s], but missing required input(s) [%s]. Please provide all required input(s).",
		count, len(got), sig.Model, strings.Join(got, ","), strings.Join(lacking, ",")))
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

// fill moves a node's inputs from their slots into its task, in the shapes of its model.
func (r *run) fill(task *scheduler.Task, n *plan.Node) error {
	task.Rows = 1
	rows := int64(-1)
	for port, s := range n.In {
		decl := &n.Signature.Inputs[port]
		if s == plan.None {
			if n.Constants != nil && n.Constants[port].Data != nil {
				continue
			}
			if !decl.Optional {
				return status.Errorf(status.InvalidArg, "input '%s' of model '%s' is required but not mapped to any tensor that was given", decl.Name, n.Model)
			}
			continue
		}
		in := r.read(s)
		task.In[port] = in
		if !in.Present() {
			if decl.Optional {
				continue
			}
			return status.Errorf(status.InvalidArg,
				"%sunexpected deadlock, at least one output is not set while no more ensemble steps can be made: "+
					"input '%s' of model '%s' is required but tensor '%s' was not produced",
				infer.IDPrefix(r.req.ID), decl.Name, n.Model, r.x.plan.Names[s])
		}
		if !r.x.plan.Ensemble {
			rows = int64(r.rows)
			continue // bind checked the request against the same signature
		}
		if n.Runtime != nil && n.Runtime[port] != plan.Declared {
			if err := applyRuntimeRule(n.Runtime[port], n.Signature, decl, &task.In[port]); err != nil {
				return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
			}
		} else if !fit(&task.In[port], n.Rules[port]) {
			return status.Errorf(status.InvalidArg,
				"tensor '%s' of shape %s cannot lose its batch dimension for input '%s' of model '%s', which does not batch",
				r.x.plan.Names[s], in.Shape, decl.Name, n.Model)
		}
		if err := r.project(&task.In[port], n, port); err != nil {
			return err
		}
		if err := checkShape(n.Signature, decl, &task.In[port].Shape, &rows); err != nil {
			return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
		}
	}
	if n.Constants != nil {
		if rows < 0 {
			rows = int64(r.rows)
		}
		if err := r.giveConstants(task, n, rows); err != nil {
			return err
		}
	}
	if n.Signature.MaxBatch > 0 && rows >= 0 {
		task.Rows = int32(rows)
	}
	for i := range task.In {
		if shape := n.Signature.Inputs[i].Reshape; n.Reshape && shape != nil && task.In[i].Present() {
			shape.ToModel(&task.In[i].Shape)
		}
	}
	return nil
}

// fit applies a batch rule to a tensor. It returns false where the rule does not apply.
func fit(t *tensor.Tensor, f plan.BatchRule) bool {
	switch f {
	case plan.Strip:
		if t.Shape.Rank() == 0 || t.Shape.Dim(0) != 1 {
			return false
		}
		t.Shape = t.Shape.Tail()
	case plan.Prepend:
		t.Shape = t.Shape.Prepend(1)
	case plan.AsIs:
	}
	return true
}

// applyRuntimeRule checks the type of an input of undeclared type, and applies the runtime rule to its unchecked shape.
func applyRuntimeRule(f plan.RuntimeRule, sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	if t.DType != port.DType {
		return errDType(sig, port, t)
	}
	fitUnchecked(t, f, &port.Dims)
	return nil
}

// fitUnchecked adds or removes a batch dimension where only one side batches. dims are the reader's, without its batch
// dimension. For example, with RuntimePrepend and dims [3], a tensor [3] becomes [1, 3].
func fitUnchecked(t *tensor.Tensor, f plan.RuntimeRule, dims *tensor.Shape) {
	switch f {
	case plan.RuntimePrepend:
		if t.Shape.Matches(*dims) {
			t.Shape = t.Shape.Prepend(1)
		}
	case plan.RuntimeStrip:
		if !t.Shape.Matches(*dims) && t.Shape.Rank() > 0 && t.Shape.Dim(0) == 1 {
			t.Shape = t.Shape.Tail()
		}
	case plan.RuntimeAsIs, plan.Declared:
	}
}

// reshapeOutputs applies toRequest to the outputs of a task.
func (r *run) reshapeOutputs(task *scheduler.Task, _ *scheduler.RunLoop) {
	toRequest(task.Out, r.x.plan.Nodes[task.Node].Signature.Outputs)
}

// toRequest sets the shapes of a node's checked outputs to those that requests see. An Unchecked
// output whose shape is not the model's declaration keeps it.
//
// hot: no allocation.
func toRequest(out []tensor.Tensor, ports []config.Port) {
	for i := range out {
		if r := ports[i].Reshape; r != nil && out[i].Present() && (!ports[i].Unchecked || r.OfModel(&out[i].Shape)) {
			r.ToRequest(&out[i].Shape)
		}
	}
}
