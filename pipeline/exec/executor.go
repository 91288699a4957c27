// Package exec executes compiled plans. Each request takes a run from a pool; the run has a
// slot per tensor and a counter per node. After bind, a request looks up no name, takes no
// lock and allocates nothing, except for the limits and sub-runs of plans that have them.
//
// # The path of a request
//
//   - Executor.Submit takes a run; bind checks the request and moves its inputs into slots.
//   - run.start delivers them. A node whose last input arrives is staged: run.fill sets the
//     inputs of its scheduler.Task, and the run loop's Dispatch enqueues it.
//   - The scheduler calls Executor.Complete with executed tasks; run.complete stores their
//     outputs and stages the next nodes.
//   - When no task is active, run.finish calls run.End, or wakes the goroutine that waits in
//     infer.Call.Wait to do so. End sends the response, and run.close releases the rest.
//
// For example, a request for a chain of three steps is staged three times, always by the
// goroutine that completed the step before, and sends one response.
package exec

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pending"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Executor executes one plan: an infer.Inferer for requests of its model and version. It is safe for concurrent use.
type Executor struct {
	plan    *plan.Plan
	targets []scheduler.Scheduler // one per node
	stats   *telemetry.Model
	mover   *batch.Mover
	tracer  *tracing.Tracer
	log     *slog.Logger // may be nil
	workers *scheduler.Workers
	alloc   tensor.Allocator // of what operations make
	runs    pool.Of[run]
	pending pending.Count
	retired atomic.Bool
	entry   entry
	precomputed
	counters
	segmentPosition
	partPosition

	captureEdges func() []tracing.TensorEdge // tensorEdges, called once

	routers   []*router // of the plan's routes
	shadows   []*shadow // per node; nil when no step has one
	flows     flowCounters
	forecast  forecast
	perStep   bool // the timeouts of requests are those of steps
	submitter func(ctx context.Context, req *infer.Request, sink infer.Sink)
	copying   context.Context    //nolint:containedctx // of the copies for shadows, which no request waits for
	endCopies context.CancelFunc // nil without shadows
}

// precomputed is what New derives from the plan for every run.
type precomputed struct {
	shared  []plan.Slot // slots with several readers
	joins   []int32     // nodes with several inputs
	sources []int32     // nodes without inputs
	entries []plan.Slot // slots whose tensors are known at the start
	// outputNames are, per node, the outputs that the plan reads; nil for all. A plain model's are the request's.
	outputNames [][]string
	operates    bool           // the plan has row sets or nodes without a model
	results     [][]resultHook // per node
	credits     []*credits     // per node, nil without a limit; nil when no node has one
	background  *scheduler.Background
}

// counters are the statistics of an ensemble's steps and of its tensors, by slot; nil when it is not counted.
type counters struct {
	steps []*telemetry.Step
	edges []*telemetry.Edge
}

// segmentPosition is the position of an executor in a divided plan, which has one for each segment. It is zero otherwise.
type segmentPosition struct {
	whole   *plan.Plan // of the first segment's executor: the plan that was compiled
	segment *plan.Segment
	stream  int32    // the position of the segment in the plan
	inner   []*begun // the streams that begin in this one
	begins  []int32  // per node: the stream in inner that it begins, or -1
	// awaiting counts, per node, the shared tensors that it waits for because it begins a stream.
	awaiting []int32
	source   *plan.Node // whose responses its runs are; nil for the first segment
	origin   int32      // the number of source in the whole plan
}

// Settings configure an Executor.
type Settings struct {
	Plan *plan.Plan
	// Targets holds the scheduler of each node's model, in the plan's order.
	Targets []scheduler.Scheduler
	// Stats counts an ensemble's requests. A plain model's are counted where they execute.
	Stats   *telemetry.Model
	Workers *scheduler.Workers
	// Mover is nil where there are no devices.
	Mover *batch.Mover
	// TimeoutPerStep makes the timeout of a request that of each of its steps, as in Triton, and not that of the whole ensemble.
	TimeoutPerStep bool
	// Alloc has host memory for the tensors that conditions and joins make. It may be nil for a plan without row sets.
	Alloc tensor.Allocator
	// Submit sends a request to any model of the repository. It may be nil for a plan without shadows.
	Submit func(ctx context.Context, req *infer.Request, sink infer.Sink)
	// Tracer receives failed requests that were not sampled. Optional.
	Tracer *tracing.Tracer
	// Log receives, at the debug level, the outputs that an ensemble's steps left out of a response. Optional.
	Log *slog.Logger

	_ struct{}

	graph int64 // its number: executors of its parts share it
	depth []int // per node of Plan, the longest distance from its first ones
}

