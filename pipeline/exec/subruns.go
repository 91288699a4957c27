package exec

import (
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// Decoupled steps, and operations on streams, divide an ensemble's plan into segments. Each response of the step starts
// a sub-run: a run of a segment, which shares the tensors known before. The sub-runs of a stream
// send their responses in the order in which they were started. One that is done
// early keeps its response until those before it are sent, and holds nothing else meanwhile.
//
// For example, in tokenize -> generate (decoupled) -> detokenize, a request that generates
// three texts has one run of tokenize and generate, and three sub-runs of detokenize.

// subRun is the state that a run has because its plan is divided into segments.
type subRun struct {
	child
	sendOrder
	unknown  atomic.Int32  // own outputs to come, with early outputs
	streams  []streamState // that begin in the run
	started  atomic.Int32  // sub-runs of the request, counted in the root
	responds int32         // of the root: the stream that responds
}

// child is the state of a run that a response of a decoupled step started.
type child struct {
	parent   *run            // the run of that step
	next     *run            // the sub-run after this one
	resp     *infer.Response // unsent
	at       int             // the stream, in the executor of parent
	position int32           // in the stream
	number   int32           // counts the sub-runs of a request, from 1
	over     bool            // it has no active task; guarded by the root's mu
	ready    bool            // with early outputs: resp is set, or it has none; guarded by the root's mu
}

// children are the sub-runs of a stream that have not sent their responses, in order. They are guarded by the root's mu.
type children struct {
	first, last *run
	unsent      *run // the first that is not ready, with early outputs
	live        int
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

// respondingStream returns the innermost stream of the outputs: its runs respond.
func (x *Executor) respondingStream(outputs []int32) (at int32) {
	for _, o := range outputs {
		at = max(at, x.whole.OutputStreams[o]) // the streams of outputs are one inside of another, and inner ones come later
	}
	return at
}

// skipUnneeded counts as arrived the shared tensors that no requested output needs, so that the nodes which begin a stream do not
// wait for them.
func (r *run) skipUnneeded() {
	for _, b := range r.x.inner {
		for _, w := range b.waits {
			if w.writer >= 0 && !r.wanted.Contains(w.writer) {
				r.need[w.node].Add(-1)
			}
		}
	}
}

// stageProducers stages the nodes that begin streams and have no inputs but shared tensors, of which all are unneeded.
func (r *run) stageProducers(loop *scheduler.RunLoop) (staged int32) {
	for n, count := range r.x.awaiting {
		n := int32(n) //nolint:gosec // at most maxSteps
		if count > 0 && r.x.plan.Nodes[n].Need == count && r.wanted.Contains(n) && !r.given(n) {
			staged += r.stage(n, r.origin(), loop)
		}
	}
	return staged
}

// given reports whether a shared tensor that node n waits for is written in this request.
func (r *run) given(n int32) bool {
	for _, b := range r.x.inner {
		for _, w := range b.waits {
			if w.node == n && (w.writer < 0 || r.wanted.Contains(w.writer)) {
				return true
			}
		}
	}
	return false
}

// startSubRun starts a sub-run with one response of the decoupled step, whose tensors move to it. It waits until there
// is room, and fails when the request has ended. An empty last response starts none.
func (r *run) startSubRun(task *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	at := int(r.x.begins[task.Node])
	if err := r.makeRoom(task, at); err != nil {
		tensor.ReleaseAll(out)
		return err
	}
	if final && !anyPresent(out) {
		return nil
	}
	c := r.nextSubRun(at, out, params)
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
	at := int(r.x.begins[task.Node])
	if anyPresent(task.Out) {
		c := r.nextSubRun(at, task.Out, task.ResponseParams)
		c.holders.Store(1)
		c.start(loop)
	}
	shared := r.x.inner[at].x.segment.Shared
	for i := range shared {
		kept := r.read(shared[i].From)
		kept.Release()
	}
	r.streamEnded(at, task.Step, loop)
}

func anyPresent(list []tensor.Tensor) bool {
	for i := range list {
		if list[i].Present() {
			return true
		}
	}
	return false
}

// nextSubRun returns the next run of a stream; out moves to it.
func (r *run) nextSubRun(at int, out []tensor.Tensor, params infer.Params) *run {
	x := r.x.inner[at].x
	c := x.runs.Get()
	c.root, c.ctx, c.req = r.root, r.ctx, r.req
	c.sub.child = child{parent: r, at: at, number: r.root.sub.started.Add(1)}
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
	s := &r.sub.streams[at]
	c.sub.position = s.count
	s.count++
	if s.last == nil {
		s.first = c
	} else {
		s.last.sub.next = c
	}
	s.last = c
	if s.unsent == nil {
		s.unsent = c
	}
	s.live++
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
	return r.x.origin
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
	if root.failure.Load() == nil && r.x.stream == root.sub.responds && !root.early.on {
		resp, err := r.response()
		if err != nil {
			r.failWith(&failure{err: err, node: -1})
		} else {
			r.sub.resp = resp
		}
	}
	tensor.ReleaseAll(r.slots)
	r.endFaults()
	r.endStreams()
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

// pop removes and returns the first child of a stream that is over, after all before it and its own children; nil without one.
func (s *subRun) pop() *run {
	for i := range s.streams {
		f := &s.streams[i]
		c := f.first
		if c == nil {
			continue
		}
		if inner := c.sub.pop(); inner != nil {
			return inner
		}
		if !c.sub.over {
			continue
		}
		if f.first = c.sub.next; f.first == nil {
			f.last = nil
		}
		if f.unsent == c {
			f.unsent = c.sub.next
		}
		f.live--
		return c
	}
	return nil
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
	up.signal()
	up.taskDone(0, loop)
}

// maxSubRunsAhead is how many sub-runs a decoupled step may be ahead of its client, unless the configuration sets less.
const maxSubRunsAhead = 128

// makeRoom waits until another sub-run may start. The waiting step must hold nothing that a
// sub-run could wait for. So some steps do not wait while they hold their instance:
// one whose sub-runs have decoupled steps, which may need the same instance; one that
// is joined with another stream, for the same reason; and one of a
// sub-run that is not the next to respond, whose own sub-runs respond after earlier ones.
func (r *run) makeRoom(task *scheduler.Task, at int) error {
	if err := r.pace(task); err != nil {
		return err
	}
	if !r.full(at) {
		return nil
	}
	b := r.x.inner[at]
	deeper := b.deeper && r.root.sub.responds != b.x.stream
	if (deeper || b.joined || !r.leads()) && !task.Yields() {
		return r.tooFarAhead(at)
	}
	task.Pause()
	defer task.Resume()
	for r.full(at) {
		select {
		case <-r.sub.streams[at].room:
		case <-r.ctx.Done():
			return status.ErrCancelled
		}
		if r.root.failure.Load() != nil {
			return status.ErrCancelled
		}
	}
	return nil
}

// leads reports whether r's responses are the next to be sent. Once true it stays true.
func (r *run) leads() bool {
	r.root.sub.mu.Lock()
	defer r.root.sub.mu.Unlock()
	for c := r; c.sub.parent != nil; c = c.sub.parent {
		if c.sub.parent.sub.streams[c.sub.at].first != c {
			return false
		}
	}
	return true
}

// full reports whether the maximum of sub-runs is active, in the stream at inner[at] or in one that is made of it.
func (r *run) full(at int) bool {
	r.root.sub.mu.Lock()
	live := r.sub.streams[at].live
	r.root.sub.mu.Unlock()
	b, most := r.x.inner[at], maxSubRunsAhead
	if p := b.x.segment.Producer; p != plan.None {
		if n := r.x.plan.Nodes[p].MaxInflight; n > 0 && n < maxSubRunsAhead {
			most = int(n)
		}
	}
	if live >= most {
		return true
	}
	for _, f := range b.feeds {
		to := r.x.inner[f.to]
		if to.joins != nil && r.sub.streams[f.to].op.waits(f.side) >= to.joins.Operation.StreamJoin.Ahead || r.full(f.to) {
			return true
		}
	}
	return false
}

// tooFarAhead returns the error of a step that cannot wait while another stream of a join lacks behind, nil where there is room.
func (r *run) tooFarAhead(at int) error {
	for _, f := range r.x.inner[at].feeds {
		if to := r.x.inner[f.to]; to.joins != nil {
			most := to.joins.Operation.StreamJoin.Ahead
			if r.sub.streams[f.to].op.waits(f.side) >= most {
				err := status.With(status.StepFailed, status.Errorf(status.Unavailable, "the stream of '%s' is %d responses ahead of another one that '%s' joins, and its model cannot wait; raise step.%s.ahead, or send the responses of both at one pace",
					to.tensorOf(f.side), most, to.joins.Name, to.step()))
				r.failOf(to.joins, err)
				return err
			}
		}
		if err := r.tooFarAhead(f.to); err != nil {
			return err
		}
	}
	return nil
}
