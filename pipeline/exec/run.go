package exec

import (
	"context"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// run is one request on its way through a plan. It has two holders: the goroutine
// that submitted it and the works under way; the last to let go recycles it.
type run struct {
	x    *Executor
	ctx  context.Context //nolint:containedctx // a run is a request in flight
	req  *infer.Request
	sink infer.Sink
	turn *scheduler.RunLoop // of the submitting goroutine

	slots   []tensor.Tensor
	readers []atomic.Int32 // per slot: reads to come
	need    []atomic.Int32 // per node: inputs to come
	work    []scheduler.Task
	traced  []scheduler.TaskTrace // per node, made when the run is first traced
	wanted  plan.Bits             // nodes the wanted outputs need
	subset  plan.Bits             // memory for wanted when not all outputs are asked for
	outputs []int32               // wanted outputs, by position in the signature
	rows    int32
	at      scheduler.Affinity

	underway atomic.Int32 // works executing or queued, and one while the run is set up
	holders  atomic.Int32
	done     atomic.Bool
	failure  atomic.Pointer[failure]

	sent bool // a decoupled model has answered

	// root is the request's own run: another one than this in a wave. depth is the
	// part of the plan that answers, in the root; override is what stands for the
	// request's Meta, nil unless a step asked for it; reply are the only step's parameters.
	root     *run
	depth    int32
	override atomic.Pointer[infer.Meta]
	reply    infer.Params
	wave     wave
	flight   flight
	order    ordering     // of the root
	waves    atomic.Int32 // started, of the root

	started, ended       int64
	input, infer, output atomic.Int64 // sums over the steps, ns
}

type failure struct{ err error }

func newRun(x *Executor, workers *scheduler.Workers) *run {
	p := x.plan
	r := &run{
		x:       x,
		turn:    scheduler.NewRunLoop(workers),
		slots:   make([]tensor.Tensor, p.Slots),
		readers: make([]atomic.Int32, p.Slots),
		need:    make([]atomic.Int32, len(p.Nodes)),
		work:    make([]scheduler.Task, len(p.Nodes)),
		subset:  plan.NewBits(len(p.Nodes)),
		outputs: make([]int32, 0, len(p.Outputs)),
	}
	r.root = r
	if x.next != nil {
		r.flight.room = make(chan struct{}, 1)
	}
	for i := range r.work {
		n := &p.Nodes[i]
		r.work[i] = scheduler.Task{
			TaskRequest: scheduler.TaskRequest{
				To: x, Run: r, Node: int32(i), Step: x.first + int32(i), Affinity: &r.at, Want: want(n),
				In: make([]tensor.Tensor, len(n.In)),
			},
			TaskResult: scheduler.TaskResult{Out: make([]tensor.Tensor, len(n.Out))},
		}
	}
	return r
}

// want says where a step's work is to be executed: a model's own request anywhere.
func want(n *plan.Node) scheduler.Want {
	switch {
	case len(n.Places) == 0:
		return scheduler.Anywhere
	case n.Site == plan.OnDevice:
		return scheduler.AtDevice
	}
	return scheduler.AtHost
}

func (r *run) begin(ctx context.Context, req *infer.Request, sink infer.Sink) {
	r.ctx, r.req, r.sink = ctx, req, sink
	r.turn.Tick(0)
	r.started = r.turn.Now()
	p := r.x.plan
	if d, ok := ctx.Deadline(); ok {
		req.Deadline = max(telemetry.At(d), 1)
	}
	r.rows, r.sent = 1, false
	if r.x.next != nil {
		r.waves.Store(0)
	}
	r.underway.Store(1)
	r.holders.Store(2)
	r.done.Store(false)
	if _, bound := r.at.Bound(); bound || p.Devices != 0 {
		r.at.Reset(p.Devices)
	}
	r.traceable()
	r.recount()
}

// traceable makes room for what the tasks of a traced run record.
func (r *run) traceable() {
	if r.req.Trace != nil && r.traced == nil {
		r.traced = make([]scheduler.TaskTrace, len(r.work))
	}
}

// recount sets what is counted down to where it starts.
func (r *run) recount() {
	for _, s := range r.x.shared {
		r.readers[s].Store(r.x.plan.Readers[s])
	}
	for _, n := range r.x.joins {
		r.need[n].Store(r.x.plan.Nodes[n].Need)
	}
}

// start delivers the inputs and stages the nodes that need none.
func (r *run) start() {
	p, staged := r.x.plan, int32(0)
	for _, n := range r.x.sources {
		if r.wanted.Has(n) {
			staged += r.stage(n, -1, r.turn)
		}
	}
	for _, s := range p.Inputs {
		staged += r.deliver(s, -1, r.turn)
	}
	staged += r.unawaited(r.turn)
	r.leave(staged, r.turn)
}

// deliver tells the readers of a slot that its tensor, or its absence, is known, and
// returns how many nodes that staged. A node with one input is ready at once; others
// count.
func (r *run) deliver(s plan.Slot, after int32, t *scheduler.RunLoop) int32 {
	staged := int32(0)
	for _, u := range r.x.plan.Consumers[s] {
		if r.x.plan.Nodes[u.Node].Need > 1 && r.need[u.Node].Add(-1) > 0 {
			continue
		}
		if r.wanted.Has(u.Node) {
			staged += r.stage(u.Node, after, t)
		}
	}
	return staged
}

// stage hands node n, whose inputs are all known, to its scheduler, and returns how
// many works that started: 1, or 0 when the request has failed. Nothing staged runs
// before the turn is flushed, so the caller may count afterwards.
func (r *run) stage(n, after int32, t *scheduler.RunLoop) int32 {
	if r.root.failure.Load() != nil {
		return 0
	}
	w := &r.work[n]
	if err := r.fill(w, &r.x.plan.Nodes[n]); err != nil {
		tensor.ReleaseAll(w.In)
		r.fail(n, err)
		return 0
	}
	w.Ctx, w.Meta, w.Err, w.ResponseParams, w.Cached = r.ctx, r.meta(), nil, nil, false
	if w.Outputs = r.x.gives[n]; !r.x.plan.Ensemble {
		w.Outputs = r.req.Outputs
	}
	if w.Traced = nil; r.req.Trace != nil {
		w.Traced = &r.traced[n]
		*w.Traced = scheduler.TaskTrace{Trace: r.req.Trace, Ready: t.Now(), After: after, SubRun: r.wave.number}
		if r.req.Trace.Tensors() {
			r.tracePorts(false, w, w.In, r.x.plan.Nodes[n].Signature.Inputs)
		}
	}
	if r.x.inflight != nil && r.x.inflight[n] != nil {
		// Without a credit it waits, and whoever gives one back may be quicker than
		// this caller in counting it.
		r.underway.Add(1)
		if r.x.inflight[n].take(w) {
			t.Stage(r.x.targets[n], w)
		}
		return 0
	}
	t.Stage(r.x.targets[n], w)
	return 1
}

// fill takes the node's inputs from their slots.
func (r *run) fill(w *scheduler.Task, n *plan.Node) error {
	w.Rows = 1
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
		w.In[port] = in
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
			continue // the request was checked against this very signature
		}
		if n.Free != nil && n.Free[port] != plan.Fixed {
			if err := takeFree(n.Free[port], n.Signature, decl, &w.In[port]); err != nil {
				return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
			}
		} else if !fit(&w.In[port], n.Fit[port]) {
			return status.Errorf(status.InvalidArg,
				"tensor '%s' of shape %s cannot lose its batch dimension for input '%s' of model '%s', which does not batch",
				r.x.plan.Names[s], in.Shape, decl.Name, n.Model)
		}
		if err := checkShape(n.Signature, decl, &w.In[port].Shape, &rows); err != nil {
			return status.Prefixf(err, "%s", infer.IDPrefix(r.req.ID))
		}
	}
	if n.Signature.MaxBatch > 0 && rows >= 0 {
		w.Rows = int32(rows)
	}
	if n.Reshape {
		toModel(w.In, n.Signature.Inputs)
	}
	return nil
}

