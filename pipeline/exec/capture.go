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
)

// A request that is captured shows its film the tensors that it came with and those of
// every step, once each, under the name of who made them.

// shots returns what a film calls the tensor of every slot, by the plan's numbers. They are made when the
// first request is captured.
func (x *Executor) shots() []tracing.Edge {
	x.shotsOnce.Do(func() {
		list := make([]tracing.Edge, x.plan.Slots)
		for s := range list {
			list[s] = x.edge(plan.Slot(s))
		}
		x.shotList = list
	})
	return x.shotList
}

// edge describes a slot, with what the parts behind this one know of it.
func (x *Executor) edge(s plan.Slot) tracing.Edge {
	p := x.plan
	e := tracing.Edge{Node: -1, Step: tracing.RequestStep, Tensor: p.Names[s], Names: []string{p.Names[s]}, Models: []string{p.Signature.Model}}
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
				made(&e, n, x.first+int32(i), port)
			}
		}
		for port, in := range n.In {
			if in == s {
				e.Readers = append(e.Readers, n.Name+"."+n.Signature.Inputs[port].Name)
				e.Names = append(e.Names, n.Signature.Inputs[port].Name)
				involve(&e, n)
			}
		}
	}
	x.leaves(&e, s)
	x.crosses(&e, s)
	return e
}

// made says which step makes a tensor.
func made(e *tracing.Edge, n *plan.Node, number int32, port int) {
	e.Node, e.Step, e.Tensor = number, n.Name, n.Signature.Outputs[port].Name
	e.Names = append(e.Names, e.Tensor)
	involve(e, n)
}

// involve adds a step's model and the ensembles around it.
func involve(e *tracing.Edge, n *plan.Node) {
	e.Models = append(append(e.Models, n.Model), n.Ensembles...)
}

// leaves adds the answers that a slot goes into.
func (x *Executor) leaves(e *tracing.Edge, s plan.Slot) {
	for i, out := range x.plan.Outputs {
		if out == s {
			name := x.plan.Signature.Outputs[i].Name
			e.Readers, e.Names = append(e.Readers, tracing.AnswerStep+"."+name), append(e.Names, name)
		}
	}
}

// crosses adds what the next part knows of a slot that it shares.
func (x *Executor) crosses(e *tracing.Edge, s plan.Slot) {
	if x.next == nil {
		return
	}
	for _, in := range x.next.part.Imports {
		if in.From == s {
			far := &x.next.shots()[in.To]
			e.Names, e.Models = append(e.Names, far.Names...), append(e.Models, far.Models...)
			for _, r := range far.Readers {
				if !slices.Contains(e.Readers, r) {
					e.Readers = append(e.Readers, r)
				}
			}
		}
	}
}

// captureInputs keeps the tensors that a request came with.
func (r *run) captureInputs(f tracing.Film) {
	edges := r.x.shots()
	for _, s := range r.x.plan.Inputs {
		r.capture(f, edges[s], 0, &r.slots[s])
	}
}

// captureOutputs keeps what a step has made for others to read.
func (r *run) captureOutputs(f tracing.Film, n *plan.Node, w *scheduler.Task) {
	edges := r.x.shots()
	for port, s := range n.Out {
		if s != plan.None {
			r.capture(f, edges[s], r.wave.number, &w.Out[port])
		}
	}
}

// captureWave keeps the answer of a decoupled step that has started wave r.
func (r *run) captureWave(f tracing.Film, out []tensor.Tensor) {
	up := r.wave.up.x
	for port, s := range r.x.part.Ports {
		if s == plan.None {
			continue
		}
		e := r.x.shots()[s]
		e.Names, e.Models = slices.Clone(e.Names), slices.Clone(e.Models)
		made(&e, &up.plan.Nodes[up.part.Producer], up.first+up.part.Producer, port)
		r.capture(f, e, r.wave.number, &out[port])
	}
}

// captureAnswer keeps an answer of a decoupled model that is asked by itself.
func (r *run) captureAnswer(f tracing.Film, out []tensor.Tensor) {
	edges, number := r.x.shots(), f.Answer()
	for i, s := range r.x.plan.Outputs {
		if i < len(out) {
			r.capture(f, edges[s], number, &out[i])
		}
	}
}

// capture keeps one tensor, which stays the caller's. One at a device is copied by the
// rules of everything that moves; nobody waits for it here.
func (r *run) capture(f tracing.Film, e tracing.Edge, wave int32, t *tensor.Tensor) {
	if !t.Present() {
		return
	}
	e.Wave = wave
	n, content := f.Admit(&e, t)
	if !content {
		return
	}
	c := t.Retain()
	var err error
	if c.Buf.Place().Kind == tensor.Device {
		if r.x.mover.Idle() || r.x.stats == nil {
			err = status.Errorf(status.Unavailable, "tensor '%s' is at %s, from where nothing copies it", e.Tensor, c.Buf.Place())
		} else {
			err = r.x.mover.ToHost(&c, scheduler.Note{Ledger: &r.x.stats.Moves, Tensor: e.Tensor, Reason: telemetry.ForCapture, Trace: r.req.Trace})
		}
	}
	if err != nil {
		c.Release()
	}
	f.Put(n, c, err)
}

// captureRecalled keeps the tensors of a request that the cache has answered.
func (r *ResponseCache) captureRecalled(a *ask, w waiter, resp *infer.Response) {
	f := w.req.Trace.Film()
	if f == nil {
		return
	}
	x := r.x
	host := run{x: x, req: w.req}
	edges := x.shots()
	for i, s := range x.plan.Inputs {
		if t := w.req.Input(x.plan.Signature.Inputs[i].Name); t != nil {
			host.capture(f, edges[s], 0, t)
		}
	}
	for _, o := range a.wanted {
		name := x.plan.Signature.Outputs[o].Name
		if t := resp.Output(name); t != nil {
			e := edges[x.plan.Outputs[o]]
			e.Node, e.Step, e.Tensor = -1, tracing.AnswerStep, name
			host.capture(f, e, 0, t)
		}
	}
}
