package exec

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// Where a step of an ensemble is decoupled the plan is divided, and each of the step's
// answers starts a wave: a run of the next part, which shares what was known before.
// The waves of a run answer in the order in which they were started, whichever is
// ready first; one that is ready early keeps its response until those before it are
// sent, and holds nothing else meanwhile.

// wave is what a run has that an answer of a decoupled step started.
type wave struct {
	up   *run // whose step that was
	next *run // the wave after this one
	resp *infer.Response
	// number tells the waves of a request apart, from 1.
	number int32
	over   bool // nothing of it is under way any more; guarded by the root's ordering
}

// flight is the waves of one run that have not been answered. Guarded by the root's
// ordering.
type flight struct {
	first, last *run
	live        int
	room        chan struct{} // has a token when there may be room for another one
}

// ordering has one goroutine at a time send what is ready, in order.
type ordering struct {
	mu      sync.Mutex
	sending bool // guarded by mu
}

// answers returns which part of the plan answers a request for the given outputs: the
// last one that has one of them.
func (x *Executor) answers(outputs []int32) int32 {
	depth := int32(0)
	for _, o := range outputs {
		for at := x; at != nil && at.plan.Outputs[o] == plan.None; at = at.next {
			if at.next != nil {
				depth = max(depth, at.next.depth)
			}
		}
	}
	return depth
}

// waive has the decoupled step not wait for tensors that are for the next part but
// that this request's outputs do not need.
func (r *run) waive() {
	if r.x.next == nil {
		return
	}
	for _, n := range r.x.writers {
		if n >= 0 && !r.wanted.Has(n) {
			r.need[r.x.part.Producer].Add(-1)
		}
	}
}

// unawaited stages a decoupled step without inputs that waited only for what was waived.
func (r *run) unawaited(t *scheduler.RunLoop) int32 {
	x := r.x
	if x.next == nil || len(x.writers) == 0 || int(x.plan.Nodes[x.part.Producer].Need) > len(x.writers) || !r.wanted.Has(x.part.Producer) {
		return 0
	}
	for _, n := range x.writers {
		if n < 0 || r.wanted.Has(n) {
			return 0
		}
	}
	return r.stage(x.part.Producer, r.origin(), t)
}

// exports returns, per import of the next part, the step of this one that writes it,
// or -1.
func (x *Executor) exports() []int32 {
	list := make([]int32, len(x.next.part.Imports))
	for i := range list {
		list[i] = int32(slices.IndexFunc(x.plan.Nodes, func(n plan.Node) bool {
			return slices.Contains(n.Out, x.next.part.Imports[i].From)
		}))
	}
	return list
}

// launch starts a wave with one answer of the decoupled step. It waits for room, and
// fails when nobody wants a further answer. An empty last answer only ends the step.
func (r *run) launch(w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	if err := r.makeRoom(w); err != nil {
		tensor.ReleaseAll(out)
		return err
	}
	if final && !anyPresent(out) {
		return nil
	}
	c := r.newWave(out, params)
	c.holders.Store(2)
	c.turn.Tick(0)
	c.rise(c.turn)
	c.turn.Dispatch()
	c.turn.Leave()
	c.drop()
	return nil
}

// landed takes what the decoupled step left when it ended: the only answer of one that
// knows nothing of decoupling, and the tensors that were kept for the waves.
func (r *run) landed(w *scheduler.Task, t *scheduler.RunLoop) {
	if anyPresent(w.Out) {
		c := r.newWave(w.Out, w.ResponseParams)
		c.holders.Store(1)
		c.rise(t)
	}
	for i := range r.x.next.part.Imports {
		kept := r.read(r.x.next.part.Imports[i].From)
		kept.Release()
	}
}

func anyPresent(list []tensor.Tensor) bool {
	for i := range list {
		if list[i].Present() {
			return true
		}
	}
	return false
}

