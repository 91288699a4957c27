package exec

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// fill moves a node's inputs from their slots into its task, in the shapes of its model.
func (r *run) fill(task *scheduler.Task, n *plan.Node) error {
	task.Rows = 1
	rows := int64(-1)
	for port, s := range n.In {
		decl := &n.Signature.Inputs[port]
		if s == plan.None {
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
			if err := takeFree(n.Runtime[port], n.Signature, decl, &task.In[port]); err != nil {
				return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
			}
		} else if !fit(&task.In[port], n.Rules[port]) {
			return status.Errorf(status.InvalidArg,
				"tensor '%s' of shape %s cannot lose its batch dimension for input '%s' of model '%s', which does not batch",
				r.x.plan.Names[s], in.Shape, decl.Name, n.Model)
		}
		if err := checkShape(n.Signature, decl, &task.In[port].Shape, &rows); err != nil {
			return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
		}
	}
	if n.Signature.MaxBatch > 0 && rows >= 0 {
		task.Rows = int32(rows)
	}
	if n.Reshape {
		toModel(task.In, n.Signature.Inputs)
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

// takeFree checks the data type of an input of undeclared type, and applies the runtime rule
// to its shape. The caller must check the shape.
func takeFree(f plan.RuntimeRule, sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	if t.DType != port.DType {
		return errDType(sig, port, t)
	}
	fitFree(t, f, &port.Dims)
	return nil
}

// fitFree adds or removes a batch dimension where only one side batches. dims are the reader's, without its batch
// dimension. For example, with RuntimePrepend and dims [3], a tensor [3] becomes [1, 3].
func fitFree(t *tensor.Tensor, f plan.RuntimeRule, dims *tensor.Shape) {
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

// toModel sets the shapes of a node's checked inputs to those that its model declares.
//
// hot: no allocation.
func toModel(in []tensor.Tensor, ports []config.Port) {
	for i := range in {
		if r := ports[i].Reshape; r != nil && in[i].Present() {
			r.ToModel(&in[i].Shape)
		}
	}
}

// reshapeOutputs applies toRequest to the outputs of a task.
func (r *run) reshapeOutputs(task *scheduler.Task, _ *scheduler.RunLoop) {
	toRequest(task.Out, r.x.plan.Nodes[task.Node].Signature.Outputs)
}

// toRequest sets the shapes of a node's checked outputs to those that requests see. A Free
// output whose shape is not the model's declaration keeps it.
//
// hot: no allocation.
func toRequest(out []tensor.Tensor, ports []config.Port) {
	for i := range out {
		if r := ports[i].Reshape; r != nil && out[i].Present() && (!ports[i].Free || r.OfModel(&out[i].Shape)) {
			r.ToRequest(&out[i].Shape)
		}
	}
}
