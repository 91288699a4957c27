package exec

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// run executes one request, or one sub-run of it, through a plan. Runs are pooled.
//
// Lifecycle:
//
//  1. begin takes the request, and bind moves its inputs into slots.
//  2. start stages the nodes whose inputs are known.
//  3. complete stores each result and stages the nodes that become ready. It may run
//     concurrently for different nodes.
//  4. The last taskDone calls finish. It, or the goroutine that waits for the response, calls End, which sends the
//     response and calls close.
//  5. The last release puts the run back into the pool.
//
// A run has two holders: the submitting goroutine, and the tasks that execute.
type run struct {
	x *Executor
	call
	values
	selection
	progress
	timing
	params
	stepFaults
	routing
	early    early
	loop     *scheduler.RunLoop // of the submitting goroutine
	affinity scheduler.Affinity
	traced   []scheduler.TaskTrace // per node, made when the run is first traced
	root     *run                  // the request's first run: the run itself, unless it is a sub-run or executes a group of items
	group    groupOf
	counted  counted
	fans     []fanState // of the fan-outs in the part
	sub      *subRun    // nil unless the plan has segments
}

// call is the request that a run executes.
type call struct {
	ctx  context.Context //nolint:containedctx // a run is a request in flight
	req  *infer.Request
	sink infer.Sink
	rows int32 // the batch size
	// arrived reports that scheduler.Background.Arrive has noted the request.
	arrived bool
}

// values are the tensors of a run and the counters of missing ones.
type values struct {
	slots   []tensor.Tensor
	readers []atomic.Int32 // per slot: reads to come
	need    []atomic.Int32 // per node: inputs to come
	tasks   []scheduler.Task
	sets    []rowSet     // of conditions
	metas   []infer.Meta // per node, of those with parameters of their own; nil when no node has any
}

// selection is the part of the plan that the requested outputs need.
type selection struct {
	outputs []int32      // requested, by position in the signature
	wanted  plan.NodeSet // nodes that they need
	subset  plan.NodeSet // memory for wanted when a request names its outputs
}

// progress counts down to the end of a run.
type progress struct {
	active  atomic.Int32 // tasks queued or executing, and 1 while the run is set up
	holders atomic.Int32
	done    atomic.Bool
	failure atomic.Pointer[failure] // of the root: the first
}

type failure struct {
	err  error
	node int32 // of the root's plan; -1 for one of a sub-run or a group of items
}

// timing has the times of a run for the statistics, as telemetry.Now returns them.
type timing struct {
	started, ended int64
	predicted      int64             // from the arrival to the response; 0 where nothing was predicted
	ends           []int64           // per node, the prediction of its end; set with predicted, for traces
	responded      bool              // a decoupled model has sent its first response
	sums           telemetry.RunSums // over the steps
	mu             sync.Mutex
	measured       []telemetry.Pending // batches of the steps at devices, guarded by mu until the last task is done
}

func newRun(x *Executor, workers *scheduler.Workers) *run {
	p := x.plan
	r := &run{x: x, loop: scheduler.NewRunLoop(workers)}
	r.values = values{
		slots:   make([]tensor.Tensor, p.Slots),
		readers: make([]atomic.Int32, p.Slots),
		need:    make([]atomic.Int32, len(p.Nodes)),
		tasks:   make([]scheduler.Task, len(p.Nodes)),
		sets:    make([]rowSet, len(p.RowSets)),
	}
	if ownParams(p) {
		r.metas = make([]infer.Meta, len(p.Nodes))
	}
	r.selection = selection{outputs: make([]int32, 0, len(p.Outputs)), subset: plan.NewNodeSet(len(p.Nodes))}
	r.root, r.routing = r, newRouting(len(p.Routes))
	r.fans = make([]fanState, x.countFanOuts())
	if x.segment != nil {
		r.sub = &subRun{}
	}
	if len(x.inner) > 0 {
		r.sub.streams = newStreams(x)
	}
	for i := range r.tasks {
		n, want := &p.Nodes[i], scheduler.Anywhere
		switch {
		case n.OnDevice:
			want = scheduler.AtDevice
		case len(n.Places) > 0:
			want = scheduler.AtHost
		}
		r.tasks[i] = scheduler.Task{
			TaskRequest: scheduler.TaskRequest{
				To: x, Run: r, Node: int32(i), Step: x.number(int32(i)), Affinity: &r.affinity, Want: want, Path: x.forecast.pathOf(i),
				In: make([]tensor.Tensor, len(n.In)),
			},
			TaskResult: scheduler.TaskResult{Out: make([]tensor.Tensor, len(n.Out))},
		}
	}
	return r
}

// begin takes a request and sets every counter.
func (r *run) begin(ctx context.Context, req *infer.Request, sink infer.Sink) {
	r.ctx, r.req, r.sink = ctx, req, sink
	r.loop.Tick(0)
	r.started = r.loop.Now()
	r.arrive()
	p := r.x.plan
	r.limit(req)
	r.rows, r.responded = 1, false
	r.early.begin(p, req)
	if r.sub != nil {
		r.sub.started.Store(0)
	}
	r.active.Store(1)
	r.holders.Store(2)
	r.done.Store(false)
	if _, bound := r.affinity.Bound(); bound || p.Devices != 0 {
		r.affinity.Reset(p.Devices)
	}
	r.resetCounters()
}

