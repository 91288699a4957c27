package exec

import (
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// The recorder of a captured request receives the request's tensors and those of every step,
// each once, under the name of the step that wrote it.

// captureEdges describes the tensor of every slot to a recorder, by slot. It is made when the
// first request is captured.
func (x *Executor) captureEdges() []tracing.TensorEdge {
	x.edgesOnce.Do(func() {
		list := make([]tracing.TensorEdge, x.plan.Slots)
		for s := range list {
			list[s] = x.edge(plan.Slot(s))
		}
		x.edgeList = list
	})
	return x.edgeList
}

// edge describes the tensor of a slot, with its readers in later segments.
func (x *Executor) edge(s plan.Slot) tracing.TensorEdge {
	p := x.plan
	e := tracing.TensorEdge{Node: -1, Step: tracing.RequestStep, Tensor: p.Names[s], Names: []string{p.Names[s]}, Models: []string{p.Signature.Model}}
	if p.Aliases != nil {
		e.Names = append(e.Names, p.Aliases[s]...)
	}
	for i, in := range p.Inputs {
		if in == s {
			e.Tensor = p.Signature.Inputs[i].Name
			e.Names = append(e.Names, e.Tensor)
		}
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for port, out := range n.Out {
			if out == s {
				setProducer(&e, n, x.first+int32(i), port)
			}
		}
		for port, in := range n.In {
			if in == s {
				e.Readers = append(e.Readers, n.Name+"."+n.Signature.Inputs[port].Name)
				e.Names = append(e.Names, n.Signature.Inputs[port].Name)
				addModels(&e, n)
			}
		}
	}
	x.addOutputs(&e, s)
	x.addShared(&e, s)
	return e
}

// setProducer notes the step that writes a tensor.
func setProducer(e *tracing.TensorEdge, n *plan.Node, number int32, port int) {
	e.Node, e.Step, e.Tensor = number, n.Name, n.Signature.Outputs[port].Name
	e.Names = append(e.Names, e.Tensor)
	addModels(e, n)
}

// addModels adds a step's model and the ensembles that contain it.
func addModels(e *tracing.TensorEdge, n *plan.Node) {
	e.Models = append(append(e.Models, n.Model), n.Ensembles...)
}

// addOutputs adds the outputs of the response that a slot is.
func (x *Executor) addOutputs(e *tracing.TensorEdge, s plan.Slot) {
	for i, out := range x.plan.Outputs {
		if out == s {
			name := x.plan.Signature.Outputs[i].Name
			e.Readers, e.Names = append(e.Readers, tracing.ResponseStep+"."+name), append(e.Names, name)
		}
	}
}

// addShared adds the readers of a shared tensor in the next segment.
func (x *Executor) addShared(e *tracing.TensorEdge, s plan.Slot) {
	if x.next == nil {
		return
	}
	for _, in := range x.next.segment.Shared {
		if in.From == s {
			far := &x.next.captureEdges()[in.To]
			e.Names, e.Models = append(e.Names, far.Names...), append(e.Models, far.Models...)
			for _, r := range far.Readers {
				if !slices.Contains(e.Readers, r) {
					e.Readers = append(e.Readers, r)
				}
			}
		}
	}
}

// captureInputs records the tensors of a request.
func (r *run) captureInputs(f tracing.Snapshot) {
	edges := r.x.captureEdges()
	for _, s := range r.x.plan.Inputs {
		r.capture(f, edges[s], 0, &r.slots[s])
	}
}

// captureOutputs records the tensors that a step wrote for other steps.
func (r *run) captureOutputs(f tracing.Snapshot, task *scheduler.Task) {
	edges := r.x.captureEdges()
	for port, s := range r.x.plan.Nodes[task.Node].Out {
		if s != plan.None {
			r.capture(f, edges[s], r.subNumber(), &task.Out[port])
		}
	}
}

// captureSubRun records the response of a decoupled step that started sub-run r.
func (r *run) captureSubRun(f tracing.Snapshot, out []tensor.Tensor) {
	up := r.sub.parent.x
	for port, s := range r.x.segment.Ports {
		if s == plan.None {
			continue
		}
		e := r.x.captureEdges()[s]
		e.Names, e.Models = slices.Clone(e.Names), slices.Clone(e.Models)
		setProducer(&e, &up.plan.Nodes[up.segment.Producer], up.first+up.segment.Producer, port)
		r.capture(f, e, r.sub.number, &out[port])
	}
}

// captureResponse records one response of a plain decoupled model.
func (r *run) captureResponse(f tracing.Snapshot, out []tensor.Tensor) {
	edges, number := r.x.captureEdges(), f.NextResponse()
	for i, s := range r.x.plan.Outputs {
		if i < len(out) {
			r.capture(f, edges[s], number, &out[i])
		}
	}
}

// capture records one tensor, borrowed. One on a device is copied to the host, without waiting
// for the copy.
func (r *run) capture(f tracing.Snapshot, e tracing.TensorEdge, subRun int32, t *tensor.Tensor) {
	if !t.Present() {
		return
	}
	e.SubRun = subRun
	n, content := f.Add(&e, t)
	if !content {
		return
	}
	c := t.Retain()
	var err error
	if c.Buf.Place().Kind == tensor.Device {
		if r.x.mover.Idle() || r.x.stats == nil {
			err = status.Errorf(status.Unavailable, "tensor '%s' is at %s, from where nothing copies it", e.Tensor, c.Buf.Place())
		} else {
			err = r.x.mover.ToHost(&c, batch.Note{Ledger: &r.x.stats.Moves, Tensor: e.Tensor, Reason: telemetry.ForCapture, Trace: r.req.Trace})
		}
	}
	if err != nil {
		c.Release()
	}
	f.Put(n, c, err)
}

// captureCached records the tensors of a request whose response came from the cache.
func (r *ResponseCache) captureCached(a *cachedCall, w waiter, resp *infer.Response) {
	f := w.req.Trace.Snapshot()
	if f == nil {
		return
	}
	x := r.x
	host := run{x: x, call: call{req: w.req}}
	edges := x.captureEdges()
	for i, s := range x.plan.Inputs {
		if t := w.req.Input(x.plan.Signature.Inputs[i].Name); t != nil {
			host.capture(f, edges[s], 0, t)
		}
	}
	for _, o := range a.wanted {
		name := x.plan.Signature.Outputs[o].Name
		if t := resp.Output(name); t != nil {
			e := edges[x.plan.Outputs[o]]
			e.Node, e.Step, e.Tensor = -1, tracing.ResponseStep, name
			host.capture(f, e, 0, t)
		}
	}
}