// read takes a reader's reference on a slot. The only reader gets the slot's own;
// among several each takes one before it counts itself out, and the last one gives
// the slot's up, so that memory goes back as early as possible.
func (r *run) read(s plan.Slot) tensor.Tensor {
	if r.x.plan.Readers[s] == 1 {
		return r.slots[s].Move()
	}
	t := r.slots[s].Retain()
	if r.readers[s].Add(-1) == 0 {
		r.slots[s].Release()
	}
	return t
}

// complete takes the outputs of one executed work. Afterwards the run may be gone.
func (r *run) complete(w *scheduler.Task, t *scheduler.RunLoop) {
	n, staged := &r.x.plan.Nodes[w.Node], int32(0)
	if w.Traced != nil {
		r.traceStep(n, w, t.Now())
		if w.Err == nil && w.Trace().Tensors() {
			r.tracePorts(true, w, w.Out, n.Signature.Outputs)
		}
	}
	if r.x.inflight != nil {
		r.x.inflight[w.Node].give(t)
	}
	if w.Err != nil {
		r.fail(w.Node, w.Err)
	} else {
		if r.x.plan.Ensemble {
			r.root.account(&w.Times)
			r.observe(w, n)
		}
		if len(w.ResponseParams) > 0 {
			r.replied(w.ResponseParams)
		}
		if r.x.next != nil && w.Node == r.x.part.Producer {
			r.landed(w, t)
		}
		if n.Reshape {
			toRequest(w.Out, n.Signature.Outputs)
		}
		if f := w.Trace().Film(); f != nil {
			r.captureOutputs(f, n, w)
		}
		for port, s := range n.Out {
			if s == plan.None {
				w.Out[port].Release()
				continue
			}
			r.slots[s] = w.Out[port].Move()
		}
		for _, s := range n.Out {
			if s != plan.None {
				staged += r.deliver(s, w.Step, t)
			}
		}
	}
	r.leave(staged, t)
}