// resetCounters sets the counters of readers and of missing inputs, and provides records for the tasks of a traced run.
func (r *run) resetCounters() {
	for _, s := range r.x.shared {
		r.readers[s].Store(r.x.plan.Readers[s])
	}
	for _, n := range r.x.joins {
		r.need[n].Store(r.x.plan.Nodes[n].Need)
	}
	if r.req.Trace != nil && r.traced == nil {
		r.traced = make([]scheduler.TaskTrace, len(r.tasks))
	}
}

// start stages the nodes that need no input, and delivers the inputs of the request or of the sub-run.
func (r *run) start(loop *scheduler.RunLoop) {
	origin, staged := r.origin(), int32(0)
	if r.root.early.on && r.sub != nil && r.sub.parent != nil {
		r.beginEarly()
	}
	for _, n := range r.x.sources {
		if r.wanted.Contains(n) {
			staged += r.stage(n, origin, loop)
		}
	}
	for _, s := range r.x.entries {
		staged += r.deliver(s, origin, loop)
	}
	staged += r.stageProducers(loop)
	r.taskDone(staged, loop)
}

// deliver marks a slot as known, with or without a tensor, at each node that reads it, and returns how many tasks that
// staged.
func (r *run) deliver(s plan.Slot, after int32, loop *scheduler.RunLoop) int32 {
	staged := int32(0)
	for _, u := range r.x.plan.Consumers[s] {
		if r.x.plan.Nodes[u.Node].Need > 1 && r.need[u.Node].Add(-1) > 0 {
			continue
		}
		if r.wanted.Contains(u.Node) {
			staged += r.stage(u.Node, after, loop)
		}
	}
	return staged
}

// stage passes node n, whose inputs are all known, to its scheduler. It returns how many
// tasks the caller must count: 1, or 0 when the request has failed or the task counted
// itself. A staged task runs no earlier than the loop's next Dispatch.
func (r *run) stage(n, after int32, loop *scheduler.RunLoop) int32 {
	if r.root.failure.Load() != nil {
		return 0
	}
	x, task := r.x, &r.tasks[n]
	if x.operates {
		switch node := &x.plan.Nodes[n]; {
		case r.empty(node.Rows):
			r.passes(n, loop)
			return r.skip(n, after, loop)
		case node.Operation != nil:
			return r.operate(n, after, loop)
		}
	}
	if err := r.fill(task, &x.plan.Nodes[n]); err != nil {
		tensor.ReleaseAll(task.In)
		r.fail(n, err)
		return 0
	}
	task.Ctx, task.Meta, task.Err, task.ResponseParams, task.Cached = r.ctx, r.metaOf(n), nil, nil, false
	task.Measured = telemetry.Pending{}
	if task.Outputs = x.outputNames[n]; !x.plan.Ensemble {
		task.Outputs = r.req.Outputs
	}
	if task.Traced = nil; r.req.Trace != nil {
		r.traceReady(task, after, loop.Now())
	}
	if x.credits != nil && x.credits[n] != nil && !r.req.Background { // those in the background must not keep others from theirs
		// Count the task first: the goroutine that releases a credit may stage and complete it before acquire returns.
		r.active.Add(1)
		if x.credits[n].acquire(task) {
			loop.Stage(x.targets[n], task)
		}
		return 0
	}
	if x.meets != nil && x.meets[n] > 0 {
		r.active.Add(1) // first: the group that arrives last may stage and complete the task before meet returns
		r.meet(task, loop)
		return 0
	}
	loop.Stage(x.targets[n], task)
	return 1
}

// read returns a reference on a slot's tensor, which moves to the caller. The only reader
// gets the slot's own. Of several each takes its own before it counts itself out, and the
// last one releases the slot's, so that memory is freed as early as possible.
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

// complete stores the result of an executed task and stages the nodes that become ready. Afterwards r may be
// in the pool again.
func (r *run) complete(task *scheduler.Task, loop *scheduler.RunLoop) {
	var staged int32
	if task.Traced != nil {
		r.traceTask(task, loop.Now())
		r.group.last.Store(task.Step)
	}
	if r.x.credits != nil && !r.req.Background {
		r.x.credits[task.Node].release(loop)
	}
	if task.Err != nil {
		staged = r.taskFailed(task, loop)
	} else {
		if len(task.ResponseParams) > 0 {
			if r.x.plan.Ensemble {
				r.resequence(task.ResponseParams)
			} else {
				r.responseParams = task.ResponseParams
			}
		}
		for _, f := range r.x.results[task.Node] {
			f(r, task, loop)
		}
		if f := task.Trace().Snapshot(); f != nil {
			r.captureOutputs(f, task)
		}
		staged = r.store(task, loop)
	}
	r.taskDone(staged, loop)
}

