package exec

import (
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// ownParams reports whether some node of a plan sees other parameters than the request has.
func ownParams(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Nodes, func(n plan.Node) bool { return n.Params != nil })
}

// metaOf returns the parameters that node n receives: those of the request, of which its own replace some.
//
// hot: one comparison for a plan without parameters of steps; no allocation in the steady state.
func (r *run) metaOf(n int32) *infer.Meta {
	if r.metas == nil || r.x.plan.Nodes[n].Params == nil {
		return r.meta()
	}
	m := &r.metas[n]
	memory := m.Params
	*m = *r.meta()
	m.Params = overlay(memory[:0], m.Params, r.x.plan.Nodes[n].Params)
	return m
}

// overlay appends params to dst, those of own in the place of others with their keys.
func overlay(dst, params, own infer.Params) infer.Params {
	for i := range params {
		if !slices.ContainsFunc(own, func(p infer.Param) bool { return p.Key == params[i].Key }) {
			dst = append(dst, params[i])
		}
	}
	return append(dst, own...)
}

// giveConstants sets the inputs of a task that the configuration gives, each row of which is the same.
func (r *run) giveConstants(task *scheduler.Task, n *plan.Node, rows int64) error {
	for port := range n.Constants {
		c, decl := &n.Constants[port], &n.Signature.Inputs[port]
		if c.Data == nil {
			continue
		}
		shape, times := c.Shape, 1
		if n.Signature.MaxBatch > 0 && !decl.ShapeTensor {
			shape, times = shape.Prepend(rows), int(rows)
		}
		t, err := tensor.NewBytes(r.x.alloc, shape, times*len(c.Data))
		if err != nil {
			return status.Prefixf(err, "constant input '%s' of model '%s': ", decl.Name, n.Model)
		}
		t.DType = decl.DType
		for dst := t.Bytes(); len(dst) > 0; {
			dst = dst[copy(dst, c.Data):]
		}
		task.In[port] = t
	}
	return nil
}
