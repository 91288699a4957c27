// Package exec runs compiled plans: a pooled run per request, slots for the tensors,
// counters for what is still missing. Nothing on the way of a request looks a name
// up, takes a lock or allocates.
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
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// Executor runs one plan. It implements infer.Inferer for requests whose model and
// version it is.
type Executor struct {
	plan    *plan.Plan
	targets []scheduler.Scheduler // one per node
	stats   *telemetry.Model
	mover   *scheduler.Mover
	tracer  *tracing.Tracer
	log     *slog.Logger // may be nil
	workers *scheduler.Workers
	runs    pool.Of[run]
	pending scheduler.Pending
	retired atomic.Bool

	// Of a plan that is divided: what was compiled, in the first part's executor; the
	// part; how many are before it; the executor of the next; and the step that writes
	// each tensor that the next shares, or -1.
	whole   *plan.Plan
	part    *plan.Part
	depth   int32
	first   int32 // the number of the part's first step in the whole plan
	next    *Executor
	writers []int32

	// Of an ensemble that is counted: its steps, and its tensors by slot.
	steps []*telemetry.Step
	edges []*telemetry.Edge

	inflight []*credits // per node, nil without a limit; nil when no node has one

	// What a run must count anew: slots with several readers, nodes with several
	// inputs; and the nodes that wait for none.
	shared  []plan.Slot
	joins   []int32
	sources []int32
	// The names of the outputs that a node's step is to give; nil for all, and for a plain
	// model, of which the request says it.
	gives [][]string

	shotsOnce sync.Once
	shotList  []tracing.Edge // made by shotsOnce
}

var (
	_ infer.Inferer       = (*Executor)(nil)
	_ scheduler.Responder = (*Executor)(nil)
)

// Settings are what an Executor is made with.
type Settings struct {
	Plan *plan.Plan
	// Targets holds the scheduler of each node's model, in the plan's order.
	Targets []scheduler.Scheduler
	// Stats counts an ensemble's requests; a plain model's are counted where they execute.
	Stats   *telemetry.Model
	Workers *scheduler.Workers
	// Mover is nil where there are no devices.
	Mover *scheduler.Mover
	// Tracer is told of failures of requests that are not traced; nil for nobody.
	Tracer *tracing.Tracer
	// Log receives, at the debug level, the outputs that an ensemble's steps left out of a
	// response. Optional.
	Log *slog.Logger

	_ struct{}
}

// New returns an executor of s.Plan.
func New(s Settings) *Executor {
	parts := s.Plan.Parts
	if len(parts) == 0 {
		return newExecutor(&s, s.Plan, s.Targets)
	}
	var next *Executor
	for i := len(parts) - 1; i >= 0; i-- {
		part := &parts[i]
		x := newExecutor(&s, part.Plan, s.Targets[part.First:])
		x.part, x.depth, x.first, x.next = part, int32(i), part.First, next
		if next != nil {
			x.writers = x.exports()
		}
		next = x
	}
	next.whole = s.Plan
	return next
}

// newExecutor returns an executor of p, which is s.Plan or a part of it.
func newExecutor(s *Settings, p *plan.Plan, targets []scheduler.Scheduler) *Executor {
	x := &Executor{plan: p, targets: targets, stats: s.Stats, mover: s.Mover, tracer: s.Tracer, log: s.Log, workers: s.Workers}
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
	}
	if p.Ensemble && s.Stats != nil {
		names := make([]string, len(p.Nodes))
		for i := range p.Nodes {
			names[i] = p.Nodes[i].Name
		}
		x.steps, x.edges = s.Stats.Steps(names), s.Stats.Edges(p.Names)
	}
	x.gives = givesOf(p)
	x.inflight = newInflight(x, s.Workers)
	x.runs.New = func() *run { return newRun(x, s.Workers) }
	return x
}