// resultHook is one thing that a plan does with the result of a node besides storing it.
type resultHook func(r *run, task *scheduler.Task, loop *scheduler.RunLoop)

// facets returns those of node i, in the order in which they must run.
func (x *Executor) facets(i int32) (list []resultHook) {
	if x.plan.Ensemble {
		list = append(list, (*run).countTask)
	}
	if x.begins != nil && x.begins[i] >= 0 {
		list = append(list, (*run).endSubRuns)
	}
	if x.plan.Nodes[i].Reshape {
		list = append(list, (*run).reshapeOutputs)
	}
	if f := x.plan.Nodes[i].Fault; f != nil && f.Absorbed {
		list = append(list, (*run).stepSucceeded)
	}
	if f := x.plan.Nodes[i].Fault; f != nil && f.Retries > 0 {
		list = append(list, (*run).countRetries)
	}
	return list
}

// store moves the outputs of a task into their slots and stages the nodes that become ready.
func (r *run) store(task *scheduler.Task, loop *scheduler.RunLoop) int32 {
	n := &r.x.plan.Nodes[task.Node]
	for port, s := range n.Out {
		if s == plan.None {
			task.Out[port].Release()
			continue
		}
		r.slots[s] = task.Out[port].Move()
	}
	return r.deliverOutputs(n, task.Step, loop)
}

// countTask counts the times of a step that succeeded, and the tensors that it wrote.
//
// hot: atomic adds.
func (r *run) countTask(task *scheduler.Task, _ *scheduler.RunLoop) {
	x, measured := r.x, task.Measured.Any()
	if measured {
		r.root.measure(task.Measured)
	} else {
		r.root.sums.Add(&task.Times)
	}
	if x.steps == nil {
		return
	}
	if !measured {
		x.steps[task.Node].Done(task.Enqueued, &task.Times)
	}
	for port, s := range x.plan.Nodes[task.Node].Out {
		if s != plan.None {
			x.edges[s].Carried(&task.Out[port])
		}
	}
}

// measure notes a batch of the request that its device measures.
func (t *timing) measure(p telemetry.Pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measured = append(t.measured, p)
}

// settle counts the batches of the request that their devices measured, once the response is there. It returns whether there were any.
//
// hot: one comparison without any.
func (t *timing) settle() bool {
	if len(t.measured) == 0 {
		return false
	}
	for _, p := range t.measured {
		p.Finish(&t.sums)
	}
	t.measured = t.measured[:0]
	return true
}

// fail keeps the request's first failure. No further task starts; the request ends when the active ones are done.
func (r *run) fail(n int32, err error) {
	if r.root.failure.Load() != nil {
		return
	}
	at := n
	if r.root != r {
		at = -1
	}
	r.failWith(&failure{r.x.wrap(r.ctx, n, err), at})
}

// failWith is fail with a failure that is complete. Steps that wait for room see it.
func (r *run) failWith(f *failure) {
	r.root.failure.CompareAndSwap(nil, f)
	r.wakeProducers()
}

// failOf is fail for a node that is no task of the run.
func (r *run) failOf(n *plan.Node, err error) {
	r.failWith(&failure{wrapAs(r.ctx, n, err), -1})
}

// taskDone counts one task (or the set-up) out and those that it staged in. The last one finishes the run.
func (r *run) taskDone(staged int32, loop *scheduler.RunLoop) {
	if staged == 1 { // one out, one in
		return
	}
	if r.x.meets != nil && r.root.failure.Load() != nil {
		r.dropHeld(loop)
	}
	if r.active.Add(staged-1) == 0 {
		r.finish(loop)
	}
}

// isDone reports whether the request has ended.
func (r *run) isDone() bool { return r.done.Load() }

// close releases everything that the run holds, and closes the sink afterwards.
func (r *run) close(err error) {
	sink, x := r.sink, r.x
	tensor.ReleaseAll(r.slots)
	if r.req.Trace != nil || err != nil {
		r.traceEnd(err)
	}
	r.endRoutes(err)
	r.leaveStreams()
	r.leave()
	r.req.Release()
	r.ctx, r.req, r.sink = nil, nil, nil
	if r.failure.Load() != nil {
		r.failure.Store(nil)
	}
	if r.override.Load() != nil {
		r.override.Store(nil)
	}
	r.responseParams = nil
	r.endFaults()
	if len(r.fans) > 0 {
		r.counted.items.Store(0)
		r.counted.groups.Store(0)
	}
	if r.sub != nil {
		r.sub.responds = 0
		r.endStreams()
	}
	r.sums.Reset()
	r.outputs = r.outputs[:0]
	r.done.Store(true)
	r.release()
	sink.Close(err)
	x.pending.Add(-1)
}

// release gives up one hold on the run. The last one returns it to the pool.
func (r *run) release() {
	if r.holders.Add(-1) == 0 {
		r.x.runs.Put(r)
	}
}