var graphs atomic.Int64

// New returns an executor of s.Plan.
func New(s Settings) *Executor {
	s.graph, s.depth = graphs.Add(1), depths(s.Plan)
	if s.Plan.First != nil {
		return newParts(&s)
	}
	if len(s.Plan.Segments) > 0 {
		return newSegments(&s)
	}
	return newExecutor(&s, s.Plan, s.Targets, nil, segmentPosition{})
}

// newExecutor returns an executor of p, which is s.Plan or one of its segments.
// newExecutor returns the executor of a plan, which is s.Plan or a part of it. numbers has the numbers of its nodes in s.Plan, nil for equal ones.
func newExecutor(s *Settings, p *plan.Plan, targets []scheduler.Scheduler, numbers []int32, d segmentPosition) *Executor {
	x := &Executor{plan: p, targets: targets, stats: s.Stats, mover: s.Mover, tracer: s.Tracer, log: s.Log, workers: s.Workers, alloc: s.Alloc, segmentPosition: d, submitter: s.Submit}
	x.routers, x.flows = newRouters(x), newFlowCounters(x)
	if x.shadows = newShadows(x); x.shadows != nil {
		x.copying, x.endCopies = context.WithCancel(context.Background())
	}
	for i, readers := range p.Readers {
		if readers > 1 {
			x.shared = append(x.shared, plan.Slot(i))
		}
	}
	for i := range p.Nodes {
		switch need := p.Nodes[i].Need; {
		case need == 0:
			x.sources = append(x.sources, int32(i))
		case need > 1:
			x.joins = append(x.joins, int32(i))
		}
		x.results = append(x.results, x.facets(int32(i)))
	}
	if p.Ensemble && s.Stats != nil {
		names := make([]string, len(p.Nodes))
		for i := range p.Nodes {
			names[i] = p.Nodes[i].Name
		}
		x.steps, x.edges = s.Stats.Steps(names), s.Stats.Edges(p.Names)
	}
	x.entries = slices.Clone(p.Inputs)
	if d.segment != nil {
		x.numbers = d.segment.Numbers
		for _, in := range d.segment.Shared {
			x.entries = append(x.entries, in.To)
		}
		x.entries = append(x.entries, slices.DeleteFunc(slices.Clone(d.segment.Ports), func(s plan.Slot) bool { return s == plan.None })...)
	}
	x.operates = p.RowSets != nil || slices.ContainsFunc(p.Nodes, func(n plan.Node) bool { return n.Operation != nil })
	x.guards()
	x.perStep = s.TimeoutPerStep
	x.forecast.init(x, s, numbers)
	x.captureEdges = sync.OnceValue(x.tensorEdges)
	x.outputNames = outputNames(p)
	x.credits, x.background = newCredits(x, s.Workers), s.Workers.Background()
	x.runs.New = func() *run { return newRun(x, s.Workers) }
	return x
}

// outputNames returns, per node, the names of the outputs that are mapped; nil when all are.
func outputNames(p *plan.Plan) [][]string {
	list := make([][]string, len(p.Nodes))
	for i, n := range p.Nodes {
		for port, s := range n.Out {
			if s != plan.None && slices.Contains(n.Out, plan.None) {
				list[i] = append(list[i], n.Signature.Outputs[port].Name)
			}
		}
	}
	return list
}

// Submit executes req, which moves to the executor with its tensors. Unless req is Async it lends the calling goroutine
// to the tasks that it makes ready, and returns when the request has ended or no task is left for this goroutine.
//
// hot: no allocation in the steady state.
func (x *Executor) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	x.pending.Add(1)
	x.submit(ctx, req, sink)
}

// Offer is Submit for an executor that may be retired concurrently. It returns false, and leaves req and sink with the
// caller, after Retire. A request is counted before it checks for retirement, and Retire must be called before Drain:
// when Drain sees no request, none can follow.
//
// hot: no allocation in the steady state.
func (x *Executor) Offer(ctx context.Context, req *infer.Request, sink infer.Sink) bool {
	x.pending.Add(1)
	if x.retired.Load() {
		x.pending.Add(-1)
		return false
	}
	x.submit(ctx, req, sink)
	return true
}

// Retire makes Offer refuse requests from now on. Requests that were accepted go on.
func (x *Executor) Retire() { x.retired.Store(true) }