// newWave returns the run of one answer, the last in r's flight; out moves to it.
func (r *run) newWave(out []tensor.Tensor, params infer.Params) *run {
	x := r.x.next
	c := x.runs.Get()
	c.root, c.ctx, c.req = r.root, r.ctx, r.req
	c.wave = wave{up: r, number: r.root.waves.Add(1)}
	if r.req.Trace != nil {
		c.traceable()
		c.traceWave()
	}
	c.follow()
	c.underway.Store(1)
	c.recount()
	c.override.Store(r.override.Load())
	if len(params) > 0 {
		c.resequence(params)
	}
	c.outputs = append(c.outputs[:0], r.outputs...)
	c.choose()
	for i := range x.part.Imports {
		in := &x.part.Imports[i]
		if kept := &r.slots[in.From]; kept.Present() {
			c.slots[in.To] = kept.Retain()
		}
	}
	if f := r.req.Trace.Film(); f != nil {
		c.captureWave(f, out)
	}
	for i, s := range x.part.Ports {
		if s == plan.None {
			out[i].Release()
		} else {
			c.slots[s] = out[i].Move()
		}
	}
	r.underway.Add(1)
	r.root.order.mu.Lock()
	defer r.root.order.mu.Unlock()
	if f := &r.flight; f.last == nil {
		f.first = c
	} else {
		f.last.wave.next = c
	}
	r.flight.last = c
	r.flight.live++
	return c
}

// follow keeps the steps of a wave at the device of its request.
//
// hot: one load while there is no device.
func (r *run) follow() {
	if r.x.mover.Idle() {
		return
	}
	for i := range r.work {
		r.work[i].Affinity = &r.root.at
	}
}

// origin returns the step whose answer started the wave, -1 for the request's own run.
func (r *run) origin() int32 {
	if up := r.wave.up; up != nil {
		return up.x.first + up.x.part.Producer
	}
	return -1
}

// choose notes which of the part's nodes the request's outputs need.
func (r *run) choose() {
	p := r.x.plan
	if len(r.req.Outputs) == 0 {
		r.wanted = p.AllNodes
		return
	}
	clear(r.subset)
	for _, o := range r.outputs {
		r.subset.Or(p.OutputNodes[o])
	}
	r.wanted = r.subset
	r.waive()
}

// rise starts a wave.
func (r *run) rise(t *scheduler.RunLoop) {
	staged := int32(0)
	for _, n := range r.x.sources {
		if r.wanted.Has(n) {
			staged += r.stage(n, r.origin(), t)
		}
	}
	for i := range r.x.part.Imports {
		staged += r.deliver(r.x.part.Imports[i].To, r.origin(), t)
	}
	for _, s := range r.x.part.Ports {
		if s != plan.None {
			staged += r.deliver(s, r.origin(), t)
		}
	}
	staged += r.unawaited(t)
	r.leave(staged, t)
}

// crest ends a wave of which nothing is under way any more, and sends what it held up.
func (r *run) crest(t *scheduler.RunLoop) {
	root := r.root
	if root.failure.Load() == nil && r.x.depth == root.depth {
		resp, err := r.response()
		if err != nil {
			root.failure.CompareAndSwap(nil, &failure{err})
		} else {
			r.wave.resp = resp
		}
	}
	tensor.ReleaseAll(r.slots)
	root.holders.Add(1) // the last wave ends it
	root.order.mu.Lock()
	r.wave.over = true
	if !root.order.sending {
		root.order.sending = true
		for c := root.flight.pop(); c != nil; c = root.flight.pop() {
			root.order.mu.Unlock()
			c.retire(t)
			root.order.mu.Lock()
		}
		root.order.sending = false
	}
	root.order.mu.Unlock()
	root.drop()
}

// pop takes the first wave off a flight once it and all before it are over: a wave's
// own waves come before it.
func (f *flight) pop() *run {
	c := f.first
	if c == nil {
		return nil
	}
	if inner := c.flight.pop(); inner != nil {
		return inner
	}
	if !c.wave.over {
		return nil
	}
	if f.first = c.wave.next; f.first == nil {
		f.last = nil
	}
	f.live--
	return c
}

// last reports whether nothing of the request is under way but this wave, which is over: its response is the final one. Where
// the decoupled step goes on, the end of the request is told by itself, as in Triton.
func (r *run) last() bool {
	for c := r; c.wave.up != nil; c = c.wave.up {
		if c.wave.up.underway.Load() != 1 {
			return false
		}
	}
	return true
}

// retire sends a wave's response and lets go of the wave. Afterwards the run that it
// came from may be over.
func (r *run) retire(t *scheduler.RunLoop) {
	up, resp := r.wave.up, r.wave.resp
	if resp != nil {
		if r.root.failure.Load() == nil {
			r.root.give(resp, r.last())
		} else {
			resp.Release()
		}
	}
	r.wave = wave{}
	r.root, r.ctx, r.req = nil, nil, nil
	if r.override.Load() != nil {
		r.override.Store(nil)
	}
	r.drop()
	select {
	case up.flight.room <- struct{}{}:
	default:
	}
	up.leave(0, t)
}
