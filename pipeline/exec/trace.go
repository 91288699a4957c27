package exec

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// traceStart records that a traced request begins.
func (r *run) traceStart() {
	trace := r.req.Trace
	p := r.x.plan
	trace.SetModel(p.Signature.Version, p.Ensemble)
	trace.Stamp(tracing.RequestStart, r.started)
	if p.Ensemble {
		trace.Stamp(tracing.QueueStart, r.started)
	}
	if r.req.Deadline != 0 {
		trace.Due(r.req.Deadline, 0)
	}
	if trace.Tensors() {
		r.traceNamed(false, r.req.Inputs)
	}
}

// traceNamed records the tensors of the request or of a response.
func (r *run) traceNamed(output bool, list []infer.Named) {
	for i := range list {
		r.traceTensor(output, -1, 0, list[i].Name, &list[i].Tensor)
	}
}

// tracePorts records the tensors of an ensemble's step. Those of a plain model are the request's and the response's.
func (r *run) tracePorts(output bool, task *scheduler.Task, list []tensor.Tensor, ports []config.Port) {
	if !r.x.plan.Ensemble {
		return
	}
	for i := range min(len(list), len(ports)) {
		r.traceTensor(output, r.x.number(task.Node), r.subNumber(), ports[i].Name, &list[i])
	}
}

// traceTensor records a tensor. It copies one on a device to the host and waits: such traces are not made for speed.
func (r *run) traceTensor(output bool, node, subRun int32, name string, x *tensor.Tensor) {
	if !x.Present() {
		return
	}
	t := x.Retain()
	defer t.Release()
	err := error(nil)
	if t.Buf.Place().Kind == tensor.Device {
		ledger := &telemetry.Ledger{}
		if r.x.stats != nil {
			ledger = &r.x.stats.Copies
		}
		err = r.x.mover.ToHost(&t, batch.Note{Ledger: ledger, Tensor: name, Reason: telemetry.ForCapture})
	}
	if err == nil {
		err = batch.WaitOnHost(&t)
	}
	if err == nil {
		r.req.Trace.Tensor(output, node, subRun, name, &t)
	}
}

// traceReady starts the record of a task whose inputs have all arrived.
func (r *run) traceReady(task *scheduler.Task, after int32, now int64) {
	task.Traced = &r.traced[task.Node]
	*task.Traced = scheduler.TaskTrace{Trace: r.req.Trace, Ready: now, After: after, SubRun: r.subNumber()}
	if r.req.Trace.Tensors() {
		r.tracePorts(false, task, task.In, r.x.plan.Nodes[task.Node].Signature.Inputs)
	}
}

// traceTask records one execution, or why there was none, and its outputs.
func (r *run) traceTask(task *scheduler.Task, now int64) {
	n := &r.x.plan.Nodes[task.Node]
	if task.Err == nil && r.req.Trace.Tensors() {
		defer r.tracePorts(true, task, task.Out, n.Signature.Outputs)
	}
	s := tracing.Step{
		Node: task.Step, After: task.Traced.After, SubRun: r.subNumber(),
		Model: n.Signature.Model, Version: n.Signature.Version, Single: !r.x.plan.Ensemble,
		Cached: task.Cached, Failed: task.Err != nil,
		Ready: task.Traced.Ready, Enqueued: task.Enqueued, Done: now, Execution: task.Traced.Execution,
	}
	if s.Batch != 0 {
		s.Start, s.InputEnd, s.InferEnd, s.End = task.Times.Start, task.Times.InputEnd, task.Times.InferEnd, task.Times.End
	}
	switch {
	case task.Err != nil:
		s.Code = status.CodeOf(task.Err)
		if s.Batch == 0 { // it was not executed
			kind := tracing.EventRefused
			if status.MissesDeadline(task.Err) {
				kind = tracing.EventDeadline
			} else if s.Code == status.Cancelled {
				kind = tracing.EventCancelled
			}
			task.Traced.Trace.Event(&tracing.Event{Kind: kind, At: now, Node: s.Node, Reason: status.Text(task.Err)})
		}
	case task.Cached:
		task.Traced.Trace.Event(&tracing.Event{Kind: tracing.EventCacheHit, At: now, Node: s.Node})
	}
	task.Traced.Trace.Step(&s)
}

// traceForecast records what is predicted of a traced request, as it arrives.
func (r *run) traceForecast() {
	trace := r.req.Trace
	if trace == nil || r.predicted == 0 {
		return
	}
	trace.Due(r.req.Deadline, r.started+r.predicted)
	for i, ns := range r.ends {
		if ns != 0 {
			n := int32(i) //nolint:gosec // nodes are few
			trace.Predict(&tracing.Forecast{Node: r.x.number(n), Step: r.x.plan.Nodes[n].Name, End: r.started + ns})
		}
	}
}