// submit executes a request that pending has counted, or keeps it waiting while Hold does.
func (x *Executor) submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	if x.entry.closed.Load() && x.wait(ctx, req, sink) {
		return
	}
	x.begin(ctx, req, sink)
}

// begin executes a request.
func (x *Executor) begin(ctx context.Context, req *infer.Request, sink infer.Sink) {
	async := req.Async // the request is gone when the run ends
	r := x.runs.Get()
	r.begin(ctx, req, sink)
	if req.Trace != nil {
		r.traceStart()
	}
	if f := req.Trace.Snapshot(); f != nil {
		r.captureRequest(f)
	}
	err := x.admit(r)
	if err == nil {
		err = r.bind()
	}
	if err != nil {
		r.countDeadline(r.started, err)
		r.release()
		r.close(err) //nolint:contextcheck // the log of a canary belongs to no request
		return
	}
	r.start(r.loop)
	r.loop.Dispatch()
	if async {
		r.loop.Finish()
	} else {
		r.loop.RunUntil(r.isDone)
	}
	r.release()
}

// Respond takes one response of a decoupled model: it goes to the client of a plain model, else it starts a sub-run.
func (x *Executor) Respond(task *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	r := task.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
	if x.begins != nil {
		return r.startSubRun(task, out, params, final)
	}
	return r.send(task, out, params, final)
}

// Fail reports a failure of one response at once, for a plain model. Other requests fail when their last task is done.
func (x *Executor) Fail(task *scheduler.Task, err error, final bool) {
	r := task.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
	if f, ok := r.sink.(infer.Failer); ok && x.segment == nil && r.root == r && !x.plan.Ensemble {
		f.Fail(x.wrap(r.ctx, task.Node, err), final)
	}
}

// Complete stores the outputs of executed tasks and stages the nodes that become ready. Tasks
// of one batch that go on to the same node stay together.
//
// hot: no allocation in the steady state.
func (*Executor) Complete(list scheduler.TaskList, loop *scheduler.RunLoop) {
	whole := list.Sealed()
	for w := list.Pop(); w != nil; w = list.Pop() {
		r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by newRun
		r.complete(w, loop)
	}
	if whole {
		loop.Seal()
	}
	loop.Dispatch()
}

// Account implements scheduler.Accounts.
func (*Executor) Account(of any, node int32) (*telemetry.Step, *telemetry.RunSums) {
	r := of.(*run) //nolint:errcheck,forcetypeassert // set by newRun
	switch x := r.x; {
	case !x.plan.Ensemble:
		return nil, nil
	case x.steps == nil:
		return nil, &r.root.sums
	default:
		return x.steps[node], &r.root.sums
	}
}

// Drain waits until every accepted request has ended. It cancels the copies for shadows.
func (x *Executor) Drain(ctx context.Context) error {
	x.EndCopies()
	err := x.pending.Wait(ctx)
	if err == nil {
		x.endInputs()
	}
	return err
}

// EndCopies cancels the copies for shadows, and makes none from now on. Requests go on.
func (x *Executor) EndCopies() {
	if x.endCopies != nil {
		x.endCopies()
	}
	for _, inner := range x.inner {
		inner.x.EndCopies()
	}
}

// Busy reports whether a request that has begun has not ended.
func (x *Executor) Busy() bool {
	waiting := x.entry.waiting.Load() // before pending: a request counts there first
	return x.pending.Now() > waiting
}

// InFlight returns how many accepted requests have not ended.
func (x *Executor) InFlight() int64 { return x.pending.Now() }

// Plan returns the plan that the executor executes.
func (x *Executor) Plan() *plan.Plan {
	if x.whole != nil {
		return x.whole
	}
	return x.plan
}

// wrap prefixes a failure of node n with its ensembles, outermost first. A cancelled request has its model's text only.
func (x *Executor) wrap(ctx context.Context, n int32, err error) error {
	return wrapAs(ctx, &x.plan.Nodes[n], err)
}

func wrapAs(ctx context.Context, n *plan.Node, err error) error {
	if status.CodeOf(err) == status.Cancelled && (ctx.Err() != nil || errors.Is(err, status.ErrDeadline) || status.Text(err) == "") {
		if errors.Is(err, status.ErrDeadline) {
			return status.ErrDeadline
		}
		return status.ErrCancelled
	}
	if len(n.Ensembles) > 0 {
		err = status.At(n.Name, err)
	}
	for _, name := range slices.Backward(n.Ensembles) {
		err = status.Prefixf(err, "in ensemble '%s', ", name)
	}
	return err
}
