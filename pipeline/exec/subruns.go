package exec

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// A decoupled step divides an ensemble's plan into segments. Each response of the step starts
// a sub-run: a run of the next segment, which shares the tensors known before. The sub-runs
// of a run send their responses in the order in which they were started. One that is done
// early keeps its response until those before it are sent, and holds nothing else meanwhile.
//
// For example, in tokenize -> generate (decoupled) -> detokenize, a request that generates
// three texts has one run of tokenize and generate, and three sub-runs of detokenize.

// subRun is the state that a run has because its plan is divided into segments.
type subRun struct {
	child
	children
	sendOrder
	started atomic.Int32 // sub-runs of the request, counted in the root
	depth   int32        // of the root: the segment that responds
}

// child is the state of a run that a response of a decoupled step started.
type child struct {
	parent *run            // the run of that step
	next   *run            // the sub-run after this one
	resp   *infer.Response // unsent
	number int32           // counts the sub-runs of a request, from 1
	over   bool            // it has no active task; guarded by the root's mu
}

// children are the sub-runs of one run that have not sent their responses, in order. They are guarded by the root's mu.
type children struct {
	first, last *run
	live        int
	room        chan struct{} // holds a token when another sub-run may have become possible
}

// sendOrder makes one goroutine at a time send the responses of a request. It is the root's.
type sendOrder struct {
	mu      sync.Mutex
	sending bool // guarded by mu
}

// subNumber returns the number of the sub-run or of the group of items, 0 for a request's first run.
func (r *run) subNumber() int32 {
	if r.sub == nil {
		return r.group.number
	}
	return r.sub.number
}