// traceRefusal records which prediction refused a request on arrival, also of one that was not sampled.
func (r *run) traceRefusal(slowest int32, err error) {
	if r.traceFailure(); r.req.Trace == nil {
		return
	}
	r.traceForecast()
	r.req.Trace.Event(&tracing.Event{
		Kind: tracing.EventDeadline, At: r.started, Node: r.x.number(slowest), Reason: "refused on arrival: " + status.Text(err),
	})
}

// traceFailure starts a trace of a request that fails and was not sampled, where failures are recorded.
func (r *run) traceFailure() {
	if r.req.Trace == nil {
		if r.req.Trace = r.x.tracer.Failure(r.req.Model, r.x.plan.Signature.Version, r.req.ID, &r.req.Origin); r.req.Trace != nil {
			r.traceStart()
		}
	}
}

// traceEnd records how a traced request ended, or that another one failed.
func (r *run) traceEnd(err error) {
	if r.traceFailure(); r.req.Trace == nil {
		return
	}
	r.req.Trace.Fail(err)
	if err != nil && status.CodeOf(err) != status.Cancelled {
		r.req.Trace.Mark(tracing.InferResponseComplete) // the response that says so
	}
	r.req.Trace.Stamp(tracing.RequestEnd, telemetry.Now())
}

// The recorder of a captured request receives the tensors of the request and of every step, each once, by its writer.

// tensorEdges describes the tensor of every slot to a recorder, by slot. It is called when the first request is captured.
func (x *Executor) tensorEdges() []tracing.TensorEdge {
	list := make([]tracing.TensorEdge, x.plan.Slots)
	for s := range list {
		list[s] = x.edge(plan.Slot(s))
	}
	return list
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
				setProducer(&e, n, x.number(int32(i)), port)
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
	for i, out := range p.Outputs {
		if out == s {
			name := p.Signature.Outputs[i].Name
			e.Readers, e.Names = append(e.Readers, tracing.ResponseStep+"."+name), append(e.Names, name)
		}
	}
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

// addShared adds the readers of a shared tensor in the streams that begin in this one.
func (x *Executor) addShared(e *tracing.TensorEdge, s plan.Slot) {
	for _, inner := range x.inner {
		for _, in := range inner.x.segment.Shared {
			if in.From != s {
				continue
			}
			far := &inner.x.captureEdges()[in.To]
			e.Names, e.Models = append(e.Names, far.Names...), append(e.Models, far.Models...)
			for _, r := range far.Readers {
				if !slices.Contains(e.Readers, r) {
					e.Readers = append(e.Readers, r)
				}
			}
		}
	}
}

// captureRequest records a request as the client sent it: before its inputs are bound, which changes their shapes, or fails.
func (r *run) captureRequest(f tracing.Snapshot) {
	q := r.req
	info := tracing.RequestInfo{
		Outputs: q.Outputs, SequenceID: q.Sequence.ID, SequenceName: q.Sequence.Name, Start: q.Sequence.Start, End: q.Sequence.End,
	}
	for i := range q.Params {
		p := &q.Params[i]
		info.Params = append(info.Params, tracing.RequestParam{Key: p.Key, Type: p.Type(), Value: p.Text()})
	}
	f.Describe(&info)
	edges := r.x.captureEdges()
	for i, s := range r.x.plan.Inputs {
		if t := q.Input(r.x.plan.Signature.Inputs[i].Name); t != nil {
			r.capture(f, edges[s], 0, t)
		}
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

// captureSubRun records the tensors that started sub-run r.
func (r *run) captureSubRun(f tracing.Snapshot, out []tensor.Tensor) {
	for port, s := range r.x.segment.Ports {
		if s == plan.None {
			continue
		}
		e := r.x.captureEdges()[s]
		e.Names, e.Models = slices.Clone(e.Names), slices.Clone(e.Models)
		setProducer(&e, r.x.source, r.x.origin, port)
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

// capture records one tensor, borrowed. One on a device is copied to the host, without waiting for the copy.
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
			err = r.x.mover.ToHost(&c, batch.Note{Ledger: &r.x.stats.Copies, Tensor: e.Tensor, Reason: telemetry.ForCapture, Trace: r.req.Trace})
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
	host.captureRequest(f)
	for _, o := range a.wanted {
		name := x.plan.Signature.Outputs[o].Name
		if t := resp.Output(name); t != nil {
			e := edges[x.plan.Outputs[o]]
			e.Node, e.Step, e.Tensor = -1, tracing.ResponseStep, name
			host.capture(f, e, 0, t)
		}
	}
}