// givesOf returns, per node, the names of the outputs that are mapped, nil where all are.
func givesOf(p *plan.Plan) [][]string {
	gives := make([][]string, len(p.Nodes))
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if !slices.Contains(n.Out, plan.None) {
			continue
		}
		for port, s := range n.Out {
			if s != plan.None {
				gives[i] = append(gives[i], n.Signature.Outputs[port].Name)
			}
		}
	}
	return gives
}

// Submit runs req. Unless req is Async it lends the calling goroutine to the work it
// makes ready and returns when the request is answered or nothing is left to do for
// it here.
//
// hot: no allocation in the steady state.
func (x *Executor) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	x.pending.Add(1)
	x.submit(ctx, req, sink)
}

// submit runs a request that is counted in.
func (x *Executor) submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	async := req.Async // the request is gone when the run ends
	r := x.runs.Get()
	r.begin(ctx, req, sink)
	if req.Trace != nil {
		r.traceStart()
	}
	if err := r.bind(); err != nil {
		r.reject(err)
		return
	}
	if f := req.Trace.Film(); f != nil {
		r.captureInputs(f)
	}
	r.start()
	r.turn.Dispatch()
	if async {
		r.turn.Leave()
	} else {
		r.turn.Lend(r.answered)
	}
	r.drop()
}

// Respond takes one answer of a decoupled model: to the client when the plan has only
// this node, else into the steps that follow.
func (x *Executor) Respond(w *scheduler.Task, out []tensor.Tensor, params infer.Params, final bool) error {
	r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by stage
	if x.next != nil {
		return r.launch(w, out, params, final)
	}
	return r.send(w, out, params, final)
}

// Fail tells a client at once that the one step of its request has failed. A request of several steps ends with the last one
// that is under way.
func (x *Executor) Fail(w *scheduler.Task, err error, final bool) {
	r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by stage
	if f, ok := r.sink.(infer.Failer); ok && x.next == nil && r.root == r && !x.plan.Ensemble {
		f.Fail(x.wrap(r.ctx, w.Node, err), final)
	}
}

// Complete takes executed works back, stores their outputs and enqueues what became
// ready. Of a batch that was executed as one, the works that go on to the same node
// stay one.
//
// hot: no allocation in the steady state.
func (*Executor) Complete(list scheduler.TaskList, t *scheduler.RunLoop) {
	whole := list.Whole()
	for w := list.Pop(); w != nil; w = list.Pop() {
		r := w.Run.(*run) //nolint:errcheck,forcetypeassert // set by stage
		r.complete(w, t)
	}
	if whole {
		t.Seal()
	}
	t.Dispatch()
}

// Drain waits until every request is answered.
func (x *Executor) Drain(ctx context.Context) error { return x.pending.Wait(ctx) }

// Busy reports whether requests are not answered.
func (x *Executor) Busy() bool { return x.pending.Now() > 0 }

// Plan returns what the executor runs.
func (x *Executor) Plan() *plan.Plan {
	if x.whole != nil {
		return x.whole
	}
	return x.plan
}

// wrap puts the ensembles around a failure of node n into its text, outermost first. A
// request that was cancelled has no text, but a model that says so of one that is awaited
// keeps its own.
func (x *Executor) wrap(ctx context.Context, n int32, err error) error {
	if status.CodeOf(err) == status.Cancelled && (ctx.Err() != nil || errors.Is(err, status.ErrDeadline) || status.Text(err) == "") {
		if errors.Is(err, status.ErrDeadline) {
			return status.ErrDeadline
		}
		return status.ErrCancelled
	}
	for _, name := range slices.Backward(x.plan.Nodes[n].Ensembles) {
		err = status.Prefixf(err, "in ensemble '%s', ", name)
	}
	return err
}

// fit applies a node's batch-dimension rule to a tensor on its way in.
func fit(t *tensor.Tensor, f plan.Fit) bool {
	switch f {
	case plan.Strip:
		if t.Shape.Rank() == 0 || t.Shape.Dim(0) != 1 {
			return false
		}
		t.Shape = t.Shape.Tail()
	case plan.Prepend:
		t.Shape = t.Shape.Prepend(1)
	case plan.AsIs:
	}
	return true
}