// observe counts a step that succeeded, and the tensors that it wrote.
//
// hot: atomic adds.
func (r *run) observe(w *scheduler.Task, n *plan.Node) {
	x := r.x
	if x.steps == nil {
		return
	}
	x.steps[w.Node].Done(w.Enqueued, &w.Times)
	for port, s := range n.Out {
		if s != plan.None {
			x.edges[s].Carried(&w.Out[port])
		}
	}
}

func (r *run) account(t *telemetry.Times) {
	add(&r.input, t.InputEnd-t.Start)
	add(&r.infer, t.InferEnd-t.InputEnd)
	add(&r.output, t.End-t.InferEnd)
}

// add skips what is nothing, as most phases of a batch of one are.
func add(sum *atomic.Int64, ns int64) {
	if ns != 0 {
		sum.Add(ns)
	}
}

// fail keeps the first failure; nothing new starts, and what is under way is waited for.
func (r *run) fail(n int32, err error) {
	if r.root.failure.Load() == nil {
		r.root.failure.CompareAndSwap(nil, &failure{r.x.wrap(r.ctx, n, err)})
	}
}

// leave counts one work (or the set-up) out and those it staged in; the last one
// answers. In a chain the one replaces the other and nothing is counted.
func (r *run) leave(staged int32, t *scheduler.RunLoop) {
	if staged != 1 && r.underway.Add(staged-1) == 0 {
		r.answer(t)
	}
}

// answered reports whether the request is over.
func (r *run) answered() bool { return r.done.Load() }

// reject ends a request that never started.
func (r *run) reject(err error) {
	r.drop()
	r.end(err)
}

// end releases what the run holds, tells the sink and lets go. Nothing of the
// request is held when its client learns that it is over.
func (r *run) end(err error) {
	sink, x := r.sink, r.x
	tensor.ReleaseAll(r.slots)
	if r.req.Trace != nil || err != nil {
		r.traceEnd(err)
	}
	r.req.Release()
	r.ctx, r.req, r.sink = nil, nil, nil
	if r.failure.Load() != nil {
		r.failure.Store(nil)
	}
	if r.override.Load() != nil {
		r.override.Store(nil)
	}
	r.reply, r.depth = nil, 0
	for _, sum := range []*atomic.Int64{&r.input, &r.infer, &r.output} {
		add(sum, -sum.Load())
	}
	r.outputs = r.outputs[:0]
	r.done.Store(true)
	r.drop()
	sink.Close(err)
	x.pending.Add(-1)
}

// drop lets go of the run once.
func (r *run) drop() {
	if r.holders.Add(-1) == 0 {
		r.x.runs.Put(r)
	}
}