// lastSegment returns the depth of the last segment that writes any of the outputs: it responds.
func (x *Executor) lastSegment(outputs []int32) int32 {
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

// skipUnneeded counts as arrived the shared tensors that no requested output needs, so that the decoupled step does not
// wait for them.
func (r *run) skipUnneeded() {
	if r.x.next == nil {
		return
	}
	for _, n := range r.x.writers {
		if n >= 0 && !r.wanted.Contains(n) {
			r.need[r.x.segment.Producer].Add(-1)
		}
	}
}

// stageProducer stages a decoupled step without inputs whose shared tensors are all unneeded.
func (r *run) stageProducer(loop *scheduler.RunLoop) int32 {
	x := r.x
	if x.next == nil || len(x.writers) == 0 || int(x.plan.Nodes[x.segment.Producer].Need) > len(x.writers) || !r.wanted.Contains(x.segment.Producer) {
		return 0
	}
	for _, n := range x.writers {
		if n < 0 || r.wanted.Contains(n) {
			return 0
		}
	}
	return r.stage(x.segment.Producer, r.origin(), loop)
}

// sharedWriters returns, per shared tensor of the next segment, the node of this one that writes it, or -1.
func (x *Executor) sharedWriters() []int32 {
	list := make([]int32, len(x.next.segment.Shared))
	for i := range list {
		list[i] = int32(slices.IndexFunc(x.plan.Nodes, func(n plan.Node) bool {
			return slices.Contains(n.Out, x.next.segment.Shared[i].From)
		}))
	}
	return list
}

// startSubRun starts a sub-run with one response of the decoupled step, whose tensors move to it. It waits until there
// is room, and fails when the request has ended. An empty last response starts none.
func (r *run) startSubRun(task *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	if err := r.makeRoom(task); err != nil {
		tensor.ReleaseAll(out)
		return err
	}
	if final && !anyPresent(out) {
		return nil
	}
	c := r.nextSubRun(out, params)
	c.holders.Store(2)
	c.loop.Tick(0)
	c.start(c.loop)
	c.loop.Dispatch()
	c.loop.Finish()
	c.release()
	return nil
}

// endSubRuns ends a decoupled step: outputs as of an ordinary model start its only sub-run. It releases shared tensors.
func (r *run) endSubRuns(task *scheduler.Task, loop *scheduler.RunLoop) {
	if anyPresent(task.Out) {
		c := r.nextSubRun(task.Out, task.ResponseParams)
		c.holders.Store(1)
		c.start(loop)
	}
	for i := range r.x.next.segment.Shared {
		kept := r.read(r.x.next.segment.Shared[i].From)
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

// nextSubRun returns the run of one response, the last of r's children; out moves to it.
func (r *run) nextSubRun(out []tensor.Tensor, params infer.Params) *run {
	x := r.x.next
	c := x.runs.Get()
	c.root, c.ctx, c.req = r.root, r.ctx, r.req
	c.sub.child = child{parent: r, number: r.root.sub.started.Add(1)}
	if r.req.Trace != nil {
		r.req.Trace.Event(&tracing.Event{Kind: tracing.EventSubRun, At: telemetry.Now(), Node: c.origin()})
	}
	for i := range c.tasks { // its steps are bound to the device of the request
		if x.mover.Idle() {
			break
		}
		c.tasks[i].Affinity = &r.root.affinity
	}
	c.active.Store(1)
	c.resetCounters()
	c.override.Store(r.override.Load())
	if len(params) > 0 {
		c.resequence(params)
	}
	c.outputs = append(c.outputs[:0], r.outputs...)
	c.selectNodes()
	for i := range x.segment.Shared {
		in := &x.segment.Shared[i]
		if kept := &r.slots[in.From]; kept.Present() {
			c.slots[in.To] = kept.Retain()
		}
	}
	if f := r.req.Trace.Snapshot(); f != nil {
		c.captureSubRun(f, out)
	}
	for i, s := range x.segment.Ports {
		if s == plan.None {
			out[i].Release()
		} else {
			c.slots[s] = out[i].Move()
		}
	}
	r.active.Add(1)
	r.root.sub.mu.Lock()
	defer r.root.sub.mu.Unlock()
	if f := &r.sub.children; f.last == nil {
		f.first = c
	} else {
		f.last.sub.next = c
	}
	r.sub.last = c
	r.sub.live++
	return c
}

// origin returns the step whose response started the sub-run or whose output completed the inputs of the fan-out, -1 for a request's first run.
func (r *run) origin() int32 {
	if r.group.parent != nil {
		return r.group.last.Load()
	}
	if r.sub == nil || r.sub.parent == nil {
		return -1
	}
	up := r.sub.parent.x
	return up.first + up.segment.Producer
}

// selectNodes notes which nodes of the plan or segment the requested outputs need.
func (r *run) selectNodes() {
	p := r.x.plan
	if len(r.req.Outputs) == 0 {
		r.wanted = p.AllNodes
		return
	}
	clear(r.subset)
	for _, o := range r.outputs {
		r.subset.AddAll(p.OutputNodes[o])
	}
	r.wanted = r.subset
	r.skipUnneeded()
}

// finishSubRun ends a sub-run without active tasks, and sends every response that is next in order.
func (r *run) finishSubRun(loop *scheduler.RunLoop) {
	root := r.root
	if root.failure.Load() == nil && r.x.depth == root.sub.depth {
		resp, err := r.response()
		if err != nil {
			root.failure.CompareAndSwap(nil, &failure{err: err, node: -1})
		} else {
			r.sub.resp = resp
		}
	}
	tensor.ReleaseAll(r.slots)
	r.endFaults()
	root.holders.Add(1) // the last sub-run ends it
	root.sub.mu.Lock()
	r.sub.over = true
	if !root.sub.sending {
		root.sub.sending = true
		for c := root.sub.pop(); c != nil; c = root.sub.pop() {
			root.sub.mu.Unlock()
			c.sendSubRun(loop)
			root.sub.mu.Lock()
		}
		root.sub.sending = false
	}
	root.sub.mu.Unlock()
	root.release()
}

// pop removes and returns the first child that is over, after all before it and its own children; nil without one.
func (f *children) pop() *run {
	c := f.first
	if c == nil {
		return nil
	}
	if inner := c.sub.pop(); inner != nil {
		return inner
	}
	if !c.sub.over {
		return nil
	}
	if f.first = c.sub.next; f.first == nil {
		f.last = nil
	}
	f.live--
	return c
}

// isLast reports whether the response of this sub-run is the final one of its request: nothing
// else is active. While the decoupled step is active no response is final: Sink.Close ends the request, as in Triton.
func (r *run) isLast() bool {
	for c := r; c.sub.parent != nil; c = c.sub.parent {
		if c.sub.parent.active.Load() != 1 {
			return false
		}
	}
	return true
}

// sendSubRun sends a sub-run's response and releases the sub-run. Afterwards the run that it came from may be over.
func (r *run) sendSubRun(loop *scheduler.RunLoop) {
	up, resp := r.sub.parent, r.sub.resp
	if resp != nil {
		if r.root.failure.Load() == nil {
			r.root.sendResponse(resp, r.isLast())
		} else {
			resp.Release()
		}
	}
	r.sub.child = child{}
	r.root, r.ctx, r.req = nil, nil, nil
	if r.override.Load() != nil {
		r.override.Store(nil)
	}
	r.release()
	select {
	case up.sub.room <- struct{}{}:
	default:
	}
	up.taskDone(0, loop)
}
